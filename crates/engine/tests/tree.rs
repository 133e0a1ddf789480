//! Few new queries over a sharded cache: every schedule against dense attention in f64.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic, and one tells times")]

mod support;

use ringattn_core::{AttentionShape, DType, Interval, Mask, Position, QueryIntervals, Rank};
use ringattn_engine::NonFinite;
use ringattn_plan::{
    Activity, Layout, LayoutKind, Plan, Problem, Schedule, reduce_rounds, tree_rounds,
};
use support::{Whole, assert_close, dense, recorded, ring};

const SHAPE: (usize, usize, usize) = (6, 2, 16);
/// Runs of which the shortest waits are told.
const RUNS: u32 = 5;

/// The last `queries` tokens over all `keys`; with a window, over the last few before each.
fn problem(queries: u64, keys: u64, window: u64) -> Problem {
    let shape = AttentionShape::new(SHAPE.0, SHAPE.1, SHAPE.2).unwrap();
    let sees = |query: u64| {
        let end = keys - queries + query + 1;
        Interval::new(Position(end.saturating_sub(window)), Position(end))
    };
    let mask = Mask::Intervals(QueryIntervals::new((0..queries).map(sees).collect::<Vec<_>>()));
    Problem { shape, queries, keys, mask, kv_dtype: DType::F32 }
}

fn plan(problem: &Problem, schedule: Schedule, keys: Layout) -> Plan {
    match schedule {
        Schedule::Tree | Schedule::TreeReduce => {
            Plan::with_replicated_queries(problem.clone(), keys, schedule)
        }
        Schedule::RingPassKv | Schedule::RingPassQ | Schedule::Gather => {
            let queries =
                Layout::new(LayoutKind::Striped, None, problem.queries, keys.world_size()).unwrap();
            Plan::with_layouts(problem.clone(), queries, keys, schedule)
        }
    }
    .unwrap()
}

#[test]
fn every_schedule_agrees_with_dense_attention() {
    const ALL: u64 = u64::MAX;
    for (queries, keys, window) in [
        (1, 1, ALL),
        (1, 3, ALL),
        (1, 70, ALL),
        (1, 70, 9),
        (5, 64, ALL),
        (7, 40, 3),
        (11, 30, ALL),
    ] {
        let problem = problem(queries, keys, window);
        let whole = Whole::random(problem.shape, queries, keys, keys * 13 + queries);
        for p in (1..=9).chain([12, 17]) {
            for kind in [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag] {
                let attention = |schedule| {
                    let layout = Layout::new(kind, None, keys, p).unwrap();
                    let plan = plan(&problem, schedule, layout);
                    // Ranks that have the same answers must have the same bits; `ring` sees to it.
                    let actual = ring(&plan, &whole, NonFinite::Refuse).unwrap();
                    assert_close(&actual, &dense(&plan, &whole), &plan);
                    actual
                };
                for schedule in [Schedule::Gather, Schedule::RingPassKv, Schedule::RingPassQ] {
                    attention(schedule);
                }
                let (all, root) = (attention(Schedule::Tree), attention(Schedule::TreeReduce));
                let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&all.out), bits(&root.out), "p = {p} {kind}");
                assert_eq!(bits(&all.lse), bits(&root.lse), "p = {p} {kind}");
            }
        }
    }
}

#[test]
fn a_tree_moves_states_and_nothing_else() {
    for p in 2..=9_u32 {
        let problem = problem(3, 50, u64::MAX);
        let whole = Whole::random(problem.shape, 3, 50, 7);
        let layout = Layout::new(LayoutKind::Striped, None, 50, p).unwrap();
        let plan = plan(&problem, Schedule::Tree, layout);
        let measured = ring(&plan, &whole, NonFinite::Refuse).unwrap().measured;
        let state = 3 * (SHAPE.0 * (SHAPE.2 + 2) * 4) as u64;
        for (rank, counts) in (0..).map(Rank).zip(measured.iter().map(|m| m.counts)) {
            assert_eq!(counts.received_kv_bytes, 0);
            assert_eq!(counts.received_bytes, counts.hops * state);
            let butterfly = p.ilog2();
            let beyond = 1 << butterfly;
            let takes_in = u64::from(rank.0 + beyond < p);
            let expected = if rank.0 >= beyond { 1 } else { u64::from(butterfly) + takes_in };
            assert_eq!(counts.hops, expected, "p = {p} rank {rank}");
        }
        let rounds = if p.is_power_of_two() { p.ilog2() } else { p.ilog2() + 2 };
        assert_eq!(tree_rounds(p), rounds);
    }
}

