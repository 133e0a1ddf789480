//! A page that shows a plan or a run: the ring turning, who holds what, who works when.
//!
//! [`Scene`] holds everything that is shown, computed from plans by the same code that runs them, and
//! [`page`] puts it into one HTML file that needs nothing else. The page's own code draws and moves an
//! index; it computes no schedule. Knows no file system and no network.

mod chart;
mod error;
mod headline;
mod html;
mod measured;
mod pace;
mod quantity;
mod reduction;
mod scene;
mod tiles;
mod trace;
mod walk;
mod work;

pub use error::ViewError;
pub use html::page;
pub use scene::Scene;

use std::ops::RangeInclusive;

/// Rings that the teaching mode shows.
pub const TEACHING_RANKS: RangeInclusive<u32> = 2..=MAX_TEACHING_RANKS;
/// The largest ring of the teaching mode.
pub const MAX_TEACHING_RANKS: u32 = 8;
/// The largest ring of a plan, report or trace that is drawn.
pub const MAX_RANKS: u32 = 32;
/// The longest sequence that is drawn: its pairs fit 64 bits.
pub const MAX_TOKENS: u64 = 1 << 31;
/// The largest file that is read.
pub const MAX_FILE_BYTES: u64 = 64 << 20;
