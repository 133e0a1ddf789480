//! Ranks, positions, slots and half-open intervals of them.
//!
//! A *position* counts tokens of the whole sequence; a *slot* counts the tokens of one rank's shard.
//! They are different types, so that one is never used for the other.

use std::fmt;

/// Anything that an [`Interval`] can range over.
pub trait Index: Copy + Ord + fmt::Debug {
    /// The index as a plain number.
    fn get(self) -> u64;
    /// The index with that number.
    fn from_u64(value: u64) -> Self;
}

macro_rules! index_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl Index for $name {
            fn get(self) -> u64 {
                self.0
            }
            fn from_u64(value: u64) -> Self {
                Self(value)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

index_type! {
    /// A token's global index in the sequence, `0 <= position < L`.
    Position
}
index_type! {
    /// A token's local index in the shard of the rank that owns it.
    Slot
}

impl Slot {
    /// The slot as an index into memory.
    ///
    /// A slot that is used for memory belongs to a shard that exists in memory, so its number fits.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One member of the ring, `0 <= rank < p`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank as an index into an array of `p` entries.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A half-open interval `[start, end)`; every empty interval has `start == end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interval<T> {
    start: T,
    end: T,
}

impl<T: Index> Interval<T> {
    /// `[start, end)`, empty at `start` when `end < start`.
    pub fn new(start: T, end: T) -> Self {
        Self { start, end: end.max(start) }
    }

    /// The empty interval at 0.
    pub fn empty() -> Self {
        Self::new(T::from_u64(0), T::from_u64(0))
    }

    /// `[0, len)`.
    pub fn from_len(len: u64) -> Self {
        Self::new(T::from_u64(0), T::from_u64(len))
    }

    /// The first index.
    pub fn start(self) -> T {
        self.start
    }

    /// The index behind the last.
    pub fn end(self) -> T {
        self.end
    }

    /// How many indices the interval holds.
    pub fn len(self) -> u64 {
        self.end.get() - self.start.get()
    }

    /// Whether it holds none.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether `index` lies inside.
    pub fn contains(self, index: T) -> bool {
        self.start <= index && index < self.end
    }

    /// The indices common to both.
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Every index in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = T> {
        (self.start.get()..self.end.get()).map(T::from_u64)
    }
}

impl<T: Index> fmt::Display for Interval<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start.get(), self.end.get())
    }
}
