//! The K,V cache of one rank: the keys and values of its tokens in every layer, and the layout that
//! says which tokens these are.
//!
//! Rows are `[slots, Hk, d]` per layer, row-major, in the cache's element type. A shard's rows are
//! contiguous, because the kernel reads one tensor: room for announced tokens is reserved beforehand
//! (address space, not memory), so that nothing is copied when they come; beyond that, buffers double.
//! What is placed never moves to another rank or slot. Who holds a position is asked of
//! [`KvCache::layout`] and nowhere else. The front is forgotten where no later query sees it, the end is
//! taken back where drafts were rejected. Knows no model.

mod error;

pub use error::CacheError;

use super::{CpuBlock, SharedRows};
use crate::{NonFinite, Tensor};
use ringattn_core::{
    AttentionShape, DType, Elements, Growth, Interval, OutOfMemory, Position, Rank, Slot, bf16, f16,
};
use ringattn_kernel::{Arrangement, on_large_pages};
use ringattn_plan::{BlockOrder, Layout, Segment};
use std::ops::Range;
use std::sync::Arc;

/// What a cache holds of each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Heads and head dimension.
    pub attention: AttentionShape,
    /// Layers.
    pub layers: usize,
    /// The type in which keys and values are kept, and sent.
    pub dtype: DType,
}

/// Keys and values of one rank's shard in all layers.
#[derive(Debug)]
pub struct KvCache {
    shape: CacheShape,
    rank: Rank,
    layout: Layout,
    layers: Vec<LayerRows>,
    /// Slots before this one have been forgotten, in all layers.
    kept_from: Slot,
    /// Positions before this one may have been forgotten, on any rank: the highest that
    /// [`KvCache::forget_before`] was told. The same on all ranks, so that all refuse alike.
    forgotten: Position,
    /// Where each slot lies, once the first were forgotten.
    listed: Option<Arc<Vec<usize>>>,
}

/// `[slots, Hk, d]` each. Shared with the blocks that are under way.
#[derive(Debug)]
struct LayerRows {
    keys: Arc<Elements>,
    values: Arc<Elements>,
}

impl KvCache {
    /// An empty cache of `rank`, one of `world_size`.
    ///
    /// # Errors
    /// When there is no rank.
    pub fn new(shape: CacheShape, rank: Rank, world_size: u32) -> Result<Self, CacheError> {
        let empty = || Arc::new(Elements::empty(shape.dtype));
        let layer = |_| LayerRows { keys: empty(), values: empty() };
        Ok(Self {
            shape,
            rank,
            layout: Layout::empty(world_size)?,
            layers: (0..shape.layers).map(layer).collect(),
            kept_from: Slot(0),
            forgotten: Position(0),
            listed: None,
        })
    }

    /// What is held of each token.
    pub fn shape(&self) -> CacheShape {
        self.shape
    }

    /// Whose shard this is.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Which rank holds which position.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of keys and values that are held, in all layers.
    pub fn resident_bytes(&self) -> u64 {
        let bytes = |layer: &LayerRows| layer.keys.bytes().len() + layer.values.bytes().len();
        self.layers.iter().map(|layer| bytes(layer) as u64).sum()
    }

    /// Places the tokens of a segment behind those already placed. Each layer must then be given their
    /// rows.
    ///
    /// # Errors
    /// When the segment does not begin where the sequence ends, or its numbers cannot be.
    pub fn place(&mut self, segment: Segment) -> Result<(), CacheError> {
        Ok(self.layout.append(segment)?)
    }

    /// Places generated tokens: in blocks of `block`, from the least loaded rank on. They continue the
    /// last segment when it is one of generated tokens with that block.
    ///
    /// # Errors
    /// When the block is 0 or positions exceed 64 bits.
    pub fn place_generated(&mut self, tokens: u64, block: u64) -> Result<(), CacheError> {
        if !self.is_open(block) {
            let end = Position(self.layout.len());
            let (positions, first_rank) = (Interval::new(end, end), self.layout.least_loaded());
            let order = BlockOrder::Cyclic;
            self.layout.append_open(Segment { positions, block, order, first_rank })?;
        }
        Ok(self.layout.grow(tokens)?)
    }

    /// Whether the last segment was dealt out in such blocks and can go on.
    fn is_open(&self, block: u64) -> bool {
        let last = self.layout.segments().last();
        // A segment that was placed whole has its block cut to its length; to go on with it in blocks of
        // the same size moves nothing, whoever placed it.
        last.is_some_and(|last| last.block == block && last.order == BlockOrder::Cyclic)
    }

