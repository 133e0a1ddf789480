//! In which order query tiles meet key tiles: the kernel's loop as data.
//!
//! Key tiles are taken in chunks, a chunk is packed once, and every query tile that sees any of it
//! passes over the chunk's tiles. [`crate::absorb`] runs this order; [`tile_visits`] lists it without
//! computing anything. Knows intervals of slots, no numbers.

use crate::geometry::{Span, seen_tiles};
use crate::isa::{Isa, MicroShape};
use crate::pack::Layout;
use crate::workspace::{KEY_TILE, QUERY_TILE};
use ringattn_core::{AttentionShape, Interval, Slot};
use std::cmp::Reverse;
use std::ops::Range;

/// Floats of a packed chunk of one key head: 1 MiB, which the second cache of most processors holds
/// beside the query tiles; 2048 keys for d = 64.
const CHUNK_FLOATS: usize = 1 << 18;

/// One query tile before one key tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileVisit {
    /// The chunk that the key tile was packed with, counted from 0.
    pub chunk: usize,
    /// Query slots of the tile.
    pub queries: Range<usize>,
    /// Key slots of the tile.
    pub keys: Range<usize>,
    /// How many of the tile's pairs are visible; all of them in a full tile, fewer at an edge.
    pub pairs: usize,
}

/// The tiles of one head that the kernel visits, in its order with one thread, for a block of `keys`
/// slots of which query slot `i` sees `intervals[i]`. Tiles in which no row sees anything are not
/// visited. `None` when the processor lacks the instruction set.
///
/// So few queries that they take the decode path are not tiled; see `ARCHITECTURE.md`.
pub fn tile_visits(
    isa: Isa,
    shape: AttentionShape,
    keys: usize,
    intervals: &[Interval<Slot>],
) -> Option<Vec<TileVisit>> {
    let layout = Layout { shape, micro: MicroShape::of(isa)? };
    let mut visits = Vec::new();
    for (chunk, tiles) in chunks(layout, keys, intervals).into_iter().enumerate() {
        for row in query_tiles(intervals, &slots_of(&tiles, keys)) {
            let queries = row..intervals.len().min(row + QUERY_TILE);
            for keys in tiles.iter().map(|&tile| slots_of(&[tile], keys)) {
                let pairs = visible_pairs(&intervals[queries.clone()], &keys);
                if pairs > 0 {
                    visits.push(TileVisit { chunk, queries: queries.clone(), keys, pairs });
                }
            }
        }
    }
    Some(visits)
}

/// The numbers of the key tiles of each chunk, those left out in which no query sees anything.
pub(crate) fn chunks(layout: Layout, keys: usize, intervals: &[Interval<Slot>]) -> Vec<Vec<usize>> {
    let seen = seen_tiles(intervals, keys, KEY_TILE);
    let chunk_tiles = (CHUNK_FLOATS / layout.tile_len()).max(1);
    let of_chunk = |chunk: usize, seen: &[bool]| -> Vec<usize> {
        let tiles = (0..seen.len()).filter(|&tile| seen[tile]);
        tiles.map(|tile| chunk * chunk_tiles + tile).collect()
    };
    seen.chunks(chunk_tiles)
        .enumerate()
        .map(|(chunk, seen)| of_chunk(chunk, seen))
        .filter(|tiles| !tiles.is_empty())
        .collect()
}

/// The slots from the first of the increasing `tiles` to the last of a block of `keys`.
pub(crate) fn slots_of(tiles: &[usize], keys: usize) -> Range<usize> {
    match (tiles.first(), tiles.last()) {
        (Some(first), Some(last)) => first * KEY_TILE..keys.min((last + 1) * KEY_TILE),
        _ => 0..0,
    }
}

/// First rows of the query tiles that see any of the slots, those with the most pairs first: the
/// last units of a batch are then small, and no thread waits long for another.
pub(crate) fn query_tiles(intervals: &[Interval<Slot>], slots: &Range<usize>) -> Vec<usize> {
    let pairs =
        |(tile, rows): (usize, &[Interval<Slot>])| (visible_pairs(rows, slots), tile * QUERY_TILE);
    let mut tiles: Vec<_> = intervals
        .chunks(QUERY_TILE)
        .enumerate()
        .map(pairs)
        .filter(|&(pairs, _)| pairs > 0)
        .collect();
    tiles.sort_by_key(|&(pairs, _)| Reverse(pairs));
    tiles.into_iter().map(|(_, row)| row).collect()
}

fn visible_pairs(rows: &[Interval<Slot>], slots: &Range<usize>) -> usize {
    rows.iter().map(|seen| Span::cut(*seen, slots).len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(keys: usize, intervals: &[Interval<Slot>]) -> Vec<TileVisit> {
        let shape = AttentionShape::new(1, 1, 128).unwrap();
        tile_visits(Isa::Scalar, shape, keys, intervals).unwrap()
    }

    fn causal(tokens: u64) -> Vec<Interval<Slot>> {
        (0..tokens).map(|query| Interval::from_len(query + 1)).collect()
    }

    #[test]
    fn every_pair_is_visited_once() {
        for tokens in [1, 95, 96, 97, 512, 1500, 2048] {
            let intervals = causal(tokens);
            let mut times = vec![0; (tokens * tokens) as usize];
            let mut pairs = 0;
            for visit in visits(tokens as usize, &intervals) {
                pairs += visit.pairs;
                for query in visit.queries.clone() {
                    let seen = Span::cut(intervals[query], &visit.keys).len();
                    let first = query * tokens as usize + visit.keys.start;
                    times[first..first + seen].iter_mut().for_each(|times| *times += 1);
                }
            }
            assert_eq!(pairs as u64, tokens * (tokens + 1) / 2, "{tokens} tokens");
            let expected = |query: u64| (0..tokens).map(move |key| u32::from(key <= query));
            assert!(times.into_iter().eq((0..tokens).flat_map(expected)), "{tokens} tokens");
        }
    }

    #[test]
    fn tiles_that_nobody_sees_are_left_out_and_the_heaviest_come_first() {
        let visits = visits(2048, &causal(2048));
        // 22 query tiles over 4 key tiles; a chunk of d = 128 holds two.
        let first = &visits[0];
        assert_eq!((first.chunk, first.keys.clone(), first.pairs), (0, 0..512, 96 * 512));
        assert!(visits.iter().all(|visit| visit.keys.start < visit.queries.end));
        let below_diagonal = (0..22).map(|q: usize| (q * 96 + 95).min(2047) / 512 + 1);
        assert_eq!(visits.len(), below_diagonal.sum::<usize>());
        assert!(visits.iter().map(|visit| visit.chunk).is_sorted());
    }
}
