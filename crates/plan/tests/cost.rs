//! Closed forms against enumeration: every count of the price is that of the plan's own steps.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use ringattn_core::{AttentionShape, DType, Documents, Mask, Rank};
use ringattn_plan::{
    BlockOrder, Cost, CostError, Layout, LayoutKind, MAX_ENUMERATED_RANKS, MAX_PRICED_RANKS,
    MAX_PRICED_TOKENS, Plan, Problem, Schedule, Segment, price,
};
use support::{KINDS, enumerated, plan, window};

const LAYOUTS: [(LayoutKind, Option<u64>); 7] = [
    (LayoutKind::Contiguous, None),
    (LayoutKind::Striped, None),
    (LayoutKind::Striped, Some(2)),
    (LayoutKind::Striped, Some(5)),
    (LayoutKind::Zigzag, None),
    (LayoutKind::Zigzag, Some(1)),
    (LayoutKind::Zigzag, Some(3)),
];

fn masks(len: i64) -> Vec<Mask> {
    let sizes = [0, 1, 3, len / 3, len / 2, len - 1, len + 5];
    let mut masks = vec![Mask::Full, Mask::Causal, window(i64::MAX, i64::MAX), window(0, i64::MAX)];
    masks.extend(sizes.iter().map(|&size| Mask::Causal.and(window(size, size))));
    masks.extend(sizes.iter().map(|&size| window(size, 0)));
    masks.extend(sizes.iter().map(|&size| window(size / 2, size)));
    masks.extend(sizes.iter().map(|&size| window(-size, size + 2)));
    masks.extend(sizes.iter().map(|&size| window(size + 2, -size)));
    masks.extend([window(-3, 1), window(-2 * len, 3 * len), window(3 * len, -2 * len)]);
    masks
}

fn compare(lens: &[u64], p: u32) {
    for &len in lens {
        for layout in LAYOUTS {
            for mask in masks(len as i64) {
                let plan = plan(layout, len, p, mask);
                assert_eq!(price(&plan).unwrap(), enumerated(&plan), "{plan}");
            }
        }
    }
}

#[test]
fn every_count_equals_the_enumerated_one() {
    for p in 1..=16 {
        let n = u64::from(p);
        compare(&[0, 1, n - 1, 2 * n, 2 * n + 1, 5 * n - 1, 6 * n, 7 * n + n / 2 + 1], p);
    }
}

#[test]
fn ragged_lengths_of_every_remainder() {
    let lens: Vec<_> = (20..70).collect();
    for p in [2, 3, 5, 7] {
        compare(&lens, p);
    }
}

/// `L = 2^40` over 65,536 ranks against the closed forms of the balance table, `n = L / p`.
#[test]
fn the_largest_sizes_are_priced_exactly() {
    let (len, p) = (1_u64 << 40, 1_u32 << 16);
    let (n, ranks) = (u128::from(len / u64::from(p)), u128::from(p));
    let all = ranks * n * (ranks * n + 1) / 2;
    let triangle = n * (n + 1) / 2;
    let makespans = [triangle + (ranks - 1) * n * n, ranks * triangle, n * (ranks * n + 1) / 2];
    for (kind, makespan) in KINDS.into_iter().zip(makespans) {
        let cost = price(&plan((kind, None), len, p, Mask::Causal)).unwrap();
        assert_eq!((cost.pairs(), cost.makespan_pairs()), (all, makespan), "{kind}");
        let last = cost.ranks.last().unwrap();
        let block = 64 * (len / u64::from(p));
        assert_eq!((last.hops, last.received_bytes), (65_535, 65_535 * block));
        assert_eq!((last.resident_kv_bytes, last.peak_kv_bytes), (block, 3 * block));
    }
}

