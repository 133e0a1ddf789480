//! Closed forms against enumeration: every count of the price is that of the plan's own steps.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn_core::{AttentionShape, DType, Mask, Window};
use ringattn_plan::{
    Cost, Layout, LayoutKind, Plan, Problem, RankCost, Schedule, StepCost, expect, price,
};

const LAYOUTS: [(LayoutKind, Option<u64>); 7] = [
    (LayoutKind::Contiguous, None),
    (LayoutKind::Striped, None),
    (LayoutKind::Striped, Some(2)),
    (LayoutKind::Striped, Some(5)),
    (LayoutKind::Zigzag, None),
    (LayoutKind::Zigzag, Some(1)),
    (LayoutKind::Zigzag, Some(3)),
];

fn window(left: i64, right: i64) -> Mask {
    Mask::Window(Window { left, right })
}

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

fn plan((kind, block): (LayoutKind, Option<u64>), len: u64, p: u32, mask: Mask) -> Plan {
    let shape = AttentionShape::new(4, 2, 8).unwrap();
    let problem = Problem { shape, queries: len, keys: len, mask, kv_dtype: DType::Bf16 };
    Plan::new(problem, Layout::new(kind, block, len, p).unwrap(), Schedule::RingPassKv).unwrap()
}

/// The price by the plan's steps.
fn enumerated(plan: &Plan) -> Cost {
    let prepared = plan.prepare();
    let ranks: Vec<_> = plan.key_layout().ranks().collect();
    let mut steps = vec![StepCost::default(); ranks.len()];
    let cost = ranks.into_iter().map(|rank| {
        for step in prepared.steps(rank) {
            let most = &mut steps[step.index as usize];
            let pairs = step.attend.map_or(0, |block| plan.pairs(rank, block));
            most.pairs = most.pairs.max(u128::from(pairs));
            let bytes = step.send.map_or(0, |transfer| plan.block_bytes(transfer.block));
            most.hop_bytes = most.hop_bytes.max(bytes);
        }
        let counts = expect(&prepared, rank);
        RankCost {
            queries: plan.query_layout().count(rank),
            pairs: u128::from(counts.pairs),
            resident_kv_bytes: counts.resident_kv_bytes,
            peak_kv_bytes: counts.peak_kv_bytes,
            sent_bytes: counts.sent_bytes,
            received_bytes: counts.received_bytes,
            hops: counts.hops,
        }
    });
    let ranks = cost.collect();
    Cost { shape: plan.problem().shape, ranks, steps }
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
