//! Working memory that outlives a call, so that the steady state touches no fresh page.
//!
//! Buffers grow to what a call needs and go back to a shelf. Knows the tiles' sizes, nothing of what
//! is computed in them.

use crate::KernelError;
use crate::decode;
use crate::geometry::Span;
use crate::isa::ROWS_OF_32 as MAX_ROWS;
use crate::lines::Lines;
use crate::problem::MAX_HEAD_DIM;
use std::sync::{Mutex, PoisonError};

/// Query rows of a tile: a multiple of every micro-kernel's rows.
pub const QUERY_TILE: usize = 96;
/// Keys of a tile: a multiple of every panel.
pub const KEY_TILE: usize = 512;
/// Floats from one row of a Q, S or Y tile to the next. One constant for all three, so that rows are
/// reached by fixed offsets; the extra line keeps rows off a 2 KiB stride, which would put them all
/// into a few cache sets.
pub(crate) const STRIDE: usize = if KEY_TILE > MAX_HEAD_DIM { KEY_TILE } else { MAX_HEAD_DIM } + 16;
/// Floats of the widest vector.
pub(crate) const MAX_LANES: usize = 16;

/// Floats that a workspace holds.
pub(crate) type Floats = Lines<f32>;

/// The tiles of one work unit.
pub(crate) struct Scratch {
    /// Queries times `scale * log2 e`, `[QUERY_TILE, STRIDE]`; zeros behind the last row.
    pub(crate) q: Floats,
    /// Logits, then weights, of one row group, `[MAX_ROWS, STRIDE]`.
    pub(crate) s: Floats,
    /// Weighted sums of values, `[QUERY_TILE, STRIDE]`.
    pub(crate) y: Floats,
    /// Sums of weights by lane, `[QUERY_TILE, MAX_LANES]`.
    pub(crate) z: Floats,
    /// Running maxima.
    pub(crate) m: [f32; QUERY_TILE],
    /// Which rows' queries the vector path may touch.
    pub(crate) tame: [bool; QUERY_TILE],
    /// What each row sees of the present key tile, on the vector path.
    pub(crate) spans: [Span; QUERY_TILE],
    /// Rows that take the careful path in the present key tile.
    pub(crate) careful: Vec<(usize, Span)>,
}

impl Scratch {
    fn new() -> Result<Self, KernelError> {
        let floats = Floats::zeroed;
        Ok(Self {
            q: floats(QUERY_TILE * STRIDE)?,
            s: floats(MAX_ROWS * STRIDE)?,
            y: floats(QUERY_TILE * STRIDE)?,
            z: floats(QUERY_TILE * MAX_LANES)?,
            m: [f32::NEG_INFINITY; QUERY_TILE],
            tame: [true; QUERY_TILE],
            spans: [Span::EMPTY; QUERY_TILE],
            careful: Vec::with_capacity(QUERY_TILE),
        })
    }
}

/// Workspaces that wait for their next use.
#[derive(Default)]
pub(crate) struct Shelf {
    scratch: Mutex<Vec<Scratch>>,
    decode: Mutex<Vec<decode::Scratch>>,
    packed: Mutex<Vec<Floats>>,
}

impl Shelf {
    /// Runs `body` with a scratch of its own.
    pub(crate) fn with_scratch<T>(
        &self,
        body: impl FnOnce(&mut Scratch) -> T,
    ) -> Result<T, KernelError> {
        let mut scratch = match take(&self.scratch) {
            Some(scratch) => scratch,
            None => Scratch::new()?,
        };
        let result = body(&mut scratch);
        put(&self.scratch, scratch);
        Ok(result)
    }

    /// Runs `body` with a scratch for an item of the decode shape.
    pub(crate) fn with_decode<T>(&self, body: impl FnOnce(&mut decode::Scratch) -> T) -> T {
        let mut scratch = take(&self.decode).unwrap_or_default();
        let result = body(&mut scratch);
        put(&self.decode, scratch);
        result
    }

    /// Runs `body` with a buffer of `len` floats of its own, whose content is arbitrary.
    pub(crate) fn with_packed<T>(
        &self,
        len: usize,
        body: impl FnOnce(&mut Floats) -> Result<T, KernelError>,
    ) -> Result<T, KernelError> {
        let mut floats = take(&self.packed).unwrap_or_default();
        floats.resize(len)?;
        let result = body(&mut floats);
        put(&self.packed, floats);
        result
    }
}

// A panic elsewhere cannot leave a shelf half changed: each critical section is one push or pop.
fn take<T>(shelf: &Mutex<Vec<T>>) -> Option<T> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn put<T>(shelf: &Mutex<Vec<T>>, item: T) {
    shelf.lock().unwrap_or_else(PoisonError::into_inner).push(item);
}