#[test]
fn what_has_no_closed_form_is_enumerated_or_refused() {
    let documents = |end| Mask::Documents(Documents::new(&[3, 20, end]).unwrap());
    for kind in KINDS {
        let small = plan((kind, None), 50, 4, Mask::Causal.and(documents(41)));
        assert_eq!(price(&small).unwrap(), enumerated(&small));
        let refused = plan((kind, None), 1 << 30, 8, documents(41));
        assert!(matches!(price(&refused), Err(CostError::NoClosedForm { ranks: 8, .. })));
    }
    // A window over a reflected layout: only the steps have none.
    let many = MAX_ENUMERATED_RANKS + 1;
    let reflected = plan((LayoutKind::Zigzag, None), 1 << 20, many, window(1000, 0));
    assert!(matches!(price(&reflected), Err(CostError::NoClosedForm { .. })));
    let cyclic = plan((LayoutKind::Striped, None), 1 << 20, many, window(1000, 0));
    assert!(price(&cyclic).is_ok());
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let large = plan((LayoutKind::Striped, None), MAX_PRICED_TOKENS + 1, 2, Mask::Full);
    assert!(matches!(price(&large), Err(CostError::TooLarge { what: "the number of tokens", .. })));
    let many = plan((LayoutKind::Striped, None), 8, MAX_PRICED_RANKS + 1, Mask::Full);
    assert!(matches!(price(&many), Err(CostError::TooLarge { what: "the number of ranks", .. })));
}

/// K and V of 2^62 bytes: four layers of them are counted, a thousand are not.
#[test]
fn layers_are_summed_or_refused() {
    let shape = AttentionShape::new(1 << 10, 1 << 10, 1 << 9).unwrap();
    let (queries, keys) = (1 << 40, 1 << 40);
    let problem = Problem { shape, queries, keys, mask: Mask::Causal, kv_dtype: DType::F32 };
    let layout = Layout::new(LayoutKind::Striped, None, keys, 1 << 16).unwrap();
    let heavy = price(&Plan::new(problem, layout, Schedule::RingPassKv).unwrap()).unwrap();
    let four = Cost::sum(&[(1, &heavy), (3, &heavy)]).unwrap();
    let (one, last) = (heavy.ranks.last().unwrap(), four.ranks.last().unwrap());
    assert_eq!(last.received_bytes, 4 * (65_535 << 46));
    assert_eq!((last.pairs, last.hops), (4 * one.pairs, 4 * 65_535));
    assert_eq!((last.resident_kv_bytes, last.peak_kv_bytes), (1 << 46, 3 << 46));
    assert_eq!(four.makespan_pairs(), 4 * heavy.makespan_pairs());
    assert!(matches!(Cost::sum(&[(1000, &heavy)]), Err(CostError::Layers { layers: 1000, .. })));
    assert_eq!(Cost::sum(&[]), Err(CostError::NoLayer));
}

#[test]
fn grown_layouts_are_enumerated_and_uneven_ones_refused() {
    let shape = AttentionShape::new(4, 2, 8).unwrap();
    let problem =
        |queries| Problem { shape, queries, keys: 30, mask: Mask::Causal, kv_dtype: DType::Bf16 };
    let mut grown = Layout::new(LayoutKind::Zigzag, None, 20, 3).unwrap();
    let positions =
        ringattn_core::Interval::new(ringattn_core::Position(20), ringattn_core::Position(30));
    let (block, order, first_rank) = (2, BlockOrder::Cyclic, Rank(1));
    grown.append(Segment { positions, block, order, first_rank }).unwrap();
    let plan = Plan::new(problem(30), grown.clone(), Schedule::RingPassKv).unwrap();
    assert_eq!(price(&plan).unwrap(), enumerated(&plan));
    let one = Layout::new(LayoutKind::Striped, None, 1, 3).unwrap();
    let decode = Plan::with_layouts(problem(1), one, grown, Schedule::RingPassKv).unwrap();
    assert!(matches!(price(&decode), Err(CostError::Layouts { .. })));
}
