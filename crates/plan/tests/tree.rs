//! Tree decoding, to all ranks and to rank 0, and its rivals, for every small world: proofs, rounds, bytes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use expect_test::expect as snapshot;
use ringattn_core::{AttentionShape, DType, Interval, Mask, Position, QueryIntervals, Rank};
use ringattn_plan::{
    BlockOrder, Layout, LayoutKind, Plan, Problem, Schedule, Segment, Step, check, expect,
    reduce_rounds, tree_rounds,
};

/// `queries` new tokens behind `keys - queries` cached ones, each of which sees all before it or, with
/// a window, the last few.
fn problem(queries: u64, keys: u64, window: Option<u64>) -> Problem {
    let shape = AttentionShape::new(6, 2, 8).unwrap();
    let sees = |query: u64| {
        let position = keys - queries + query;
        let start = window.map_or(0, |window| (position + 1).saturating_sub(window));
        Interval::new(Position(start), Position(position + 1))
    };
    let mask = Mask::Intervals(QueryIntervals::new((0..queries).map(sees).collect::<Vec<_>>()));
    Problem { shape, queries, keys, mask, kv_dtype: DType::Bf16 }
}

/// A prompt, then generated tokens in blocks of 4 from the least loaded rank on.
fn layout(kind: LayoutKind, prompt: u64, keys: u64, p: u32) -> Layout {
    let mut layout = Layout::new(kind, None, prompt, p).unwrap();
    let positions = Interval::new(Position(prompt), Position(prompt));
    let first_rank = layout.least_loaded();
    let order = BlockOrder::Cyclic;
    layout.append_open(Segment { positions, block: 4, order, first_rank }).unwrap();
    for _ in prompt..keys {
        layout.grow(1).unwrap();
    }
    layout
}

const TREES: [Schedule; 2] = [Schedule::Tree, Schedule::TreeReduce];
const KINDS: [LayoutKind; 3] = [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag];

#[test]
fn every_small_tree_is_proved() {
    for p in 1..=17 {
        for kind in KINDS {
            for (queries, keys, window) in [
                (1, 1, None),
                (1, 2, None),
                (1, 5, None),
                (1, 40, None),
                (1, 40, Some(6)),
                (3, 19, None),
                (5, 33, Some(9)),
            ] {
                for schedule in TREES {
                    let layout = layout(kind, keys / 2, keys, p);
                    let problem = problem(queries, keys, window);
                    is_proved(
                        &Plan::with_replicated_queries(problem, layout, schedule).unwrap(),
                        queries,
                    );
                }
            }
        }
    }
}

/// `check` accepts the tree, and its counts are those of `expect` and of the formulas.
fn is_proved(plan: &Plan, queries: u64) {
    let proof = check(plan).unwrap_or_else(|e| panic!("{e}\n{plan}"));
    let (prepared, state) = (plan.prepare(), queries * 6 * 10 * 4);
    for (rank, proved) in (0..).map(Rank).zip(&proof.ranks) {
        let expected = expect(&prepared, rank);
        assert_eq!(proved.received_kv_bytes, 0);
        assert_eq!(proved.sent_bytes, expected.sent_bytes, "{plan}");
        assert_eq!(proved.received_bytes, expected.received_bytes, "{plan}");
        assert_eq!(proved.hops, expected.hops, "{plan}");
        // Hq (d + 2) f32 per query and message.
        assert_eq!(proved.received_bytes, proved.hops * state);
        if plan.schedule() == Schedule::TreeReduce {
            let given = u64::from(rank != Rank(0));
            assert_eq!(proved.sent_bytes, given * state, "{plan}");
        }
    }
    if plan.schedule() == Schedule::TreeReduce {
        let messages: u64 = proof.ranks.iter().map(|rank| rank.hops).sum();
        assert_eq!(messages, u64::from(plan.world_size() - 1), "{plan}");
        assert_eq!(proof.ranks[0].hops, u64::from(reduce_rounds(plan.world_size())), "{plan}");
    }
}

