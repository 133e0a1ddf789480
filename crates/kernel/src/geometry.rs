//! Which part of a key tile a query row, or a group of rows, sees.
//!
//! Intervals are cut to the tile and counted from its first key. A micro-tile is skipped when the
//! hull of its rows' spans does not touch its panel.

use ringattn_core::{Interval, Slot};
use std::ops::Range;

/// Keys `[start, end)` of one tile; empty when `start >= end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    /// No keys; the identity of [`Span::hull`].
    pub(crate) const EMPTY: Self = Self { start: usize::MAX, end: 0 };

    /// The part of `seen` inside the tile that holds `slots`.
    pub(crate) fn cut(seen: Interval<Slot>, slots: &Range<usize>) -> Self {
        let start = seen.start().index().max(slots.start);
        let end = seen.end().index().min(slots.end);
        if start < end {
            Self { start: start - slots.start, end: end - slots.start }
        } else {
            Self::EMPTY
        }
    }

    /// Whether the span holds no key.
    pub(crate) fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Keys in it.
    pub(crate) fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// The keys of `part` that the span holds; none, as an empty range, where they do not meet.
    pub(crate) fn within(self, part: &Range<usize>) -> Range<usize> {
        let start = self.start.clamp(part.start, part.end);
        start..self.end.clamp(start, part.end)
    }

    /// The smallest span around both.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// For each tile of `tile` slots whether any row sees a key in it.
pub(crate) fn seen_tiles(intervals: &[Interval<Slot>], rows: usize, tile: usize) -> Vec<bool> {
    let tiles = rows.div_ceil(tile);
    // Marks where runs of seen tiles begin and end; their running sum counts the rows that see one.
    let mut edges = vec![0_i64; tiles + 1];
    for seen in intervals.iter().filter(|seen| !seen.is_empty()) {
        edges[seen.start().index() / tile] += 1;
        edges[seen.end().index().div_ceil(tile)] -= 1;
    }
    edges[..tiles]
        .iter()
        .scan(0, |depth, edge| {
            *depth += edge;
            Some(*depth > 0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start: u64, end: u64) -> Interval<Slot> {
        Interval::new(Slot(start), Slot(end))
    }

    #[test]
    fn spans_are_local_to_the_tile() {
        assert_eq!(Span::cut(interval(0, 100), &(10..20)), Span { start: 0, end: 10 });
        assert_eq!(Span::cut(interval(12, 15), &(10..20)), Span { start: 2, end: 5 });
        for outside in [interval(0, 10), interval(20, 30), interval(15, 15)] {
            assert_eq!(Span::cut(outside, &(10..20)), Span::EMPTY);
        }
    }

    #[test]
    fn parts_of_a_span_lie_in_the_part() {
        let span = Span { start: 3, end: 9 };
        assert_eq!(span.within(&(0..4)), 3..4);
        assert_eq!(span.within(&(4..8)), 4..8);
        assert_eq!(span.within(&(8..12)), 8..9);
        for nothing in [span.within(&(0..3)), span.within(&(9..12)), Span::EMPTY.within(&(0..4))] {
            assert!(nothing.is_empty());
        }
    }

    #[test]
    fn the_empty_span_changes_no_hull() {
        let span = Span { start: 3, end: 5 };
        assert_eq!(span.hull(Span::EMPTY), span);
        assert!(Span::EMPTY.hull(Span::EMPTY).is_empty());
    }

    #[test]
    fn tiles_that_nobody_sees_are_known() {
        let seen = seen_tiles(&[interval(5, 5), interval(9, 10), interval(15, 25)], 41, 10);
        assert_eq!(seen, [true, true, true, false, false]);
        assert_eq!(seen_tiles(&[interval(0, 40)], 40, 10), [true; 4]);
        assert_eq!(seen_tiles(&[], 0, 10), []);
    }
}
