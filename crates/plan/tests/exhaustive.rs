//! Every plan for small shapes is proved, and its expectation equals what the proof counted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn_core::{
    AttentionShape, DType, Documents, Interval, Mask, Position, QueryIntervals, Rank, Window,
};
use ringattn_plan::{
    BlockId, Layout, LayoutKind, Operand, Plan, Problem, QueriesId, Schedule, check, expect,
};

const RINGS: [Schedule; 2] = [Schedule::RingPassKv, Schedule::RingPassQ];

fn masks(len: u64) -> Vec<Mask> {
    let window = |left, right| Mask::Window(Window { left, right });
    let documents = |cu: &[u64]| Mask::Documents(Documents::new(cu).unwrap());
    let third = len / 3;
    let free: Vec<_> = (0..len)
        .map(|i| Interval::new(Position(i * 7 % (len + 1)), Position(i * 5 % (len + 1) + i % 2)))
        .collect();
    vec![
        Mask::Full,
        Mask::Causal,
        window(2, 0),
        window(3, 2),
        window(-1, 4),
        window(5, -2),
        documents(&[0, third, third, len]),
        documents(&[third, len - third]),
        Mask::Causal.and(documents(&[0, third, len])).and(window(4, 4)),
        Mask::Intervals(QueryIntervals::new(free)),
    ]
}

fn layouts(len: u64, p: u32) -> Vec<Layout> {
    let choices = [
        (LayoutKind::Contiguous, None),
        (LayoutKind::Striped, None),
        (LayoutKind::Striped, Some(2)),
        (LayoutKind::Striped, Some(3)),
        (LayoutKind::Zigzag, None),
        (LayoutKind::Zigzag, Some(2)),
    ];
    choices.iter().map(|&(kind, block)| Layout::new(kind, block, len, p).unwrap()).collect()
}

fn problem(len: u64, mask: Mask) -> Problem {
    let shape = AttentionShape::new(4, 2, 8).unwrap();
    Problem { shape, queries: len, keys: len, mask, kv_dtype: DType::F32 }
}

#[test]
fn every_small_plan_is_proved() {
    for len in 0..=17 {
        for p in 1..=9 {
            for layout in layouts(len, p) {
                for mask in masks(len) {
                    for schedule in RINGS {
                        let problem = problem(len, mask.clone());
                        check_proof(&Plan::new(problem, layout.clone(), schedule).unwrap());
                    }
                }
            }
        }
    }
}

fn check_proof(plan: &Plan) {
    let prepared = plan.prepare();
    let proof = check(plan).unwrap_or_else(|e| panic!("{e}\n{plan}"));
    for (rank, proved) in (0..).map(Rank).zip(&proof.ranks) {
        let expected = expect(&prepared, rank);
        assert_eq!(proved.peak_kv_bytes, expected.peak_kv_bytes, "{plan}");
        assert_eq!(proved.sent_bytes, expected.sent_bytes, "{plan}");
        assert_eq!(proved.received_bytes, expected.received_bytes, "{plan}");
        assert_eq!(proved.received_kv_bytes, expected.received_kv_bytes, "{plan}");
        assert_eq!(proved.hops, expected.hops, "{plan}");
        // The own shard, the one in use and the one arriving; the state in use and the one going home.
        let most = match plan.schedule() {
            Schedule::RingPassQ => (1, 2, 2),
            _ => (3, 0, 0),
        };
        let (blocks, queries, states) =
            (proved.peak_blocks, proved.peak_queries, proved.peak_states);
        assert!(blocks <= most.0 && queries <= most.1 && states <= most.2, "{plan}");
    }
    let most = proof.ranks.iter().map(|rank| rank.received_bytes).max().unwrap();
    assert_eq!(prepared.most_received_bytes(), most);
}

