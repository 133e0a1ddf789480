//! The loops around the work units: chunks of keys, batches of key heads, tiles of query rows.
//!
//! A chunk is packed once and then read by all query heads of its group and all query tiles. Chunks
//! and tiles are cut by slots and heads alone, so every sum has one order, whatever the threads; the
//! packed memory is bounded, whatever the block's length.

use crate::decode;
use crate::isa::Shaped;
use crate::pack::{Layout, Pack, TileNote};
use crate::state::{Cells, StateMut};
use crate::tiles::{chunks, query_tiles, slots_of};
use crate::unit::Unit;
use crate::workspace::QUERY_TILE;
use crate::{Kernel, KernelError, Problem, Work};
use ringattn_core::Progress;
use std::ops::Range;

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
    let chunks = chunks(layout, work.block.rows(), work.intervals);
    let call = Call { kernel, problem, work, layout, cells: Cells::new(state), progress };
    let batch = call.heads_per_batch();
    for first in (0..problem.shape.key_heads()).step_by(batch) {
        let heads = first..problem.shape.key_heads().min(first + batch);
        for tiles in &chunks {
            call.chunk(heads.clone(), tiles)?;
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

    /// Packs the chunk `tiles` for `heads` and folds it into all their query rows.
    fn chunk(&self, heads: Range<usize>, tiles: &[usize]) -> Result<(), KernelError> {
        let (tile_len, keys) = (self.layout.tile_len(), self.work.block.rows());
        let mut notes: Vec<TileNote> = heads
            .clone()
            .flat_map(|head| tiles.iter().map(move |&tile| (head, slots_of(&[tile], keys))))
            .map(|(head, slots)| TileNote { head, slots, wild: Vec::new() })
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
            let rows = query_tiles(self.work.intervals, &slots_of(tiles, keys));
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