    /// Makes room for `tokens` more tokens of the sequence, of which this rank gets about its share.
    ///
    /// # Errors
    /// When the memory cannot be had.
    pub fn reserve(&mut self, tokens: u64) -> Result<(), CacheError> {
        let share = tokens.div_ceil(u64::from(self.layout.world_size()));
        let elements = usize::try_from(share).unwrap_or(usize::MAX).saturating_mul(self.width());
        for layer in &mut self.layers {
            for rows in [&mut layer.keys, &mut layer.values] {
                let rows = exclusive(rows)?;
                rows.try_reserve(elements, Growth::Exact)?;
                on_large_pages(rows);
            }
        }
        Ok(())
    }

    /// Gives a layer the rows of the tokens that were placed last, this rank's, in the order of slots:
    /// `keys` and `values` `[rows, Hk, d]`.
    ///
    /// # Errors
    /// When the lengths are not those of the tokens, when a number is not finite in the cache's type
    /// (unless that is allowed), or memory is lacking.
    pub fn append(
        &mut self,
        layer: usize,
        (keys, values): (&[f32], &[f32]),
        non_finite: NonFinite,
    ) -> Result<(), CacheError> {
        let (width, dtype) = (self.width(), self.shape.dtype);
        let held = self.layer(layer)?.keys.view().len();
        let expected = self.stored_slots() * width - held.min(self.stored_slots() * width);
        for (tensor, rows) in [(Tensor::Key, keys), (Tensor::Value, values)] {
            if rows.len() != expected {
                let (rank, actual) = (self.rank, rows.len());
                return Err(CacheError::Elements { rank, layer, tensor, expected, actual });
            }
            let bad = rows.iter().position(|&value| !is_finite(value, dtype));
            if let Some(index) = bad.filter(|_| non_finite != NonFinite::Allow) {
                let slot = self.kept_from.0 + ((held + index) / width) as u64;
                let position = self.layout.position(self.rank, Slot(slot)).unwrap_or_default();
                return Err(CacheError::NonFinite {
                    rank: self.rank,
                    layer,
                    tensor,
                    dtype,
                    position,
                });
            }
        }
        let rows = &mut self.layers[layer];
        exclusive(&mut rows.keys)?.try_extend(keys)?;
        exclusive(&mut rows.values)?.try_extend(values)?;
        Ok(())
    }

    /// All rows of a layer, as a block that the engine takes: a handle, not a copy.
    ///
    /// # Errors
    /// When the layer has not got the rows of all its tokens.
    pub fn block(&mut self, layer: usize) -> Result<CpuBlock, CacheError> {
        self.check(layer)?;
        self.list();
        let (shape, stored) = (self.shape.attention, self.stored_slots());
        let arrangement = Arrangement::token_major(shape.key_heads(), stored, shape.head_dim());
        let rows = |elements: &Arc<Elements>| match &self.listed {
            None => Some(SharedRows::shared(Arc::clone(elements), arrangement)),
            Some(tokens) => {
                let source = Arc::clone(elements);
                SharedRows::listed(source, self.shape.dtype, arrangement, Arc::clone(tokens))
            }
        };
        let held = &self.layers[layer];
        match (rows(&held.keys), rows(&held.values)) {
            (Some(keys), Some(values)) => Ok(CpuBlock::new(keys, values)),
            // A vector of its own type is aligned for it.
            _ => Err(CacheError::Layer { layer, layers: self.layers.len() }),
        }
    }

    /// Keys and values of a layer, `[slots, Hk, d]`, from the first slot that is kept.
    ///
    /// # Errors
    /// When there is no such layer.
    pub fn rows(&self, layer: usize) -> Result<(&Elements, &Elements), CacheError> {
        let layer = self.layer(layer)?;
        Ok((&layer.keys, &layer.values))
    }

    /// The first slot that is kept: 0 unless tokens were forgotten.
    pub fn kept_from(&self) -> Slot {
        self.kept_from
    }

    /// Forgets the rows of tokens before `first`, which no later query may see. Their slots stay
    /// counted. Rows are moved up only when more are forgotten than kept, so each is moved about once.
    /// Every rank must be told the same.
    ///
    /// # Errors
    /// When a layer has not got the rows of all its tokens, or memory is lacking.
    pub fn forget_before(&mut self, first: Position) -> Result<(), CacheError> {
        self.forgotten = self.forgotten.max(first.min(Position(self.layout.len())));
        let all = self.layout.count(self.rank);
        // One row before `first` stays, for the list of slots to lead to, even when all others are taken
        // back by `truncate`.
        let gone = self.layout.count_below(self.rank, first).saturating_sub(1);
        let (fresh, kept) = (gone.saturating_sub(self.kept_from.0), all - gone);
        if fresh <= kept {
            return Ok(());
        }
        let elements = fresh as usize * self.width();
        for layer in 0..self.layers.len() {
            self.check(layer)?;
            exclusive(&mut self.layers[layer].keys)?.drop_first(elements);
            exclusive(&mut self.layers[layer].values)?.drop_first(elements);
        }
        self.kept_from = Slot(gone);
        self.listed = None;
        Ok(())
    }