#[test]
fn rounds_follow_the_formula() {
    let to_all = [0, 1, 3, 2, 4, 4, 4, 3, 5, 5, 5, 5, 5, 5, 5, 4, 6];
    let to_root = [0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5];
    for (p, (all, root)) in (1..).zip(to_all.into_iter().zip(to_root)) {
        assert_eq!((tree_rounds(p), reduce_rounds(p)), (all, root), "p = {p}");
        for (schedule, expected, busiest) in [
            (Schedule::Tree, all, p.ilog2() + u32::from(!p.is_power_of_two())),
            (Schedule::TreeReduce, root, u32::from(p > 1)),
        ] {
            let layout = Layout::new(LayoutKind::Striped, None, 64, p).unwrap();
            let problem = problem(1, 64, None);
            let plan = Plan::with_replicated_queries(problem, layout, schedule).unwrap();
            // Counted: steps in which anybody sends, and the messages that the busiest rank sends.
            let steps: Vec<Vec<Step>> =
                (0..p).map(|rank| plan.prepare().steps(Rank(rank)).collect()).collect();
            let used = |index: usize| steps.iter().any(|steps| !steps[index].send.is_empty());
            let rounds = (0..steps[0].len()).filter(|&index| used(index)).count();
            assert_eq!(rounds as u32, expected, "{schedule} p = {p}");
            let sent = |steps: &Vec<Step>| steps.iter().filter(|s| !s.send.is_empty()).count();
            let most = steps.iter().map(sent).max().unwrap() as u32;
            assert_eq!(most, busiest, "{schedule} p = {p}");
        }
    }
}

#[test]
fn the_rivals_are_proved_and_move_the_whole_cache_or_none_of_it() {
    for p in 1..=17 {
        for kind in KINDS {
            for schedule in [Schedule::RingPassKv, Schedule::RingPassQ, Schedule::Gather] {
                let keys = layout(kind, 40, 50, p);
                let queries = Layout::new(LayoutKind::Striped, None, 1, p).unwrap();
                let plan =
                    Plan::with_layouts(problem(1, 50, None), queries, keys, schedule).unwrap();
                let proof = check(&plan).unwrap_or_else(|e| panic!("{e}\n{plan}"));
                let prepared = plan.prepare();
                for (rank, proved) in (0..).map(Rank).zip(&proof.ranks) {
                    let expected = expect(&prepared, rank);
                    assert_eq!(proved.sent_bytes, expected.sent_bytes, "{plan}");
                    assert_eq!(proved.received_bytes, expected.received_bytes, "{plan}");
                    assert_eq!(proved.peak_kv_bytes, expected.peak_kv_bytes, "{plan}");
                    assert!(proved.peak_blocks <= 3, "{plan}");
                }
                let own = plan.block_bytes(ringattn_plan::BlockId(Rank(0)));
                let moved = match schedule {
                    Schedule::RingPassQ => 0,
                    _ => plan.problem().kv_bytes() - own,
                };
                assert_eq!(proof.ranks[0].received_kv_bytes, moved);
            }
        }
    }
}

#[test]
fn gather_serves_sharded_queries_too() {
    for (len, p) in [(0, 3), (2, 5), (17, 4), (23, 7)] {
        for kind in KINDS {
            for mask in [Mask::Full, Mask::Causal] {
                let shape = AttentionShape::new(2, 1, 4).unwrap();
                let problem =
                    Problem { shape, queries: len, keys: len, mask, kv_dtype: DType::F32 };
                let layout = Layout::new(kind, None, len, p).unwrap();
                let plan = Plan::new(problem, layout, Schedule::Gather).unwrap();
                check(&plan).unwrap_or_else(|e| panic!("{e}\n{plan}"));
            }
        }
    }
}

