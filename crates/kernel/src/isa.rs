//! Instruction sets: which ones this processor has, and the only place that dispatches on them.
//!
//! Knows nothing of attention. The tile sizes that an instruction set prefers are here as well,
//! because the packed layout and the micro-kernels must agree on them.

use pulp::{Scalar, Simd, WithSimd};
use std::fmt;

/// An instruction set for which the kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// x86-64-v4: 32 registers of 16 lanes.
    Avx512,
    /// x86-64-v3 (AVX2 and FMA): 16 registers of 8 lanes.
    Avx2,
    /// aarch64: 32 registers of 4 lanes.
    Neon,
    /// No vector instructions; right everywhere, and slow.
    Scalar,
}

impl Isa {
    const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::Neon, Self::Scalar];

    /// The fastest that this processor has.
    pub fn detect() -> Self {
        Self::available().first().copied().unwrap_or(Self::Scalar)
    }

    /// All that this processor has, the fastest first; never empty.
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|isa| isa.run(Probe).is_some()).collect()
    }

    /// Runs `op` with this instruction set; `None` when the processor lacks it.
    pub(crate) fn run<Op: WithSimd>(self, op: Op) -> Option<Op::Output> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Some(Simd::vectorize(pulp::x86::V4::try_new()?, op)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Some(Simd::vectorize(pulp::x86::V3::try_new()?, op)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => Some(Simd::vectorize(pulp::aarch64::Neon::try_new()?, op)),
            Self::Scalar => Some(Simd::vectorize(Scalar::new(), op)),
            #[allow(unreachable_patterns, reason = "which sets are left depends on the target")]
            Self::Avx512 | Self::Avx2 | Self::Neon => None,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Neon => "neon",
            Self::Scalar => "scalar",
        })
    }
}

struct Probe;

impl WithSimd for Probe {
    type Output = ();
    fn with_simd<S: Simd>(self, _: S) {}
}

/// The shape of the micro-kernel: `rows x vectors` accumulators that stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MicroShape {
    /// Query rows of a micro-tile.
    pub(crate) rows: usize,
    /// Floats of one vector.
    pub(crate) lanes: usize,
    /// Vectors of a panel.
    pub(crate) vectors: usize,
}

/// Micro-tile rows where there are 32 registers: 24 accumulators, the row of B, one broadcast.
pub(crate) const ROWS_OF_32: usize = 12;
/// Micro-tile rows where there are 16 registers: 12 accumulators, the row of B, one broadcast.
pub(crate) const ROWS_OF_16: usize = 6;
/// Vectors of a panel.
pub(crate) const VECTORS: usize = 2;

impl MicroShape {
    /// The shape that this processor runs under `isa`; `None` when it lacks the set.
    pub(crate) fn of(isa: Isa) -> Option<Self> {
        isa.run(Shaped(Measure))
    }

    /// Keys of a packed panel.
    pub(crate) fn panel(self) -> usize {
        self.lanes * self.vectors
    }
}

/// Work that is written for any micro-kernel shape.
pub(crate) trait Micro {
    /// Its result.
    type Output;
    /// Does the work with micro-tiles of `MR` rows and `NV` vectors.
    fn with_shape<S: Simd, const MR: usize, const NV: usize>(self, simd: S) -> Self::Output;
}

/// Runs [`Micro`] work in the shape that fills the registers of an instruction set.
pub(crate) struct Shaped<T>(pub(crate) T);

impl<T: Micro> WithSimd for Shaped<T> {
    type Output = T::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> T::Output {
        if S::REGISTER_COUNT >= 32 {
            self.0.with_shape::<S, ROWS_OF_32, VECTORS>(simd)
        } else {
            self.0.with_shape::<S, ROWS_OF_16, VECTORS>(simd)
        }
    }
}

struct Measure;

impl Micro for Measure {
    type Output = MicroShape;
    fn with_shape<S: Simd, const MR: usize, const NV: usize>(self, _: S) -> MicroShape {
        MicroShape { rows: MR, lanes: S::F32_LANES, vectors: NV }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_is_always_there_and_last() {
        assert_eq!(Isa::available().last(), Some(&Isa::Scalar));
        assert_eq!(Isa::detect(), Isa::available()[0]);
    }

    #[test]
    fn foreign_sets_are_refused() {
        let foreign = if cfg!(target_arch = "aarch64") { Isa::Avx2 } else { Isa::Neon };
        assert!(!Isa::available().contains(&foreign));
    }
}
