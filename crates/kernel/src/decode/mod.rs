//! The decode shape: a few query rows against a long block, bound by the speed of memory.
//!
//! Keys and values are read once, as they lie, by all queries of a key head's group together. The
//! slots are cut into splits, counted from the block's slot 0; each split of each key head gives a
//! state of its own, and these are merged in the order of slots, so that threads change no bit:
//! `m' = max(ma, mb)`, `z' = za 2^(ma - m') + zb 2^(mb - m')`, the same for `y`.

mod fold;
mod lanes;
mod pass;
mod rows;
mod scratch;
pub(crate) mod stored;

pub(crate) use scratch::Scratch;

use crate::geometry::seen_tiles;
use crate::pack::widen;
use crate::state::{Cells, StateMut};
use crate::{Kernel, KernelError, Problem, Work};
use fold::Item;
use pulp::{Simd, WithSimd};
use ringattn_core::{AttentionShape, Interval, Log2, Progress, Slot, merge_row};

/// Keys of a split at least, whole chunks: their states are small beside them (one part in 512 of f32 keys
/// and values per query), and a few hundred keys already are work for several threads.
const SPLIT: usize = 256;
/// Keys of a split at most. Where one begins, keys come without values beside them and the processor has to
/// find the streams again; of so many that is little.
const LONGEST: usize = 2048;
/// Splits that a shorter block has.
const SPLITS: usize = 16;

/// Keys of a split of a block, from nothing but the block's length.
fn split_len(keys: usize) -> usize {
    keys.div_ceil(SPLITS).next_multiple_of(SPLIT).clamp(SPLIT, LONGEST)
}

/// Floats of states that the caller merges alone: less work than calling the other threads.
const MERGED_ALONE: usize = 1 << 16;

/// The most query rows that come here.
const ROWS: usize = 8;
/// The most queries of one key head that come here: where there are more, the packed path is faster.
const QUERIES: usize = 64;

/// The most queries of one item: their rows stay in the second cache.
const TOGETHER: usize = 128;

/// Whether work of this size belongs here.
pub(crate) fn suits(shape: AttentionShape, rows: usize) -> bool {
    rows <= ROWS && rows * shape.group() <= QUERIES
}

/// Folds validated work into `state`.
pub(crate) fn absorb(
    kernel: &Kernel,
    problem: &Problem,
    work: &Work<'_>,
    state: StateMut<'_>,
    progress: &dyn Progress,
) -> Result<(), KernelError> {
    let call = Call { problem, work };
    let split_len = split_len(work.block.rows());
    let seen = seen_tiles(work.intervals, work.block.rows(), split_len);
    let splits: Vec<usize> = (0..seen.len()).filter(|&split| seen[split]).collect();
    let heads = problem.shape.key_heads();
    let len = call.queries() * call.state_len();
    if splits.is_empty() || len == 0 {
        return Ok(());
    }
    let all = len.saturating_mul(splits.len()).saturating_mul(heads);
    kernel.shelf.with_packed(all, |states| {
        // Heads lie beside each other in a token and come faster from memory together: one item takes
        // them all where the splits alone occupy the threads evenly, else as many as leaves each thread
        // some items. Heads never meet in a sum, so this changes no result.
        let even = splits.len().is_multiple_of(kernel.threads());
        let share = if even { heads } else { heads * splits.len() / (4 * kernel.threads()) };
        let together = share.min(TOGETHER / call.queries()).clamp(1, heads);
        let mut items = Vec::new();
        for (&split, states) in splits.iter().zip(states.chunks_exact_mut(heads * len)) {
            let slots = split * split_len..work.block.rows().min((split + 1) * split_len);
            for (index, out) in states.chunks_mut(together * len).enumerate() {
                let first = index * together;
                items.push((first..heads.min(first + together), slots.clone(), out));
            }
        }
        kernel.each(items, |(heads, slots, out)| {
            kernel.shelf.with_decode(|scratch| {
                kernel.run(Item { call: &call, heads, slots, out, scratch })
            })??;
            Ok(progress.advance()?)
        })?;
        let cells = Cells::new(state);
        let mut merges =
            (0..heads).flat_map(|head| (0..call.queries()).map(move |query| (head, query)));
        let merge = |(head, query)| {
            let first = head * len + query * call.state_len();
            let states = states[first..].chunks(heads * len).map(|part| &part[..call.state_len()]);
            kernel.run(Merge { call: &call, cells: &cells, at: (head, query), states })
        };
        if all <= MERGED_ALONE {
            return merges.try_for_each(merge);
        }
        kernel.each(merges.collect(), merge)
    })
}

/// What all items of one call share. Queries of a key head are counted through its group: all rows of
/// its first query head, all rows of its second, and so on.
struct Call<'a> {
    problem: &'a Problem,
    work: &'a Work<'a>,
}

impl Call<'_> {
    fn head_dim(&self) -> usize {
        self.problem.shape.head_dim()
    }

    /// Queries of one key head.
    fn queries(&self) -> usize {
        self.work.queries.len() * self.problem.shape.group()
    }

    /// Floats of a query's state in a split.
    fn state_len(&self) -> usize {
        self.head_dim() + 2
    }

    /// Query head and row of a key head's query.
    fn place(&self, key_head: usize, query: usize) -> (usize, usize) {
        let rows = self.work.queries.len();
        (key_head * self.problem.shape.group() + query / rows, query % rows)
    }

    /// The slots that a query sees, in any head.
    fn interval(&self, query: usize) -> Interval<Slot> {
        self.work.intervals[query % self.work.queries.len()]
    }

    /// Copies the elements of a query as f32.
    fn query(&self, key_head: usize, query: usize, to: &mut [f32]) {
        let ((head, row), queries) = (self.place(key_head, query), &self.work.queries);
        widen(queries.data, queries.start(head, row), to);
    }
}

/// Merges the states of a query, in order of slots, into its cell.
struct Merge<'a, I> {
    call: &'a Call<'a>,
    cells: &'a Cells<'a>,
    /// Key head and query.
    at: (usize, usize),
    states: I,
}

impl<'a, I: Iterator<Item = &'a [f32]>> WithSimd for Merge<'a, I> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (head, row) = self.call.place(self.at.0, self.at.1);
        // SAFETY: each head and row is one merge's, and the cell dies with it.
        let cell = unsafe { self.cells.cell(head, row) };
        for state in self.states {
            let own = (&mut *cell.m, &mut *cell.z, &mut *cell.y);
            merge_row(own, (Log2(state[0]), state[1], &state[2..]));
        }
    }
}
