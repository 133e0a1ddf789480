//! The forward pass of one rank: its tokens stay on it through all layers.
//!
//! Everything but attention is local to a token and runs in blocks of rows, so that no activation of
//! size tokens x feed-forward or tokens x vocabulary exists. Few rows (decoding) are not cut; threads share
//! out the weights instead. Where the rows are cut depends on their
//! number alone: threads change no bit.

mod dense;
mod head;
mod layer;
mod narrow;
mod norm;
mod rotary;
mod workers;

pub(crate) use head::{Head, Target, logprob};
pub use layer::DensePassError;
pub(crate) use layer::LayerPass;
pub(crate) use rotary::RotaryTable;
pub(crate) use workers::Workers;
