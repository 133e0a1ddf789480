//! Layouts cut to every length: what stays keeps its place, and goes on as if the rest had never been.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringattn_core::{Interval, Position, Rank};
use ringattn_plan::{BlockOrder, Layout, LayoutKind, Segment};

const KINDS: [(LayoutKind, Option<u64>); 6] = [
    (LayoutKind::Contiguous, None),
    (LayoutKind::Striped, None),
    (LayoutKind::Striped, Some(3)),
    (LayoutKind::Zigzag, None),
    (LayoutKind::Zigzag, Some(1)),
    (LayoutKind::Zigzag, Some(2)),
];

/// A prompt, then tokens dealt out one by one, as a cache places them.
fn prompt_and_generated(
    (kind, block): (LayoutKind, Option<u64>),
    (prompt, generated): (u64, u64),
    p: u32,
) -> Layout {
    let mut layout = Layout::new(kind, block, prompt, p).unwrap();
    let positions = Interval::new(Position(prompt), Position(prompt));
    let first_rank = layout.least_loaded();
    let open = Segment { positions, block: 2, order: BlockOrder::Cyclic, first_rank };
    layout.append_open(open).unwrap();
    layout.grow(generated).unwrap();
    layout
}

/// By the owners of the longer layout alone.
fn check_cut(cut: &Layout, whole: &Layout, len: u64) {
    assert_eq!(cut.len(), len);
    assert_eq!(cut.ranks().map(|rank| cut.count(rank)).sum::<u64>(), len);
    for position in (0..whole.len()).map(Position) {
        let expected = whole.owner(position).filter(|_| position.0 < len);
        assert_eq!(cut.owner(position), expected, "{whole} cut to {len}, position {position}");
    }
    for rank in cut.ranks() {
        let expected: Vec<_> = whole.positions(rank).filter(|position| position.0 < len).collect();
        assert_eq!(cut.positions(rank).collect::<Vec<_>>(), expected, "{whole} cut to {len}");
    }
}

#[test]
fn what_stays_keeps_its_rank_and_slot() {
    for p in 1..=9 {
        for kind in KINDS {
            for prompt in [0, 1, 2, 5, 17] {
                let whole = prompt_and_generated(kind, (prompt, 7), p);
                for len in 0..=whole.len() {
                    let mut cut = whole.clone();
                    cut.truncate(len);
                    check_cut(&cut, &whole, len);
                }
                let mut same = whole.clone();
                same.truncate(whole.len() + 1);
                assert_eq!(same, whole);
            }
        }
    }
}

#[test]
fn a_cut_segment_grows_as_it_did() {
    for p in 1..=5 {
        for kind in KINDS {
            for kept in 1..=6 {
                let never = prompt_and_generated(kind, (9, kept), p);
                let mut back = never.clone();
                back.grow(5).unwrap();
                let whole = back.clone();
                back.truncate(9 + kept);
                assert_eq!(back, never);
                back.grow(5).unwrap();
                assert_eq!(back, whole);
            }
        }
    }
    let mut none = Layout::new(LayoutKind::Striped, None, 4, 3).unwrap();
    none.truncate(0);
    assert_eq!(none, Layout::empty(3).unwrap());
    assert_eq!(none.owner(Position(0)), None);
    assert_eq!(none.least_loaded(), Rank(0));
}
