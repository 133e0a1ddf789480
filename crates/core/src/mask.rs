//! Masks: for each query, one interval of key positions.
//!
//! Causal is `[0, i]`, a window `[i - left, i + right]`, a document its own interval; masks combine
//! by intersection, which is again an interval. A mask knows no layout and no rank.

use crate::{Interval, Position};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Which keys a query sees. Positions are global.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// Every key.
    Full,
    /// Keys at or before the query.
    Causal,
    /// Keys near the query.
    Window(Window),
    /// Keys of the query's own document.
    Documents(Documents),
    /// The general form: an interval for each query.
    Intervals(QueryIntervals),
    /// What all of these see.
    Intersection(Vec<Mask>),
}

/// The window `[i - left, i + right]` around query `i`, both ends included.
///
/// Bounds may be negative: `Window { left: -1, right: 4 }` leaves the token itself out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// How far back the window reaches.
    pub left: i64,
    /// How far ahead it reaches.
    pub right: i64,
}

/// Packed documents, by their boundaries `cu_seqlens`: document `j` is `[c[j], c[j+1])`.
///
/// Boundaries may repeat (a document of no tokens), start after 0 and end before `L`; tokens outside
/// belong to no document and see nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Documents(Arc<[u64]>);

/// One interval of key positions for each query position; queries beyond the list see nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueryIntervals(Arc<[Interval<Position>]>);

/// A mask that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MaskError {
    /// Boundaries that decrease.
    #[error(
        "cu_seqlens must not decrease: entry {index} is {actual}, the one before it {previous}"
    )]
    Decreasing {
        /// Index of the offending entry.
        index: usize,
        /// The entry before.
        previous: u64,
        /// The entry.
        actual: u64,
    },
    /// No boundary at all.
    #[error("cu_seqlens needs at least one entry")]
    NoBoundary,
}

impl Window {
    fn visible(self, query: Position) -> Interval<Position> {
        let at = |offset: i128| -> u64 {
            (i128::from(query.0) + offset).clamp(0, i128::from(u64::MAX)) as u64
        };
        Interval::new(
            Position(at(-i128::from(self.left))),
            Position(at(i128::from(self.right) + 1)),
        )
    }
}

impl Documents {
    /// Documents with these boundaries.
    ///
    /// # Errors
    /// When there is none or they decrease.
    pub fn new(cu_seqlens: &[u64]) -> Result<Self, MaskError> {
        if cu_seqlens.is_empty() {
            return Err(MaskError::NoBoundary);
        }
        for (index, pair) in cu_seqlens.windows(2).enumerate() {
            if pair[1] < pair[0] {
                return Err(MaskError::Decreasing {
                    index: index + 1,
                    previous: pair[0],
                    actual: pair[1],
                });
            }
        }
        Ok(Self(cu_seqlens.into()))
    }

    /// The boundaries.
    pub fn cu_seqlens(&self) -> &[u64] {
        &self.0
    }

    fn visible(&self, query: Position) -> Interval<Position> {
        let next = self.0.partition_point(|&boundary| boundary <= query.0);
        if next == 0 || next == self.0.len() {
            return Interval::empty();
        }
        Interval::new(Position(self.0[next - 1]), Position(self.0[next]))
    }

    fn hull(&self, queries: Interval<Position>) -> Interval<Position> {
        let last = self.0.len() - 1;
        let before = self.0.partition_point(|&c| c <= queries.start().0).saturating_sub(1);
        let after = self.0.partition_point(|&c| c < queries.end().0).min(last);
        Interval::new(Position(self.0[before]), Position(self.0[after]))
    }
}

impl QueryIntervals {
    /// The given intervals, entry `i` for the query at position `i`.
    pub fn new(intervals: impl Into<Arc<[Interval<Position>]>>) -> Self {
        Self(intervals.into())
    }

    /// How many queries have an interval.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn visible(&self, query: Position) -> Interval<Position> {
        let index = usize::try_from(query.0).unwrap_or(usize::MAX);
        self.0.get(index).copied().unwrap_or_else(Interval::empty)
    }
}

impl Mask {
    /// The key positions that the query at `query` sees. The interval may reach beyond the sequence.
    pub fn visible(&self, query: Position) -> Interval<Position> {
        match self {
            Self::Full => everything(),
            Self::Causal => Interval::new(Position(0), Position(query.0.saturating_add(1))),
            Self::Window(window) => window.visible(query),
            Self::Documents(documents) => documents.visible(query),
            Self::Intervals(intervals) => intervals.visible(query),
            Self::Intersection(masks) => {
                masks.iter().fold(everything(), |seen, mask| seen.intersect(mask.visible(query)))
            }
        }
    }

