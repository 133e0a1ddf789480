//! The nouns of exact attention over a sharded sequence, and nothing that acts on them.
//!
//! Positions and slots, intervals, masks, shapes, element types, the online-softmax state
//! `(m, z, y)` with its merge, the trait of what travels between ranks, and the trait by which long
//! work reports that it advances. No input or output, no thread, no rank's transport, no `unsafe`.

#![forbid(unsafe_code)]

mod elements;
mod index;
mod logarithm;
mod mask;
mod memory;
mod message;
mod partial;
mod partial_message;
mod progress;
mod shape;
mod source;

pub use elements::{DType, Elements, ElementsView, Growth, PlainElement};
pub use half::{bf16, f16};
pub use index::{Index, Interval, Position, Rank, Slot};
pub use logarithm::{Log2, NaturalLog};
pub use mask::{Documents, Mask, MaskError, QueryIntervals, Window};
pub use memory::{OutOfMemory, try_filled, try_reserved};
pub use message::{Message, MessageError, Payload};
pub use partial::{Attention, MergeError, Partial, merge_row, normalize};
pub use progress::{Interrupted, Progress, Unwatched};
pub use shape::{AttentionShape, ShapeError};
pub use source::{Part, Source};
