//! The working memory of one item: a few rows, all within the second cache.

use super::rows::CHUNK;
use crate::KernelError;
use crate::geometry::Span;
use crate::workspace::{Floats, MAX_LANES};
use std::ops::Range;

/// Rows for up to so many queries as the last [`Scratch::fit`] asked for.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Floats of a row of `q`, `y`, `t` and `stage`: whole vector pairs.
    pub(super) row: usize,
    /// Queries times `scale * log2 e`, placed as the stored type asks, zeros behind `d`.
    pub(super) q: Floats,
    /// Weighted sums of values so far, placed likewise.
    pub(super) y: Floats,
    /// Those of the present chunk.
    pub(super) t: Floats,
    /// The chunk whose values are summed, and the one whose logits are formed meanwhile.
    pub(super) views: [View; 2],
    /// Sums of weights so far by lane, [`MAX_LANES`] a row.
    pub(super) z: Floats,
    /// Those of the present chunk.
    pub(super) fresh: Floats,
    /// Products of queries with the keys of a vector's lanes, whose own lanes are yet to be added.
    pub(super) products: Floats,
    /// Chunks of keys and of values that cannot be read as they lie.
    pub(super) stages: [Floats; 2],
    /// Running maxima.
    pub(super) m: Vec<f32>,
    /// Which queries the vector path may touch.
    pub(super) tame: Vec<bool>,
}

/// What the queries see of one chunk.
pub(super) struct View {
    /// The block's slots in it; none before the first.
    pub(super) slots: Range<usize>,
    /// What all queries together see on the vector path.
    pub(super) hull: Span,
    /// What each query sees there.
    pub(super) spans: Vec<Span>,
    /// Queries that take the careful path.
    pub(super) careful: Vec<(usize, Span)>,
    /// Logits, then weights, [`CHUNK`] a row.
    pub(super) s: Floats,
}

impl Scratch {
    /// Makes room for `queries` rows of `row` floats in each of `heads` key heads, and an empty state
    /// in each.
    pub(super) fn fit(
        &mut self,
        heads: usize,
        queries: usize,
        row: usize,
    ) -> Result<(), KernelError> {
        let queries = heads * queries;
        self.row = row;
        for rows in [&mut self.q, &mut self.y, &mut self.t] {
            rows.resize(queries * row)?;
        }
        self.z.resize(queries * MAX_LANES)?;
        self.fresh.resize(queries * MAX_LANES)?;
        self.products.resize(queries * MAX_LANES * MAX_LANES)?;
        for stage in &mut self.stages {
            stage.resize(heads * CHUNK * row)?;
        }
        for view in &mut self.views {
            view.s.resize(queries * CHUNK)?;
        }
        self.y.fill(0.0);
        self.z.fill(0.0);
        self.m.clear();
        self.m.resize(queries, f32::NEG_INFINITY);
        self.tame.clear();
        self.tame.resize(queries, true);
        Ok(())
    }
}

impl Default for View {
    fn default() -> Self {
        Self {
            slots: 0..0,
            hull: Span::EMPTY,
            spans: Vec::new(),
            careful: Vec::new(),
            s: Floats::default(),
        }
    }
}