    /// An interval that holds everything any query in `queries` sees, without looking at each.
    ///
    /// It may hold more. Empty for no queries.
    pub fn hull(&self, queries: Interval<Position>) -> Interval<Position> {
        if queries.is_empty() {
            return Interval::empty();
        }
        let last = Position(queries.end().0 - 1);
        match self {
            Self::Full | Self::Intervals(_) => everything(),
            Self::Causal => Interval::new(Position(0), self.visible(last).end()),
            Self::Window(window) => {
                Interval::new(window.visible(queries.start()).start(), window.visible(last).end())
            }
            Self::Documents(documents) => documents.hull(queries),
            Self::Intersection(masks) => {
                masks.iter().fold(everything(), |hull, mask| hull.intersect(mask.hull(queries)))
            }
        }
    }

    /// What both masks see.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Full, mask) | (mask, Self::Full) => mask,
            (Self::Intersection(mut masks), Self::Intersection(more)) => {
                masks.extend(more);
                Self::Intersection(masks)
            }
            (Self::Intersection(mut masks), mask) | (mask, Self::Intersection(mut masks)) => {
                masks.push(mask);
                Self::Intersection(masks)
            }
            (first, second) => Self::Intersection(vec![first, second]),
        }
    }
}

fn everything() -> Interval<Position> {
    Interval::from_len(u64::MAX)
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Causal => f.write_str("causal"),
            Self::Window(window) => write!(f, "window({},{})", window.left, window.right),
            Self::Documents(documents) => write!(f, "documents({})", documents.0.len() - 1),
            Self::Intervals(intervals) => write!(f, "intervals({})", intervals.len()),
            Self::Intersection(masks) => {
                for (index, mask) in masks.iter().enumerate() {
                    if index > 0 {
                        f.write_str("+")?;
                    }
                    write!(f, "{mask}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(mask: &Mask, query: u64, len: u64) -> (u64, u64) {
        let keys = mask.visible(Position(query)).intersect(Interval::from_len(len));
        if keys.is_empty() { (0, 0) } else { (keys.start().0, keys.end().0) }
    }

    #[test]
    fn each_mask_sees_its_interval() {
        let documents = Mask::Documents(Documents::new(&[2, 5, 5, 9]).unwrap());
        let window = |left, right| Mask::Window(Window { left, right });
        let cases: &[(&Mask, u64, (u64, u64))] = &[
            (&Mask::Full, 3, (0, 12)),
            (&Mask::Causal, 0, (0, 1)),
            (&Mask::Causal, 11, (0, 12)),
            (&window(2, 0), 1, (0, 2)),
            (&window(2, 1), 5, (3, 7)),
            (&window(-1, 4), 5, (6, 10)),
            (&window(4, -1), 5, (1, 5)),
            (&window(-3, 1), 5, (0, 0)),
            (&window(i64::MAX, i64::MAX), 5, (0, 12)),
            (&window(i64::MIN, i64::MAX), 5, (0, 0)),
            (&documents, 1, (0, 0)),
            (&documents, 2, (2, 5)),
            (&documents, 5, (5, 9)),
            (&documents, 9, (0, 0)),
        ];
        for (mask, query, expected) in cases {
            assert_eq!(seen(mask, *query, 12), *expected, "{mask} at {query}");
        }
    }

    #[test]
    fn the_hull_covers_every_query() {
        let free = Mask::Intervals(QueryIntervals::new(vec![
            Interval::new(Position(3), Position(4)),
            Interval::empty(),
            Interval::new(Position(0), Position(9)),
        ]));
        let masks = [
            Mask::Full,
            Mask::Causal,
            Mask::Window(Window { left: 2, right: -1 }),
            Mask::Window(Window { left: -2, right: 5 }),
            Mask::Documents(Documents::new(&[2, 2, 5, 8, 8, 10]).unwrap()),
            Mask::Documents(Documents::new(&[4]).unwrap()),
            free.clone(),
            Mask::Causal.and(Mask::Documents(Documents::new(&[0, 3, 12]).unwrap())),
        ];
        for mask in &masks {
            for start in 0..12 {
                for end in start..=12 {
                    let queries = Interval::new(Position(start), Position(end));
                    let hull = mask.hull(queries);
                    for query in queries.iter() {
                        let keys = mask.visible(query);
                        assert_eq!(keys.intersect(hull).len(), keys.len(), "{mask} {queries}");
                    }
                }
            }
        }
    }

    #[test]
    fn boundaries_that_cannot_be_are_refused() {
        assert_eq!(Documents::new(&[]), Err(MaskError::NoBoundary));
        let decreasing = MaskError::Decreasing { index: 2, previous: 4, actual: 3 };
        assert_eq!(Documents::new(&[0, 4, 3]), Err(decreasing));
    }
}