#[test]
fn a_growing_layout_moves_nothing_and_spreads() {
    for p in 1..=9 {
        for kind in KINDS {
            let grown = layout(kind, 21, 21 + 4 * u64::from(p), p);
            for len in 21..grown.len() {
                let shorter = layout(kind, 21, len, p);
                for position in (0..len).map(Position) {
                    assert_eq!(shorter.owner(position), grown.owner(position));
                }
            }
            let before = Layout::new(kind, None, 21, p).unwrap();
            for rank in grown.ranks() {
                assert_eq!(grown.count(rank), before.count(rank) + 4);
            }
            let first = grown.owner(Position(21)).unwrap().0;
            assert!(before.ranks().all(|rank| before.count(first) <= before.count(rank)));
        }
    }
}

#[test]
fn pictures() {
    let picture = |p, schedule: Schedule, expected: expect_test::Expect| {
        let keys = Layout::new(LayoutKind::Striped, None, 12, p).unwrap();
        let plan = match schedule {
            Schedule::Tree | Schedule::TreeReduce => {
                Plan::with_replicated_queries(problem(1, 12, None), keys, schedule).unwrap()
            }
            _ => {
                let queries = Layout::new(LayoutKind::Striped, None, 1, p).unwrap();
                Plan::with_layouts(problem(1, 12, None), queries, keys, schedule).unwrap()
            }
        };
        expected.assert_eq(&plan.to_string());
    };
    picture(
        4,
        Schedule::Tree,
        snapshot![[r#"
        tree, striped in blocks of 1, 1 queries over 12 keys on 4 ranks, mask intervals(1)
        rank |   0   1   2
           0 |   0  =1  =2
           1 |   1  =0  =3
           2 |   2  =3  =0
           3 |   3  =2  =1
    "#]],
    );
    picture(
        6,
        Schedule::Tree,
        snapshot![[r#"
        tree, striped in blocks of 1, 1 queries over 12 keys on 6 ranks, mask intervals(1)
        rank |   0   1   2   3   4
           0 |   0  <4  =1  =2  >4
           1 |   1  <5  =0  =3  >5
           2 |   2   .  =3  =0   .
           3 |   3   .  =2  =1   .
           4 |   4  >0   .   .  <0
           5 |   5  >1   .   .  <1
    "#]],
    );
    picture(
        4,
        Schedule::TreeReduce,
        snapshot![[r#"
        tree-reduce, striped in blocks of 1, 1 queries over 12 keys on 4 ranks, mask intervals(1)
        rank |   0   1   2
           0 |   0  <1  <2
           1 |   1  >0   .
           2 |   2  <3  >0
           3 |   3  >2   .
    "#]],
    );
    picture(
        6,
        Schedule::TreeReduce,
        snapshot![[r#"
        tree-reduce, striped in blocks of 1, 1 queries over 12 keys on 6 ranks, mask intervals(1)
        rank |   0   1   2   3
           0 |   0  <4  <1  <2
           1 |   1  <5  >0   .
           2 |   2   .  <3  >0
           3 |   3   .  >2   .
           4 |   4  >0   .   .
           5 |   5  >1   .   .
    "#]],
    );
    picture(
        4,
        Schedule::RingPassQ,
        snapshot![[r#"
        ring-pass-q, striped in blocks of 1, 1 queries over 12 keys on 4 ranks, mask intervals(1)
        rank |    0    1    2    3    4
           0 |    0    .   <1   <2   <3
           1 |    .   q0   >0    .    .
           2 |    .    .   q0   >0    .
           3 |    .    .    .   q0   >0
    "#]],
    );
    picture(
        4,
        Schedule::Gather,
        snapshot![[r#"
        gather, striped in blocks of 1, 1 queries over 12 keys on 4 ranks, mask intervals(1)
        rank |   0   1   2   3
           0 |   0   3   2   1
           1 |   .   . (1)   .
           2 |   . (2)   .   .
           3 | (3)   .   .   .
    "#]],
    );
}
