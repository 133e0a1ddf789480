//! Counting pairs of positions by their distance, without visiting them.
//!
//! A rank's shard of a block-cyclic layout is a few *progressions of runs*: runs of equal length, one
//! stride apart. Between two progressions the number of pairs `(i, k)` with `i - k < t` needs only the
//! difference `m` of the runs' indices: all pairs of runs up to some `m` count in full, at most three
//! `m` in part, the rest not at all. Both the runs and the positions inside two runs are counted by
//! one sum, [`clamped_sum`]. Knows no mask and no rank.

/// Runs `[start + a stride, start + a stride + len)` for `0 <= a < count`.
///
/// All progressions that are counted together have one stride, and no run is longer than it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progression {
    pub(super) start: i128,
    pub(super) count: i128,
    pub(super) len: i128,
}

impl Progression {
    /// Whether it holds no position.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 || self.len == 0
    }
}

/// `sum over 0 <= y < len of clamp(offset + y, 0, cap)`.
///
/// With `cap` and `len` as the lengths of two runs, the pairs `(x, y)` with `x - y < offset`.
fn clamped_sum(offset: i128, len: i128, cap: i128) -> i128 {
    let rising_from = (-offset).clamp(0, len);
    let flat_from = (cap - offset).clamp(rising_from, len);
    let rising = flat_from - rising_from;
    let first = offset + rising_from;
    rising * (2 * first + rising - 1) / 2 + (len - flat_from) * cap
}

/// How many `(i, k)`, `i` from `queries` and `k` from `keys`, have `i - k < distance`.
pub(super) fn pairs_below(
    queries: &Progression,
    keys: &Progression,
    stride: i128,
    distance: i128,
) -> i128 {
    if queries.is_empty() || keys.is_empty() {
        return 0;
    }
    // For runs `m` apart, the pairs with `x - y < at(m)` inside them.
    let at = |m: i128| distance - (queries.start - keys.start) - m * stride;
    let runs_below = |m: i128| clamped_sum(m, keys.count, queries.count);
    // The least `m` whose runs do not count in full.
    let partial_from = (at(0) - queries.len).div_euclid(stride) + 1;
    let mut pairs = runs_below(partial_from) * queries.len * keys.len;
    let mut m = partial_from;
    while at(m) > -keys.len && m < queries.count {
        let runs = runs_below(m + 1) - runs_below(m);
        pairs += runs * clamped_sum(at(m), keys.len, queries.len);
        m += 1;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(runs: &Progression, stride: i128) -> Vec<i128> {
        let run = |a| (0..runs.len).map(move |x| runs.start + a * stride + x);
        (0..runs.count).flat_map(run).collect()
    }

    #[test]
    fn pairs_are_counted_as_by_visiting_them() {
        let stride = 5;
        let all = |start| {
            let lens = (0..4).flat_map(|count| (1..=5).map(move |len| (count, len)));
            lens.map(move |(count, len)| Progression { start, count, len })
        };
        for queries in [0, 3].into_iter().flat_map(all) {
            for keys in [0, 4].into_iter().flat_map(all) {
                for distance in -25..25 {
                    let seen = positions(&queries, stride).iter().fold(0, |sum, i| {
                        let below = |k: &&i128| i - **k < distance;
                        sum + positions(&keys, stride).iter().filter(below).count() as i128
                    });
                    let counted = pairs_below(&queries, &keys, stride, distance);
                    assert_eq!(counted, seen, "{queries:?} {keys:?} {distance}");
                }
            }
        }
    }
}
