//! Element types and owned or borrowed buffers of one of them.

use half::{bf16, f16};
use std::fmt;
use std::ops::Range;

/// The type in which a tensor is stored and sent. Arithmetic is f32 for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE single precision.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

/// A Rust type that stands for one [`DType`] and widens to f32 without loss.
pub trait PlainElement: bytemuck::Pod + Send + Sync {
    /// The element's name in the dynamic enum.
    const DTYPE: DType;
    /// The value in f32, exact.
    fn to_f32(self) -> f32;
    /// The nearest value, ties to even.
    fn from_f32(value: f32) -> Self;
}

impl PlainElement for f32 {
    const DTYPE: DType = DType::F32;
    fn to_f32(self) -> f32 {
        self
    }
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl PlainElement for bf16 {
    const DTYPE: DType = DType::Bf16;
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }
}

impl PlainElement for f16 {
    const DTYPE: DType = DType::F16;
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }
}

/// An owned buffer of one element type.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Single precision.
    F32(Vec<f32>),
    /// bfloat16.
    Bf16(Vec<bf16>),
    /// Half precision.
    F16(Vec<f16>),
}

impl Elements {
    /// Rounds `values` to `dtype`; f32 moves without a copy.
    pub fn from_f32(values: Vec<f32>, dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32(values),
            DType::Bf16 => Self::Bf16(values.into_iter().map(bf16::from_f32).collect()),
            DType::F16 => Self::F16(values.into_iter().map(f16::from_f32).collect()),
        }
    }

    /// The buffer, borrowed.
    pub fn view(&self) -> ElementsView<'_> {
        match self {
            Self::F32(x) => ElementsView::F32(x),
            Self::Bf16(x) => ElementsView::Bf16(x),
            Self::F16(x) => ElementsView::F16(x),
        }
    }

    /// The buffer's bytes in memory order.
    pub fn bytes(&self) -> &[u8] {
        self.view().bytes()
    }
}

/// A borrowed buffer of one element type.
#[derive(Clone, Copy, Debug)]
pub enum ElementsView<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// bfloat16.
    Bf16(&'a [bf16]),
    /// Half precision.
    F16(&'a [f16]),
}

impl From<Vec<f32>> for Elements {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values)
    }
}

impl From<Vec<bf16>> for Elements {
    fn from(values: Vec<bf16>) -> Self {
        Self::Bf16(values)
    }
}

impl From<Vec<f16>> for Elements {
    fn from(values: Vec<f16>) -> Self {
        Self::F16(values)
    }
}

impl<'a> ElementsView<'a> {
    /// The elements that these bytes are, in memory order; `None` when they are not aligned for the
    /// type, or no whole number of elements.
    pub fn of_bytes(bytes: &'a [u8], dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 => bytemuck::try_cast_slice(bytes).ok().map(Self::F32),
            DType::Bf16 => bytemuck::try_cast_slice(bytes).ok().map(Self::Bf16),
            DType::F16 => bytemuck::try_cast_slice(bytes).ok().map(Self::F16),
        }
    }

    /// The bytes in memory order.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::F32(x) => bytemuck::cast_slice(x),
            Self::Bf16(x) => bytemuck::cast_slice(x),
            Self::F16(x) => bytemuck::cast_slice(x),
        }
    }

    /// The elements of `range`; none when it reaches beyond the end.
    pub fn slice(self, range: Range<usize>) -> Self {
        fn part<T>(x: &[T], range: Range<usize>) -> &[T] {
            x.get(range).unwrap_or_default()
        }
        match self {
            Self::F32(x) => Self::F32(part(x, range)),
            Self::Bf16(x) => Self::Bf16(part(x, range)),
            Self::F16(x) => Self::F16(part(x, range)),
        }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::Bf16(x) => x.len(),
            Self::F16(x) => x.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::Bf16(_) => DType::Bf16,
            Self::F16(_) => DType::F16,
        }
    }

    /// Element `index` in f32.
    pub fn get(&self, index: usize) -> f32 {
        match self {
            Self::F32(x) => x[index],
            Self::Bf16(x) => x[index].to_f32(),
            Self::F16(x) => x[index].to_f32(),
        }
    }
}
