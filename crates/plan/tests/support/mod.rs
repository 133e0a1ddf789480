//! Plans to price, and their price by walking every step.

#![allow(dead_code, reason = "each test file uses a part")]

use ringattn_core::{AttentionShape, DType, Mask, Window};
use ringattn_plan::{
    Cost, Layout, LayoutKind, Plan, Problem, RankCost, Schedule, StepCost, expect,
};

pub(crate) const KINDS: [LayoutKind; 3] =
    [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag];

pub(crate) fn window(left: i64, right: i64) -> Mask {
    Mask::Window(Window { left, right })
}

/// Four heads over two of dimension 8, 16-bit K and V: 64 bytes a token.
pub(crate) fn plan((kind, block): (LayoutKind, Option<u64>), len: u64, p: u32, mask: Mask) -> Plan {
    let shape = AttentionShape::new(4, 2, 8).unwrap();
    let problem = Problem { shape, queries: len, keys: len, mask, kv_dtype: DType::Bf16 };
    Plan::new(problem, Layout::new(kind, block, len, p).unwrap(), Schedule::RingPassKv).unwrap()
}

/// The price by the plan's own steps.
pub(crate) fn enumerated(plan: &Plan) -> Cost {
    let prepared = plan.prepare();
    let ranks: Vec<_> = plan.key_layout().ranks().collect();
    let mut steps = vec![StepCost::default(); ranks.len()];
    let cost = ranks.into_iter().map(|rank| {
        for step in prepared.steps(rank) {
            let most = &mut steps[step.index as usize];
            let pairs = step.attend.map_or(0, |attend| plan.pairs(attend.queries.0, attend.block));
            most.pairs = most.pairs.max(u128::from(pairs));
            let bytes = step.send.iter().map(|transfer| plan.cargo_bytes(transfer.cargo)).sum();
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
