//! The loops around the work units: chunks of keys, batches of key heads, tiles of query rows.
//!
//! A chunk is packed once and then read by all query heads of its group and all query tiles. Chunks
//! and tiles are cut by slots and heads alone, so every sum has one order, whatever the threads; the
//! packed memory is bounded, whatever the block's length.

use crate::decode;
use crate::geometry::{Span, seen_tiles};
use crate::isa::Shaped;
use crate::pack::{Layout, Pack, TileNote};
use crate::state::{Cells, StateMut};
use crate::unit::Unit;
use crate::workspace::{KEY_TILE, QUERY_TILE};
use crate::{Kernel, KernelError, Problem, Work};
use ringattn_core::Progress;
use std::cmp::Reverse;
use std::ops::Range;

/// Floats of a packed chunk of one key head: 1 MiB, which the second cache of most processors holds
/// beside the query tiles; 2048 keys for d = 64.
const CHUNK_FLOATS: usize = 1 << 18;

/// Units that each thread should find in a batch of heads: with so many, a thread that waits for
/// another's last unit waits for about 1 % of its own work.
const UNITS_PER_THREAD: usize = 48;

/// Folds validated work into `state`.
pub(crate) fn absorb(
    kernel: &Kernel,
    problem: &Problem,
    work: &Work<'_>,
    state: StateMut<'_>,
    progress: &dyn Progress,
) -> Result<(), KernelError> {
    if decode::suits(problem.shape, work.queries.len()) {
        return decode::absorb(kernel, problem, work, state, progress);
    }
    let layout = Layout { shape: problem.shape, micro: kernel.micro };
    let seen = seen_tiles(work.intervals, work.block.rows(), KEY_TILE);
    let call = Call { kernel, problem, work, layout, cells: Cells::new(state), progress };
    let chunk_tiles = (CHUNK_FLOATS / layout.tile_len()).max(1);
    let batch = call.heads_per_batch();
    for first in (0..problem.shape.key_heads()).step_by(batch) {
        let heads = first..problem.shape.key_heads().min(first + batch);
        for (chunk, seen) in seen.chunks(chunk_tiles).enumerate() {
            let tiles: Vec<usize> = (0..seen.len())
                .filter(|&tile| seen[tile])
                .map(|tile| chunk * chunk_tiles + tile)
                .collect();
            if !tiles.is_empty() {
                call.chunk(heads.clone(), &tiles)?;
            }
        }
    }
    Ok(())
}

/// What all chunks of one call share.
struct Call<'a> {
    kernel: &'a Kernel,
    problem: &'a Problem,
    work: &'a Work<'a>,
    layout: Layout,
    cells: Cells<'a>,
    progress: &'a dyn Progress,
}

impl Call<'_> {
    /// Key heads packed together: one, so that it stays in cache, unless its query tiles are too
    /// few for the threads to end at about the same time. Heads never meet in a sum, so this changes
    /// no result.
    fn heads_per_batch(&self) -> usize {
        let units = self.layout.shape.group() * self.work.queries.len().div_ceil(QUERY_TILE);
        match self.kernel.threads() {
            1 => 1,
            threads => (UNITS_PER_THREAD * threads).div_ceil(units.max(1)).min(4 * threads),
        }
    }

    /// First rows of the query tiles that see any of the slots, those with the most pairs first: the
    /// last units of a batch are then small, and no thread waits long for another.
    fn query_tiles(&self, slots: Range<usize>) -> Vec<usize> {
        let pairs = |row: usize| -> usize {
            let rows = &self.work.intervals[row..self.work.queries.len().min(row + QUERY_TILE)];
            rows.iter().map(|seen| Span::cut(*seen, &slots).len()).sum()
        };
        let mut tiles: Vec<(usize, usize)> = (0..self.work.queries.len())
            .step_by(QUERY_TILE)
            .map(|row| (pairs(row), row))
            .filter(|&(pairs, _)| pairs > 0)
            .collect();
        tiles.sort_by_key(|&(pairs, _)| Reverse(pairs));
        tiles.into_iter().map(|(_, row)| row).collect()
    }

    /// Packs the chunk `tiles` for `heads` and folds it into all their query rows.
    fn chunk(&self, heads: Range<usize>, tiles: &[usize]) -> Result<(), KernelError> {
        let tile_len = self.layout.tile_len();
        let mut notes: Vec<TileNote> = heads
            .clone()
            .flat_map(|head| tiles.iter().map(move |&tile| (head, tile * KEY_TILE)))
            .map(|(head, start)| {
                let end = self.work.block.rows().min(start + KEY_TILE);
                TileNote { head, slots: start..end, wild: Vec::new() }
            })
            .collect();
        let len = tile_len.saturating_mul(notes.len());
        self.kernel.shelf.with_packed(len, |packed| {
            let jobs = notes.iter_mut().zip(packed.chunks_exact_mut(tile_len)).collect();
            self.kernel.each(jobs, |(note, out)| {
                let (keys, values) = (self.work.block.keys, self.work.block.values);
                self.kernel.run(Pack { layout: self.layout, keys, values, note, out })
            })?;
            self.progress.advance()?;
            let group = self.layout.shape.group();
            let slots = notes[0].slots.start..notes[tiles.len() - 1].slots.end;
            let rows = self.query_tiles(slots);
            let units = (heads.start * group..heads.end * group)
                .flat_map(|head| rows.iter().map(move |&row| (head, row)))
                .collect();
            self.kernel.each(units, |(head, row)| {
                let at = (head / group - heads.start) * tiles.len();
                let own = at..at + tiles.len();
                let packed = &packed[own.start * tile_len..own.end * tile_len];
                self.unit((head, row), &notes[own], packed)
            })
        })
    }

    /// Runs one unit: the tile of query rows from `row` on, in one query head.
    fn unit(
        &self,
        (head, row): (usize, usize),
        notes: &[TileNote],
        packed: &[f32],
    ) -> Result<(), KernelError> {
        let rows = row..self.work.queries.len().min(row + QUERY_TILE);
        self.kernel.shelf.with_scratch(|scratch| {
            self.kernel.run(Shaped(Unit {
                problem: self.problem,
                work: self.work,
                layout: self.layout,
                packed,
                notes,
                head,
                rows,
                cells: &self.cells,
                scratch,
            }))
        })??;
        Ok(self.progress.advance()?)
    }
}
