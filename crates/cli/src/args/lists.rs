//! Options that are lists of numbers.

use super::number::{NumberError, count, integer, number};
use ringattn::core::Rank;
use thiserror::Error;

/// How far a window reaches before and after the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowBounds {
    pub(crate) left: i64,
    pub(crate) right: i64,
}

/// Boundaries of packed documents, as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CuSeqlens(pub(crate) Vec<u64>);

/// Why a text is no such list.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum ListError {
    #[error("expected two whole numbers such as 4095,0 or -1,4")]
    Window,
    #[error("expected two whole numbers such as 4k,0 or -1,4: {bound:?}: {source}")]
    Bound { bound: String, source: NumberError },
    #[error("expected a rank and a factor above 0 such as 3:1.5")]
    Slow,
    #[error("entry {index} is {entry:?}: {source}")]
    Entry { index: usize, entry: String, source: NumberError },
}

/// `L,R`.
pub(crate) fn window(text: &str) -> Result<WindowBounds, ListError> {
    let (left, right) = text.split_once(',').ok_or(ListError::Window)?;
    let bound = |text: &str| {
        integer(text.trim()).map_err(|source| ListError::Bound { bound: text.to_owned(), source })
    };
    Ok(WindowBounds { left: bound(left)?, right: bound(right)? })
}

/// `a,b,...`.
pub(crate) fn cu_seqlens(text: &str) -> Result<CuSeqlens, ListError> {
    let entry = |(index, entry): (usize, &str)| {
        count(entry.trim()).map_err(|source| {
            let entry = entry.to_owned();
            ListError::Entry { index, entry, source }
        })
    };
    text.split(',').enumerate().map(entry).collect::<Result<_, _>>().map(CuSeqlens)
}

/// `R:F`.
pub(crate) fn slow(text: &str) -> Result<(Rank, f64), ListError> {
    let (rank, factor) = text.split_once(':').ok_or(ListError::Slow)?;
    let rank = count(rank.trim()).ok().and_then(|rank| u32::try_from(rank).ok());
    let factor = number(factor.trim()).ok().filter(|factor| *factor > 0.0 && factor.is_finite());
    rank.zip(factor).map(|(rank, factor)| (Rank(rank), factor)).ok_or(ListError::Slow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_may_be_negative() {
        assert_eq!(window("-1,4"), Ok(WindowBounds { left: -1, right: 4 }));
        assert_eq!(window("-4k, 8e10"), Ok(WindowBounds { left: -4000, right: 80_000_000_000 }));
        assert_eq!(window("4"), Err(ListError::Window));
        for text in ["1,2,3", "a,b", "1.5,2", ",", "99999999999999999999,0"] {
            assert!(matches!(window(text), Err(ListError::Bound { .. })), "{text}");
        }
    }

    #[test]
    fn a_slow_rank_has_a_factor() {
        assert_eq!(slow("3:1.5"), Ok((Rank(3), 1.5)));
        for text in ["3", "3:", ":2", "3:0", "3:-1", "-1:2", "1.5:2", "3:inf", "4294967296:2"] {
            assert_eq!(slow(text), Err(ListError::Slow), "{text}");
        }
    }

    #[test]
    fn boundaries_are_counts() {
        assert_eq!(cu_seqlens("0,3, 1k"), Ok(CuSeqlens(vec![0, 3, 1000])));
        for text in ["", "1,", "-1,2", "a"] {
            assert!(matches!(cu_seqlens(text), Err(ListError::Entry { .. })), "{text}");
        }
    }
}