    /// Takes back the tokens from position `len` on, as when drafts are rejected: their slots are free
    /// again, in every layer, and nothing that stays moves. Nothing changes when there are none. Every
    /// rank must do the same. A layer that had not got all its rows yet keeps those it has of the tokens
    /// that stay, so that an extension that failed can be taken back too.
    ///
    /// `first` is the first position that a query at `len` sees: 0 without a window, `len + 1 - W` with one
    /// of `W` keys.
    ///
    /// # Errors
    /// When something from `first` on has been forgotten, or memory is lacking. Whether it has does not
    /// depend on the rank. Nothing is changed in the first case.
    pub fn truncate(&mut self, len: u64, first: Position) -> Result<(), CacheError> {
        if len >= self.layout.len() {
            return Ok(());
        }
        let needed = first.min(Position(len));
        if needed < self.forgotten {
            let forgotten = self.forgotten;
            return Err(CacheError::Forgotten { len, needed, forgotten });
        }
        let slots = self.layout.count_below(self.rank, Position(len)) - self.kept_from.0;
        let elements = slots as usize * self.width();
        for layer in &mut self.layers {
            for rows in [&mut layer.keys, &mut layer.values] {
                if rows.view().len() > elements {
                    exclusive(rows)?.keep_first(elements);
                }
            }
        }
        // Last, so that it can be tried again when memory was lacking for a copy.
        self.layout.truncate(len);
        self.listed = None;
        Ok(())
    }

    /// Takes over rows as they were stored, in the order of slots, behind those already there.
    ///
    /// # Errors
    /// When there is no such layer, or memory is lacking.
    pub fn restore(
        &mut self,
        layer: usize,
        tensor: Tensor,
        bytes: &[u8],
    ) -> Result<(), CacheError> {
        self.layer(layer)?;
        let rows = &mut self.layers[layer];
        let elements = if tensor == Tensor::Key { &mut rows.keys } else { &mut rows.values };
        Ok(exclusive(elements)?.try_extend_bytes(bytes)?)
    }

    /// Elements of a token's keys.
    fn width(&self) -> usize {
        self.shape.attention.key_width()
    }

    /// Slots whose rows are kept.
    fn stored_slots(&self) -> usize {
        (self.layout.count(self.rank) - self.kept_from.0) as usize
    }

    fn layer(&self, layer: usize) -> Result<&LayerRows, CacheError> {
        let layers = self.layers.len();
        self.layers.get(layer).ok_or(CacheError::Layer { layer, layers })
    }

    fn check(&self, layer: usize) -> Result<(), CacheError> {
        let expected = self.stored_slots() * self.width();
        let rows = self.layer(layer)?;
        for (tensor, elements) in [(Tensor::Key, &rows.keys), (Tensor::Value, &rows.values)] {
            let actual = elements.view().len();
            if actual != expected {
                return Err(CacheError::Elements {
                    rank: self.rank,
                    layer,
                    tensor,
                    expected,
                    actual,
                });
            }
        }
        Ok(())
    }

    /// Brings the list of slots up to date; slots that are forgotten lead to the first row, which
    /// nobody reads through them.
    fn list(&mut self) {
        let slots = self.layout.count(self.rank) as usize;
        let gone = self.kept_from.index();
        let current = self.listed.as_ref().is_some_and(|listed| listed.len() == slots);
        if gone > 0 && !current {
            let place = |slot: usize| slot.saturating_sub(gone);
            self.listed = Some(Arc::new(Range { start: 0, end: slots }.map(place).collect()));
        }
    }
}

/// The buffer to write to; a copy of it when another rank still reads the block that was made of it.
fn exclusive(elements: &mut Arc<Elements>) -> Result<&mut Elements, OutOfMemory> {
    if Arc::get_mut(elements).is_none() {
        let mut copy = Elements::empty(elements.view().dtype());
        copy.try_extend_bytes(elements.bytes())?;
        *elements = Arc::new(copy);
    }
    // The handle is the only one now.
    Ok(Arc::make_mut(elements))
}

fn is_finite(value: f32, dtype: DType) -> bool {
    match dtype {
        DType::F32 => value.is_finite(),
        DType::Bf16 => bf16::from_f32(value).is_finite(),
        DType::F16 => f16::from_f32(value).is_finite(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