/// `p - 1` messages, one from each rank but the root, `ceil(log2 p)` of them to the root.
#[test]
fn a_tree_to_the_root_moves_one_state_of_every_other_rank() {
    for p in 1..=9_u32 {
        let problem = problem(3, 50, u64::MAX);
        let whole = Whole::random(problem.shape, 3, 50, 7);
        let layout = Layout::new(LayoutKind::Striped, None, 50, p).unwrap();
        let plan = plan(&problem, Schedule::TreeReduce, layout);
        let measured = ring(&plan, &whole, NonFinite::Refuse).unwrap().measured;
        let state = 3 * (SHAPE.0 * (SHAPE.2 + 2) * 4) as u64;
        for (rank, counts) in (0..).map(Rank).zip(measured.iter().map(|m| m.counts)) {
            assert_eq!(counts.received_kv_bytes, 0);
            assert_eq!(counts.received_bytes, counts.hops * state);
            assert_eq!(counts.sent_bytes, u64::from(rank != Rank(0)) * state, "{plan}");
        }
        let messages: u64 = measured.iter().map(|m| m.counts.hops).sum();
        let rounds = f64::from(p).log2().ceil() as u32;
        assert_eq!((messages, reduce_rounds(p)), (u64::from(p - 1), rounds), "{plan}");
        assert_eq!(measured[0].counts.hops, u64::from(rounds), "{plan}");
    }
}

/// SmolLM2's shape behind 8192 tokens on 8 ranks, as it is run: messages, bytes and waits by the trace.
/// Waits are told and not compared: ranks that share cores wait for each other's turns as well.
#[test]
fn a_step_of_eight_ranks_is_traced() {
    let shape = AttentionShape::new(9, 3, 64).unwrap();
    let (keys, p) = (8192, 8);
    let problem = Problem { shape, kv_dtype: DType::Bf16, ..problem(1, keys, u64::MAX) };
    let whole = Whole::random(shape, 1, keys, 5);
    let state = 9 * (64 + 2) * 4;
    let shard = keys / 8 * 2 * 3 * 64 * 2;
    for (schedule, messages, bytes) in [
        (Schedule::Tree, 3 * 8, state),
        (Schedule::TreeReduce, 7, state),
        (Schedule::RingPassKv, 7 * 8 / 2, shard),
        (Schedule::Gather, 7, shard),
    ] {
        let plan =
            plan(&problem, schedule, Layout::new(LayoutKind::Striped, None, keys, p).unwrap());
        let waits = (0..RUNS).map(|_| {
            let (_, timeline) = recorded(&plan, &whole, NonFinite::Refuse).unwrap();
            timeline.check().unwrap();
            let received = timeline.spans.iter().filter_map(|span| match span.activity {
                Activity::Receive(message) => Some(message.bytes),
                _ => None,
            });
            assert_eq!(received.collect::<Vec<_>>(), vec![bytes; messages], "{schedule}");
            let totals = timeline.summary().totals;
            totals.iter().map(|rank| rank.peer_wait.0 + rank.transfer_wait.0).sum::<u64>()
        });
        let least = waits.min().unwrap() as f64 / 1e6;
        println!(
            "{schedule}: {messages} messages of {bytes} bytes; all ranks' waits {least:.3} ms, the \
             least of {RUNS} runs"
        );
    }
}

/// `(p - 1) Tq` rows of queries, `Hq d`, and as many of states, `Hq (d + 2)`; no key and no value.
#[test]
fn pass_q_moves_queries_and_states_and_nothing_else() {
    for (queries, p) in [(4, 2_u32), (6, 3), (5, 5), (16, 8), (3, 4)] {
        let problem = problem(queries, 50, u64::MAX);
        let whole = Whole::random(problem.shape, queries, 50, 7);
        let layout = Layout::new(LayoutKind::Striped, None, 50, p).unwrap();
        let plan = plan(&problem, Schedule::RingPassQ, layout);
        let measured = ring(&plan, &whole, NonFinite::Refuse).unwrap().measured;
        let (heads, head_dim) = (SHAPE.0 as u64, SHAPE.2 as u64);
        for (rank, counts) in (0..).map(Rank).zip(measured.iter().map(|m| m.counts)) {
            let (own, others) = (plan.query_count(rank), queries - plan.query_count(rank));
            let states = u64::from(p - 1) * own;
            let expected = 4 * heads * (others * head_dim + states * (head_dim + 2));
            assert_eq!(counts.received_bytes, expected, "{plan}");
            assert_eq!(counts.received_kv_bytes, 0);
            assert_eq!(counts.peak_kv_bytes, counts.resident_kv_bytes);
        }
    }
}

#[test]
fn inputs_that_are_not_finite_are_found_unless_they_were_checked() {
    let problem = problem(1, 20, u64::MAX);
    let mut whole = Whole::random(problem.shape, 1, 20, 3);
    whole.k[7 * SHAPE.1 * SHAPE.2] = f32::NAN;
    let layout = Layout::new(LayoutKind::Striped, None, 20, 3).unwrap();
    let plan = plan(&problem, Schedule::Tree, layout);
    let error = |what| ring(&plan, &whole, what).unwrap_err().to_string();
    assert!(error(NonFinite::Refuse).contains("k holds a NaN"), "{}", error(NonFinite::Refuse));
    assert!(error(NonFinite::CheckedInputs).contains("overflows"));
}
