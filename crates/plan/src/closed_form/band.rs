//! Masks that are a band around the diagonal: query `i` sees key `k` when `-right <= i - k <= left`.
//!
//! Full, causal and window masks and their intersections are bands, and only for these the costs have
//! closed forms. Knows no layout.

use ringattn_core::Mask;

/// A bound behind every distance there is: positions are below 2^64.
const UNBOUNDED: i128 = 1 << 66;

/// `-right <= i - k <= left`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) left: i128,
    pub(super) right: i128,
}

impl Band {
    /// The mask as a band; `None` for documents and for an interval per query.
    pub(super) fn of(mask: &Mask) -> Option<Self> {
        let all = Self { left: UNBOUNDED, right: UNBOUNDED };
        match mask {
            Mask::Full => Some(all),
            Mask::Causal => Some(Self { right: 0, ..all }),
            Mask::Window(window) => {
                Some(Self { left: i128::from(window.left), right: i128::from(window.right) })
            }
            Mask::Documents(_) | Mask::Intervals(_) => None,
            Mask::Intersection(masks) => masks.iter().try_fold(all, |band, mask| {
                let other = Self::of(mask)?;
                let (left, right) = (band.left.min(other.left), band.right.min(other.right));
                Some(Self { left, right })
            }),
        }
    }

    /// The band in which queries and keys have changed places.
    pub(super) fn mirrored(self) -> Self {
        Self { left: self.right, right: self.left }
    }

    /// Whether no query sees anything.
    pub(super) fn is_empty(self) -> bool {
        self.left + self.right < 0
    }

    /// Whether both edges of the band lie on the diagonal or outside a sequence of `len` tokens, so
    /// that two runs of different cycles see each other whole or not at all.
    pub(super) fn is_triangular(self, len: u64) -> bool {
        [self.left, self.right].iter().all(|&edge| edge == 0 || edge >= i128::from(len) - 1)
    }
}
