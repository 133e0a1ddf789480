//! One decoding step by the tree and by its two rivals, in computed time, against closed forms.
//!
//! One query over `L` cached keys on `p` ranks, `p` a power of two that divides `L`. With `a` seconds a
//! message, bandwidth `B`, `c` seconds of computing per shard: the tree, to all or to rank 0, takes
//! `c + log2 p (a + Hq (d + 2) 4 / B)`. The ring carries every shard to the rank of the query, `p - 1` hops
//! of which each passes on what came before, and gather fetches them from their owners: both take
//! `max(c, h) (p - 1) + c` with a hop of `h = a + K,V of a shard / B`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a table, and tests that panic")]

use ringattn_core::{AttentionShape, DType, Interval, Mask, Position, QueryIntervals};
use ringattn_plan::{
    Conditions, Layout, LayoutKind, Machine, NamedMachine, Plan, Problem, Schedule, Summary,
    expect, simulate,
};

const SCHEDULES: [Schedule; 4] =
    [Schedule::TreeReduce, Schedule::Tree, Schedule::RingPassKv, Schedule::Gather];

/// SmolLM2-135M: 9 query heads over 3 of 64.
fn plan(schedule: Schedule, keys: u64, p: u32) -> Plan {
    let shape = AttentionShape::new(9, 3, 64).unwrap();
    let sees_all = Interval::new(Position(0), Position(keys));
    let mask = Mask::Intervals(QueryIntervals::new([sees_all]));
    let problem = Problem { shape, queries: 1, keys, mask, kv_dtype: DType::Bf16 };
    let layout = Layout::new(LayoutKind::Striped, None, keys, p).unwrap();
    match schedule {
        Schedule::Tree | Schedule::TreeReduce => {
            Plan::with_replicated_queries(problem, layout, schedule)
        }
        _ => {
            let query = Layout::new(LayoutKind::Striped, None, 1, p).unwrap();
            Plan::with_layouts(problem, query, layout, schedule)
        }
    }
    .unwrap()
}

fn simulated(plan: &Plan, machine: Machine) -> Summary {
    let timeline = simulate(plan, &Conditions::of(machine)).unwrap();
    timeline.check().unwrap();
    timeline.summary()
}

/// Bytes that all ranks receive.
fn moved(plan: &Plan) -> u64 {
    let prepared = plan.prepare();
    plan.key_layout().ranks().map(|rank| expect(&prepared, rank).received_bytes).sum()
}

/// The longest that any rank waits, for peers and for messages under way.
fn longest_wait(summary: &Summary) -> f64 {
    let waits =
        summary.totals.iter().map(|rank| rank.peer_wait.seconds() + rank.transfer_wait.seconds());
    waits.fold(0.0, f64::max)
}

#[test]
fn simulated_steps_follow_the_closed_forms() {
    let keys = 8192;
    for named in ringattn_plan::MACHINES {
        let machine = named.machine;
        for p in [2_u32, 4, 8, 16] {
            let shard = keys / u64::from(p);
            let compute = 4.0 * shard as f64 * 9.0 * 64.0 / machine.flops;
            let hop = machine.latency + (shard * 2 * 3 * 64 * 2) as f64 / machine.bandwidth;
            let state = machine.latency + (9 * (64 + 2) * 4) as f64 / machine.bandwidth;
            let tree = compute + f64::from(p.ilog2()) * state;
            let ring = hop.max(compute) * f64::from(p - 1) + compute;
            for (schedule, expected) in SCHEDULES.into_iter().zip([tree, tree, ring, ring]) {
                let end = simulated(&plan(schedule, keys, p), machine).end.seconds();
                // Every span is rounded to a nanosecond.
                let slack = 2e-9 * f64::from(p);
                let what = format!("{} p={p} {schedule}: {end} s, by hand {expected}", named.name);
                assert!((end - expected).abs() <= slack, "{what}");
            }
        }
    }
}

/// SmolLM2's shape, 8192 cached tokens, 8 ranks: what one layer of one step costs.
#[test]
fn a_tree_is_faster_than_a_ring_at_eight_ranks() {
    let (keys, p) = (8192, 8);
    for name in ["cpu-1gbe", "cpu-10gbe", "a100-nvlink"] {
        let machine = NamedMachine::find(name).unwrap().machine;
        let [reduce, tree, ring, gather] = SCHEDULES.map(|schedule| {
            let plan = plan(schedule, keys, p);
            let summary = simulated(&plan, machine);
            let (end, wait, moved) = (summary.end.seconds(), longest_wait(&summary), moved(&plan));
            println!(
                "{name} ({} us a message, {} MB/s) {schedule}: {:.1} us, longest wait {:.1} us, \
                 {moved} bytes moved",
                machine.latency * 1e6,
                machine.bandwidth / 1e6,
                end * 1e6,
                wait * 1e6,
            );
            (end, wait, moved)
        });
        assert!(tree.0 < ring.0 && tree.0 < gather.0, "{name}");
        assert!(tree.1 < ring.1 && tree.1 < gather.1, "{name}");
        // Who needs the whole alone waits for no less, and the others not at all.
        assert!(reduce.0 <= tree.0 && reduce.1 <= tree.1, "{name}");
        // 7 states; 3 rounds of 8 states; 7 + 6 + .. + 1 hops of 1024 tokens; 7 of them.
        let kv = 1024 * 2 * 3 * 64 * 2;
        let moved = [7 * 2376, 3 * 8 * 2376, 28 * kv, 7 * kv];
        assert_eq!([reduce.2, tree.2, ring.2, gather.2], moved);
    }
}
