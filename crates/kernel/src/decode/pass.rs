//! One pass over a chunk of keys and a chunk of values, with all queries of a key head.
//!
//! `s[i][j] = q_i.k_j` of the next chunk and `t_i += sum_j w[i][j] v_j` of the last one, by turns: while one's
//! sums wait for memory or for each other, the other's proceed. Where the registers hold both, turns are
//! single rows, else as many as a vector has lanes. Knows neither softmax nor intervals.

use super::lanes::Lanes;
use super::rows::{CHUNK, ChunkRows, Pairs};
use super::stored::Stored;
use crate::geometry::Span;
use crate::workspace::MAX_LANES;
use pulp::Simd;
use std::ops::Range;

/// What a pass reads and writes; rows of `q` and `t` are `row` floats apart, rows of `s` and `w`
/// [`CHUNK`].
pub(super) struct Pass<'a, E> {
    pub(super) keys: ChunkRows<E>,
    pub(super) values: ChunkRows<E>,
    /// The keys whose logits are formed; others of their group of vector lanes get 0.
    pub(super) seen: Span,
    /// The values that are summed, one after the other: however they are cut, the bits are the same.
    pub(super) summed: Span,
    pub(super) row: usize,
    pub(super) q: &'a [f32],
    pub(super) s: &'a mut [f32],
    pub(super) w: &'a [f32],
    pub(super) t: &'a mut [f32],
}

/// Of each query and key of a group a vector whose lanes are yet to be added, none of which crosses a line.
#[repr(align(64))]
struct Sums<S: Simd, const Q: usize>([[S::f32s; MAX_LANES]; Q]);

/// What a group reads: keys, values, and the first query.
struct Group {
    seen: Range<usize>,
    summed: Range<usize>,
    /// The group's first key.
    key: usize,
    query: usize,
}

impl<E: Stored> Pass<'_, E> {
    /// Does the part of the pass that the keys and values of a group are, as many as a vector has lanes,
    /// from `key` on.
    ///
    /// # Safety
    /// The rows `seen` and `summed` must be readable.
    #[inline(always)]
    pub(super) unsafe fn run<S: Simd>(mut self, lanes: &Lanes<S>, key: usize) {
        let queries = self.s.len() / CHUNK;
        assert!(self.row >= self.keys.pairs * 2 * S::F32_LANES);
        assert!(self.values.pairs == self.keys.pairs);
        assert!(self.q.len() >= queries * self.row && self.t.len() >= queries * self.row);
        let part = key..key + S::F32_LANES;
        let (seen, summed) = (self.seen.within(&part), self.summed.within(&part));
        if key + S::F32_LANES > CHUNK || seen.is_empty() && summed.is_empty() {
            return;
        }
        let mut query = 0;
        while query < queries {
            let count = block::<S>(queries - query);
            let group = Group { seen: seen.clone(), summed: summed.clone(), key, query };
            // SAFETY: the rows are readable.
            unsafe {
                match count {
                    4 => self.group::<S, 4>(lanes, &group),
                    3 => self.group::<S, 3>(lanes, &group),
                    2 => self.group::<S, 2>(lanes, &group),
                    _ => self.group::<S, 1>(lanes, &group),
                }
            }
            query += count;
        }
    }

    /// `Q` queries against a group.
    ///
    /// # Safety
    /// The group's rows must be readable.
    #[inline(always)]
    unsafe fn group<S: Simd, const Q: usize>(&mut self, lanes: &Lanes<S>, group: &Group) {
        let simd = lanes.simd();
        let mut sums = Sums::<S, Q>([[simd.splat_f32s(0.0); MAX_LANES]; Q]);
        // SAFETY: the rows are readable, and each part's pairs are some of theirs.
        unsafe {
            match self.keys.pairs {
                4 if fit::<S>(Q, 4) => self.in_turns::<S, Q, 4>(simd, group, &mut sums),
                2 if fit::<S>(Q, 2) => self.in_turns::<S, Q, 2>(simd, group, &mut sums),
                1 if fit::<S>(Q, 1) => self.in_turns::<S, Q, 1>(simd, group, &mut sums),
                pairs => {
                    let mut pair = 0;
                    while pair < pairs {
                        // Queries that registers cannot hold are read from the first cache.
                        let width = part_of(pairs - pair);
                        match width {
                            4 => self.dots::<S, Q, 4>(simd, (group, pair), &mut sums),
                            2 => self.dots::<S, Q, 2>(simd, (group, pair), &mut sums),
                            _ => self.dots::<S, Q, 1>(simd, (group, pair), &mut sums),
                        }
                        pair += width;
                    }
                    let mut pair = 0;
                    while pair < pairs {
                        let width = columns::<S>(Q, pairs - pair);
                        match width {
                            4 => self.adds::<S, Q, 4>(simd, (group, pair)),
                            2 => self.adds::<S, Q, 2>(simd, (group, pair)),
                            _ => self.adds::<S, Q, 1>(simd, (group, pair)),
                        }
                        pair += width;
                    }
                }
            }
        }
        if group.seen.is_empty() {
            return;
        }
        for (i, sums) in sums.0.iter_mut().enumerate() {
            let from = (group.query + i) * CHUNK + group.key;
            let (s, _) = S::as_mut_simd_f32s(&mut self.s[from..from + S::F32_LANES]);
            s[0] = lanes.sums(sums);
        }
    }

    /// All of `P` pairs, a key and a value in turns.
    ///
    /// # Safety
    /// The group's rows must be readable, of `P` pairs.
    #[inline(always)]
    unsafe fn in_turns<S: Simd, const Q: usize, const P: usize>(
        &mut self,
        simd: S,
        group: &Group,
        sums: &mut Sums<S, Q>,
    ) {
        if group.seen != group.summed {
            // SAFETY: as the caller says.
            unsafe {
                self.dots::<S, Q, P>(simd, (group, 0), sums);
                self.adds::<S, Q, P>(simd, (group, 0));
            }
            return;
        }
        let from = group.query * self.row;
        let q = load::<S, Q, P>(simd, &self.q[from..], self.row);
        let mut t = load::<S, Q, P>(simd, &self.t[from..], self.row);
        let w = &self.w[group.query * CHUNK..(group.query + Q) * CHUNK];
        for key in group.seen.clone() {
            self.keys.prefetch::<S, P>((key, 0));
            // SAFETY: as the caller says.
            let dots = unsafe { self.keys.dot::<S, Q, P>(simd, (key, 0), &q) };
            for (sums, dot) in sums.0.iter_mut().zip(dots) {
                sums[key - group.key] = dot;
            }
            self.values.prefetch::<S, P>((key, 0));
            // SAFETY: likewise.
            unsafe { self.values.add::<S, Q, P>(simd, (key, 0), w, &mut t) };
        }
        store::<S, Q, P>(&t, &mut self.t[from..], self.row);
    }

    /// The part of the dot products that `P` pairs from `pair` on give.
    ///
    /// # Safety
    /// The group's keys must be readable, with these pairs.
    #[inline(always)]
    unsafe fn dots<S: Simd, const Q: usize, const P: usize>(
        &mut self,
        simd: S,
        (group, pair): (&Group, usize),
        sums: &mut Sums<S, Q>,
    ) {
        let at = pair * 2 * S::F32_LANES;
        let q = load::<S, Q, P>(simd, &self.q[group.query * self.row + at..], self.row);
        for key in group.seen.clone() {
            self.keys.prefetch::<S, P>((key, at));
            // SAFETY: as the caller says.
            let dots = unsafe { self.keys.dot::<S, Q, P>(simd, (key, at), &q) };
            for (sums, dot) in sums.0.iter_mut().zip(dots) {
                let sum = &mut sums[key - group.key];
                *sum = if pair == 0 { dot } else { simd.add_f32s(*sum, dot) };
            }
        }
    }

    /// The sums of values in `P` pairs from `pair` on.
    ///
    /// # Safety
    /// The group's values must be readable, with these pairs.
    #[inline(always)]
    unsafe fn adds<S: Simd, const Q: usize, const P: usize>(
        &mut self,
        simd: S,
        (group, pair): (&Group, usize),
    ) {
        let at = pair * 2 * S::F32_LANES;
        let from = group.query * self.row + at;
        let mut t = load::<S, Q, P>(simd, &self.t[from..], self.row);
        let w = &self.w[group.query * CHUNK..(group.query + Q) * CHUNK];
        for key in group.summed.clone() {
            self.values.prefetch::<S, P>((key, at));
            // SAFETY: as the caller says.
            unsafe { self.values.add::<S, Q, P>(simd, (key, at), w, &mut t) };
        }
        store::<S, Q, P>(&t, &mut self.t[from..], self.row);
    }
}

