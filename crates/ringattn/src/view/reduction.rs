//! A worked example of tree decoding: one query row whose keys lie on `p` ranks, the states
//! `(m, z, y)` of the ranks merged level by level, with [`Partial::merge`] itself.
//!
//! `m = max(ma, mb)`, `z = za e^(ma - m) + zb e^(mb - m)`, the same for `y` (Tree Attention,
//! 2408.04093). At level `k` rank `r`, a multiple of `2^k`, takes in rank `r + 2^(k-1)`, so that
//! `ceil(log2 p)` levels lead to rank 0. Knows no plan and no time.

use super::error::ViewError;
use super::quantity::decimal;
use ringattn_core::{AttentionShape, Log2, NaturalLog, Partial};
use serde::Serialize;
use std::f32::consts::LOG2_E;

/// Keys of each rank in the example.
const KEYS: usize = 2;
/// Logits `q.k / sqrt(d)` of the keys in order, two per rank.
const LOGITS: [f32; 16] =
    [0.4, 1.9, -0.7, 0.2, 3.1, 2.6, -1.5, 0.8, 1.2, -0.3, 0.0, 2.2, -2.4, 1.0, 0.6, -0.9];
/// Their values, `d = 2`.
const VALUES: [[f32; 2]; 16] = [
    [1.0, 0.0],
    [0.5, -0.5],
    [-1.0, 2.0],
    [0.0, 1.0],
    [2.0, 0.5],
    [-0.5, 1.5],
    [1.5, -1.0],
    [0.0, -2.0],
    [1.0, 1.0],
    [-1.5, 0.0],
    [0.5, 0.5],
    [2.0, -0.5],
    [-2.0, 1.0],
    [0.0, 0.5],
    [1.0, -1.5],
    [-0.5, 0.0],
];

/// The reduction over one number of ranks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Reduction {
    /// Ranks `p`.
    pub(crate) ranks: u32,
    /// Level 0 holds the ranks' own states, each further one the states after its merges.
    pub(crate) levels: Vec<Level>,
    /// `y / z`, the attention of the row, `d` numbers.
    pub(crate) out: Vec<Shown>,
    /// `m + ln z`.
    pub(crate) lse: Shown,
}

/// The states after one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Level {
    /// What happens, for the screen reader and below the picture.
    pub(crate) words: String,
    /// The states that are left, by rank.
    pub(crate) states: Vec<RankState>,
}

/// The state of the row on one rank.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RankState {
    /// The rank that holds it.
    pub(crate) rank: u32,
    /// Ranks whose keys it covers, in order.
    pub(crate) covers: Vec<u32>,
    /// The merge that made it in this level; none when it was only kept.
    pub(crate) merge: Option<Merge>,
    /// The maximum, natural.
    pub(crate) m: Shown,
    /// The sum of weights.
    pub(crate) z: Shown,
    /// The weighted sum of values.
    pub(crate) y: Vec<Shown>,
}

/// One application of the merge rule.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Merge {
    /// The rank whose state is taken in.
    pub(crate) from: u32,
    /// `e^(ma - m)`, by which the own sums shrink.
    pub(crate) own_weight: Shown,
    /// `e^(mb - m)`, by which the other's do.
    pub(crate) other_weight: Shown,
}

/// A number with the text that is shown for it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shown {
    /// The number.
    pub(crate) value: f64,
    /// Four decimals.
    pub(crate) text: String,
}

impl Shown {
    fn new(value: f64) -> Self {
        Self { value, text: decimal(value) }
    }
}

struct Held {
    rank: u32,
    covers: Vec<u32>,
    partial: Partial,
}

/// The example over `ranks` ranks; keys repeat from the ninth rank on.
pub(crate) fn reduction(ranks: u32) -> Result<Reduction, ViewError> {
    let shape = AttentionShape::new(1, 1, 2)?;
    let mut held = Vec::new();
    for rank in 0..ranks {
        held.push(Held { rank, covers: vec![rank], partial: own_state(shape, rank)? });
    }
    let words = format!(
        "Each rank has folded its own {KEYS} keys into a state (m, z, y). No key or value moves."
    );
    let mut levels = vec![Level { words, states: held.iter().map(|h| shown(h, None)).collect() }];
    let mut distance = 1;
    while distance < ranks {
        let (next, level) = merge_level(held, distance)?;
        held = next;
        levels.push(level);
        distance *= 2;
    }
    let Some(root) = held.pop() else {
        return Ok(Reduction {
            ranks,
            levels,
            out: Vec::new(),
            lse: Shown::new(f64::NEG_INFINITY),
        });
    };
    let attention = root.partial.finish();
    let out = attention.out.iter().map(|&value| Shown::new(f64::from(value))).collect();
    let lse = attention.lse.first().map_or(f64::NEG_INFINITY, |&NaturalLog(lse)| f64::from(lse));
    Ok(Reduction { ranks, levels, out, lse: Shown::new(lse) })
}