/// A block is forwarded to the last rank that sees anything in it and no further, queries to the last
/// rank in whose block they see anything, by the intervals of every query.
#[test]
fn everything_travels_as_far_as_it_is_needed() {
    for len in 0..=17_u64 {
        for p in 1..=9 {
            for layout in layouts(len, p) {
                let windows =
                    (0..=len as i64 + 1).flat_map(|w| [(w, 0), (0, w), (w, 2 - w), (1, w)]);
                let windows = windows.map(|(left, right)| Mask::Window(Window { left, right }));
                for mask in masks(len).into_iter().chain(windows) {
                    for schedule in RINGS {
                        let problem = problem(len, mask.clone());
                        check_reaches(&Plan::new(problem, layout.clone(), schedule).unwrap());
                    }
                }
            }
        }
    }
}

fn check_reaches(plan: &Plan) {
    let p = plan.world_size();
    let mut hops = vec![0; p as usize];
    let prepared = plan.prepare();
    for rank in plan.key_layout().ranks() {
        let sent = prepared.steps(rank).flat_map(|step| step.send.iter());
        for operand in sent.filter_map(|transfer| transfer.cargo.operand()) {
            let (Operand::Block(BlockId(owner)) | Operand::Queries(QueriesId(owner))) = operand;
            hops[owner.index()] += 1;
        }
    }
    for owner in 0..p {
        let needs = |&distance: &u32| {
            let (owner, other) = (Rank(owner), Rank((owner + distance) % p));
            let (rank, block) = match plan.schedule() {
                Schedule::RingPassQ => (owner, BlockId(other)),
                _ => (other, BlockId(owner)),
            };
            plan.intervals(rank, block).any(|interval| !interval.is_empty())
        };
        let expected = (1..p).rev().find(needs).unwrap_or(0);
        assert_eq!(hops[owner as usize], expected, "of rank {owner}\n{plan}");
    }
}

#[test]
fn queries_and_keys_may_be_different_tokens() {
    for (queries, keys, p) in [(0, 9, 3), (9, 0, 3), (1, 13, 4), (13, 1, 4), (5, 11, 7)] {
        for kind in [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag] {
            let problem = Problem { queries, keys, ..problem(0, Mask::Causal) };
            let layout = |len| Layout::new(kind, None, len, p).unwrap();
            let (q, k) = (layout(queries), layout(keys));
            for schedule in RINGS {
                let (problem, q, k) = (problem.clone(), q.clone(), k.clone());
                check_proof(&Plan::with_layouts(problem, q, k, schedule).unwrap());
            }
        }
    }
}

#[test]
fn causal_pairs_follow_the_closed_forms() {
    for (n, p) in [(4_u64, 2_u64), (6, 3), (8, 4), (10, 5), (16, 8)] {
        let plan = |kind| {
            let layout = Layout::new(kind, None, n * p, p as u32).unwrap();
            Plan::new(problem(n * p, Mask::Causal), layout, Schedule::RingPassKv).unwrap()
        };
        for r in 0..p {
            let pairs = |kind| expect(&plan(kind).prepare(), Rank(r as u32)).pairs;
            assert_eq!(pairs(LayoutKind::Contiguous), n * n * r + n * (n + 1) / 2);
            assert_eq!(pairs(LayoutKind::Striped), p * n * (n - 1) / 2 + (r + 1) * n);
            assert_eq!(pairs(LayoutKind::Zigzag), n * (p * n + 1) / 2);
        }
    }
}

#[test]
fn the_traffic_law_holds() {
    let (n, p) = (512, 4);
    for kind in [LayoutKind::Striped, LayoutKind::Zigzag] {
        let layout = Layout::new(kind, None, n * u64::from(p), p).unwrap();
        let problem = problem(n * u64::from(p), Mask::Causal);
        let whole = problem.kv_bytes();
        let plan = Plan::new(problem, layout, Schedule::RingPassKv).unwrap();
        let prepared = plan.prepare();
        for rank in (0..p).map(Rank) {
            let expected = expect(&prepared, rank);
            assert_eq!(expected.resident_kv_bytes * 4, whole);
            assert_eq!(expected.received_bytes * 4, whole * 3);
            assert_eq!(expected.hops, 3);
        }
    }
}
