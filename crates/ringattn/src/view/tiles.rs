//! The tile loop of the kernel inside one step: query tiles by key tiles, in the kernel's own order.
//!
//! Every step of every rank has one of a few patterns; each is kept once.

use super::quantity::of;
use ringattn_core::{Interval, Rank, Slot};
use ringattn_engine::cpu::{Isa, KEY_TILE, QUERY_TILE, TileVisit, tile_visits};
use ringattn_plan::{BlockId, Plan};
use serde::Serialize;

/// Tokens of a rank for which tiles are drawn: four key tiles, and 22 query tiles, the last not full.
pub(crate) const TOKENS: u64 = 2048;

/// The kernel's tiles and all patterns that occur.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TileLoop {
    /// Query rows of a tile.
    pub(crate) query_tile: usize,
    /// Keys of a tile.
    pub(crate) key_tile: usize,
    /// Tokens of a rank in this picture.
    pub(crate) tokens: u64,
    /// Tiles along the queries and along the keys.
    pub(crate) size: (usize, usize),
    /// What the ranks' steps look like.
    pub(crate) patterns: Vec<Pattern>,
    #[serde(skip)]
    known: Vec<Vec<Interval<Slot>>>,
}

/// The tiles of one block as one rank sees it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pattern {
    /// The tiles in the kernel's order; all others are skipped.
    pub(crate) visits: Vec<Visit>,
    /// How many are full, at an edge, and skipped, in words.
    pub(crate) words: String,
    /// Tiles all of whose pairs are visible.
    pub(crate) full: usize,
    /// Tiles some of whose pairs are visible.
    pub(crate) edge: usize,
    /// Tiles that are not visited.
    pub(crate) skipped: usize,
}

/// One query tile before one key tile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Visit {
    /// Number of the query tile, from 0.
    pub(crate) query: usize,
    /// Number of the key tile, from 0.
    pub(crate) key: usize,
    /// The chunk that the key tile was packed with.
    pub(crate) chunk: usize,
    /// Visible pairs, as a share of all in the tile.
    pub(crate) visible: f64,
    /// What happens, in words.
    pub(crate) words: String,
}

impl TileLoop {
    pub(crate) fn new() -> Self {
        let side = |tile: usize| (TOKENS as usize).div_ceil(tile);
        Self {
            query_tile: QUERY_TILE,
            key_tile: KEY_TILE,
            tokens: TOKENS,
            size: (side(QUERY_TILE), side(KEY_TILE)),
            ..Self::default()
        }
    }

    /// The pattern of each rank and step of a plan with [`TOKENS`] tokens per rank, new ones added; none
    /// where nothing is attended.
    pub(crate) fn of_plan(&mut self, plan: &Plan) -> Vec<Vec<Option<usize>>> {
        let prepared = plan.prepare();
        let mut pattern = |rank: Rank, block: BlockId| {
            let intervals: Vec<_> = plan.intervals(rank, block).collect();
            let known = self.known.iter().position(|known| *known == intervals);
            known.unwrap_or_else(|| self.add(plan, block, intervals))
        };
        let ranks = plan.key_layout().ranks();
        ranks
            .map(|rank| {
                let steps = prepared.steps(rank);
                steps.map(|step| step.attend.map(|attend| pattern(rank, attend.block))).collect()
            })
            .collect()
    }

    fn add(&mut self, plan: &Plan, block: BlockId, intervals: Vec<Interval<Slot>>) -> usize {
        let keys = plan.key_layout().count(block.0) as usize;
        let shape = plan.problem().shape;
        // The scalar set is there on every machine, and chunks are cut alike on all for d = 2^k.
        let visits = tile_visits(Isa::Scalar, shape, keys, &intervals).unwrap_or_default();
        self.patterns.push(Pattern::new(&visits, self.size.0 * self.size.1));
        self.known.push(intervals);
        self.patterns.len() - 1
    }
}

impl Pattern {
    fn new(visits: &[TileVisit], tiles: usize) -> Self {
        let total = visits.len();
        let visits: Vec<_> =
            visits.iter().enumerate().map(|(i, v)| Visit::new(v, i, total)).collect();
        let full = visits.iter().filter(|visit| visit.visible >= 1.0).count();
        let (edge, skipped) = (visits.len() - full, tiles.saturating_sub(visits.len()));
        let words = format!(
            "{}: {full} full, {edge} at an edge of the mask, {skipped} skipped without being touched.",
            of(tiles as u64, "tile")
        );
        Self { visits, words, full, edge, skipped }
    }
}

impl Visit {
    fn new(visit: &TileVisit, index: usize, total: usize) -> Self {
        let (query, key) = (visit.queries.start / QUERY_TILE, visit.keys.start / KEY_TILE);
        let all = (visit.queries.len() * visit.keys.len()).max(1);
        let kind = if visit.pairs == all { "full" } else { "at an edge" };
        let words = format!(
            "Visit {} of {total}: query tile {query} (rows {} to {}) before key tile {key} (keys {} to \
             {}), {kind}",
            index + 1,
            visit.queries.start,
            visit.queries.end - 1,
            visit.keys.start,
            visit.keys.end - 1,
        );
        Self { query, key, chunk: visit.chunk, visible: visit.pairs as f64 / all as f64, words }
    }
}
