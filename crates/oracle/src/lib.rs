//! Test support: naive dense attention in f64, input generators, and the tolerance of a comparison.
//!
//! Deliberately simple and unlike the code under test: all logits are materialised, the softmax is
//! the textbook one. Only ever a dev-dependency.

#![forbid(unsafe_code)]

mod attention;
mod random;
mod tolerance;

pub use attention::{Dense, attention};
pub use random::Random;
pub use tolerance::Tolerance;