/// `P` pairs from the start of each of `Q` rows, `row` floats apart.
#[inline(always)]
fn load<S: Simd, const Q: usize, const P: usize>(
    simd: S,
    rows: &[f32],
    row: usize,
) -> Pairs<S, Q, P> {
    let mut pairs = [[[simd.splat_f32s(0.0); 2]; P]; Q];
    for (i, pairs) in pairs.iter_mut().enumerate() {
        let (from, _) = S::as_simd_f32s(&rows[i * row..i * row + P * 2 * S::F32_LANES]);
        pairs.as_flattened_mut().copy_from_slice(from);
    }
    pairs
}

/// Writes them back.
#[inline(always)]
fn store<S: Simd, const Q: usize, const P: usize>(
    pairs: &Pairs<S, Q, P>,
    rows: &mut [f32],
    row: usize,
) {
    for (i, pairs) in pairs.iter().enumerate() {
        let to = &mut rows[i * row..i * row + P * 2 * S::F32_LANES];
        S::as_mut_simd_f32s(to).0.copy_from_slice(pairs.as_flattened());
    }
}

/// Whether queries and sums of so many pairs fit into the registers together, and what they meet.
#[inline(always)]
fn fit<S: Simd>(queries: usize, pairs: usize) -> bool {
    4 * queries * pairs + 2 * queries + 3 <= S::REGISTER_COUNT
}

/// Queries of the next register block, of those left: groups of three are common.
#[inline(always)]
fn block<S: Simd>(left: usize) -> usize {
    let most = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
    if left >= most { most } else { left.min(3) }
}

/// Vector pairs of the next part of a logit, of those left.
fn part_of(left: usize) -> usize {
    match left {
        4.. => 4,
        2..4 => 2,
        _ => 1,
    }
}

/// Vector pairs of the next register block of sums: 16 accumulators where there are 32 registers,
/// else 8.
#[inline(always)]
fn columns<S: Simd>(queries: usize, left: usize) -> usize {
    let most = if S::REGISTER_COUNT >= 32 { 8 } else { 4 } / queries;
    match left.min(most) {
        4.. => 4,
        2..4 => 2,
        _ => 1,
    }
}
