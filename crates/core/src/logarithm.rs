//! Logarithms that know their base, so that a base-2 log-sum-exp is never read as a natural one.

use std::f64::consts::LN_2;

/// A base-2 logarithm, the unit of the kernel's running maximum.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Log2(pub f32);

/// A natural logarithm, the unit of every `lse` that a user sees.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct NaturalLog(pub f32);

impl Log2 {
    /// The logarithm of zero.
    pub const NEG_INFINITY: Self = Self(f32::NEG_INFINITY);

    /// `log2(2^self * factor)`, in natural units and rounded once.
    pub fn times(self, factor: f32) -> NaturalLog {
        NaturalLog((f64::from(self.0) * LN_2 + f64::from(factor).ln()) as f32)
    }
}