/// The state of a rank's keys, folded one by one.
fn own_state(shape: AttentionShape, rank: u32) -> Result<Partial, ViewError> {
    let mut state = Partial::identity(shape, 1)?;
    for key in (0..KEYS).map(|key| (rank as usize * KEYS + key) % LOGITS.len()) {
        let mut one = Partial::identity(shape, 1)?;
        one.m[0] = Log2(LOGITS[key] * LOG2_E);
        one.z[0] = 1.0;
        one.y.copy_from_slice(&VALUES[key]);
        state.merge(&one)?;
    }
    Ok(state)
}

/// Merges the states of ranks `distance` apart, the lower rank's as first operand.
fn merge_level(held: Vec<Held>, distance: u32) -> Result<(Vec<Held>, Level), ViewError> {
    let (mut next, mut states, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = held.into_iter().peekable();
    while let Some(mut own) = rest.next() {
        let Some(other) = rest.next_if(|other| other.rank == own.rank + distance) else {
            states.push(shown(&own, None));
            next.push(own);
            continue;
        };
        let tops = (own.partial.m[0], other.partial.m[0]);
        own.partial.merge(&other.partial)?;
        own.covers.extend(other.covers);
        let weight = |from: Log2| Shown::new(f64::from(from.0 - own.partial.m[0].0).exp2());
        let (own_weight, other_weight) = (weight(tops.0), weight(tops.1));
        pairs.push(format!("rank {} takes in rank {}", own.rank, other.rank));
        let merge = Merge { from: other.rank, own_weight, other_weight };
        states.push(shown(&own, Some(merge)));
        next.push(own);
    }
    let words = format!("{}.", super::quantity::listed(&pairs));
    let words = words.replacen("rank", "Rank", 1);
    Ok((next, Level { words, states }))
}

fn shown(held: &Held, merge: Option<Merge>) -> RankState {
    let state = &held.partial;
    // The core counts m in base-2 units; a reader expects natural ones.
    let natural = |m: Log2| f64::from(m.0) * std::f64::consts::LN_2;
    RankState {
        rank: held.rank,
        covers: held.covers.clone(),
        merge,
        m: Shown::new(natural(state.m[0])),
        z: Shown::new(f64::from(state.z[0])),
        y: state.y.iter().map(|&y| Shown::new(f64::from(y))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Softmax over all keys at once, in float64.
    fn dense(ranks: usize) -> ([f64; 2], f64) {
        let keys = (0..ranks * KEYS).map(|key| key % LOGITS.len());
        let weights: Vec<_> = keys.map(|key| (f64::from(LOGITS[key]).exp(), VALUES[key])).collect();
        let z: f64 = weights.iter().map(|(weight, _)| weight).sum();
        let out = [0, 1].map(|i| weights.iter().map(|(w, v)| w * f64::from(v[i])).sum::<f64>() / z);
        (out, z.ln())
    }

    #[test]
    fn the_tree_gives_the_dense_result_in_the_fewest_levels() {
        for ranks in 1..=9_u32 {
            let reduction = reduction(ranks).unwrap();
            let (out, lse) = dense(ranks as usize);
            // At most 18 merges, each rounding m, z and y by 2^-24 of numbers below 64.
            let near = |shown: &Shown, expected: f64| (shown.value - expected).abs() < 18.0 * 4e-6;
            assert!(near(&reduction.lse, lse), "{ranks} ranks: {}", reduction.lse.text);
            assert!(reduction.out.iter().zip(out).all(|(shown, expected)| near(shown, expected)));
            assert_eq!(reduction.levels.len() as u32, 1 + ranks.next_power_of_two().ilog2());
            let root = &reduction.levels.last().unwrap().states;
            assert_eq!(root.len(), 1);
            assert_eq!(root[0].covers, (0..ranks).collect::<Vec<_>>());
        }
    }
}
