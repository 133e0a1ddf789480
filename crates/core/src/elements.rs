//! Element types and owned or borrowed buffers of one of them.

use crate::OutOfMemory;
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

/// How much room a buffer makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// What is asked for.
    Exact,
    /// At least that, so that many small additions copy each element a bounded number of times.
    Amortised,
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

    /// A buffer of no elements.
    pub fn empty(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32(Vec::new()),
            DType::Bf16 => Self::Bf16(Vec::new()),
            DType::F16 => Self::F16(Vec::new()),
        }
    }

    /// Makes room for `extra` more elements, exactly or as vectors grow.
    ///
    /// # Errors
    /// When the memory cannot be had.
    pub fn try_reserve(&mut self, extra: usize, growth: Growth) -> Result<(), OutOfMemory> {
        fn reserve<T>(
            buffer: &mut Vec<T>,
            extra: usize,
            growth: Growth,
        ) -> Result<(), OutOfMemory> {
            let bytes = (buffer.len() as u64 + extra as u64).saturating_mul(size_of::<T>() as u64);
            match growth {
                Growth::Exact => buffer.try_reserve_exact(extra),
                Growth::Amortised => buffer.try_reserve(extra),
            }
            .map_err(|_| OutOfMemory { bytes })
        }
        match self {
            Self::F32(x) => reserve(x, extra, growth),
            Self::Bf16(x) => reserve(x, extra, growth),
            Self::F16(x) => reserve(x, extra, growth),
        }
    }

    /// Rounds `values` and puts them behind the last element.
    ///
    /// # Errors
    /// When the memory cannot be had; nothing is changed then.
    pub fn try_extend(&mut self, values: &[f32]) -> Result<(), OutOfMemory> {
        self.try_reserve(values.len(), Growth::Amortised)?;
        match self {
            Self::F32(x) => x.extend_from_slice(values),
            Self::Bf16(x) => x.extend(values.iter().map(|&value| bf16::from_f32(value))),
            Self::F16(x) => x.extend(values.iter().map(|&value| f16::from_f32(value))),
        }
        Ok(())
    }

    /// Puts elements of the same type behind the last one; `bytes` in the memory order of the machine.
    ///
    /// # Errors
    /// When the memory cannot be had; nothing is changed then.
    ///
    /// # Panics
    /// When the bytes are no whole number of elements.
    pub fn try_extend_bytes(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory> {
        self.try_reserve(bytes.len() / self.view().dtype().size() as usize, Growth::Amortised)?;
        match self {
            Self::F32(x) => x.extend(bytemuck::pod_collect_to_vec::<u8, f32>(bytes)),
            Self::Bf16(x) => x.extend(bytemuck::pod_collect_to_vec::<u8, bf16>(bytes)),
            Self::F16(x) => x.extend(bytemuck::pod_collect_to_vec::<u8, f16>(bytes)),
        }
        Ok(())
    }

    /// Forgets the first `count` elements, or all.
    pub fn drop_first(&mut self, count: usize) {
        let count = count.min(self.view().len());
        match self {
            Self::F32(x) => drop(x.drain(..count)),
            Self::Bf16(x) => drop(x.drain(..count)),
            Self::F16(x) => drop(x.drain(..count)),
        }
    }

    /// Forgets all elements behind the first `count`; the room they took stays reserved.
    pub fn keep_first(&mut self, count: usize) {
        match self {
            Self::F32(x) => x.truncate(count),
            Self::Bf16(x) => x.truncate(count),
            Self::F16(x) => x.truncate(count),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_grow_and_lose_their_ends() {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let mut buffer = Elements::empty(dtype);
            buffer.try_reserve(5, Growth::Exact).unwrap();
            let place = buffer.bytes().as_ptr();
            buffer.try_extend(&[1.0, -2.5, 3.0]).unwrap();
            let more = Elements::from_f32(vec![0.5, 8.0], dtype);
            buffer.try_extend_bytes(more.bytes()).unwrap();
            assert_eq!(buffer.bytes().as_ptr(), place, "what was reserved is not moved");
            assert_eq!(buffer, Elements::from_f32(vec![1.0, -2.5, 3.0, 0.5, 8.0], dtype));
            buffer.drop_first(2);
            assert_eq!(buffer, Elements::from_f32(vec![3.0, 0.5, 8.0], dtype));
            buffer.keep_first(7);
            buffer.keep_first(2);
            assert_eq!(buffer, Elements::from_f32(vec![3.0, 0.5], dtype));
            buffer.drop_first(9);
            assert_eq!(buffer, Elements::empty(dtype));
            assert!(buffer.try_reserve(usize::MAX / 2, Growth::Exact).is_err());
        }
    }
}
