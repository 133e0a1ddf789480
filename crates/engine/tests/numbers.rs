//! Values that are not finite, overflow, storage types, and queries apart from keys.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use ringattn_comm::RunError;
use ringattn_core::{AttentionShape, DType, Elements, Mask, Position, Rank, Window};
use ringattn_engine::{EngineError, NonFinite, Tensor};
use ringattn_plan::{Layout, LayoutKind, Plan, Problem, Schedule};
use support::{Whole, assert_close, dense, ring, visible};

const RINGS: [Schedule; 2] = [Schedule::RingPassKv, Schedule::RingPassQ];

fn plan(len: u64, p: u32, mask: Mask) -> Plan {
    plan_by(Schedule::RingPassKv, len, p, mask)
}

fn plan_by(schedule: Schedule, len: u64, p: u32, mask: Mask) -> Plan {
    let shape = AttentionShape::new(4, 2, 16).unwrap();
    let problem = Problem { shape, queries: len, keys: len, mask, kv_dtype: DType::F32 };
    let layout = Layout::new(LayoutKind::Striped, None, len, p).unwrap();
    Plan::new(problem, layout, schedule).unwrap()
}

#[test]
fn what_a_query_sees_must_be_finite() {
    let plan = plan(40, 3, Mask::Causal);
    let whole = Whole::random(plan.problem().shape, 40, 40, 5);
    for (tensor, position) in [(Tensor::Query, 7), (Tensor::Key, 25), (Tensor::Value, 39)] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut whole = whole.clone();
            match tensor {
                Tensor::Query => whole.q[position * 64 + 3] = bad,
                Tensor::Key => whole.k[position * 32 + 31] = bad,
                Tensor::Value => whole.v[position * 32] = bad,
            }
            let error = ring(&plan, &whole, NonFinite::Refuse).unwrap_err();
            let RunError::Rank { culprit, error } = error else { panic!("{error}") };
            let owner = Rank(position as u32 % 3);
            assert_eq!(culprit, owner);
            let named = matches!(error, EngineError::NonFiniteInput { tensor: t, rank, position: p, .. }
                if t == tensor && rank == owner && p == Position(position as u64));
            assert!(named, "{error}");
        }
    }
}

#[test]
fn allowed_values_reach_their_readers_and_no_others() {
    RINGS.into_iter().for_each(check_readers);
}

fn check_readers(schedule: Schedule) {
    let plan = plan_by(schedule, 70, 4, Mask::Window(Window { left: 20, right: 3 }));
    let whole = Whole::random(plan.problem().shape, 70, 70, 6);
    let clean = ring(&plan, &whole, NonFinite::Allow).unwrap();
    let seen = visible(&plan);
    for position in [0_usize, 33, 69] {
        for key in [true, false] {
            let mut whole = whole.clone();
            // Key head 1 serves query heads 2 and 3.
            if key {
                whole.k[position * 32 + 20] = f32::NAN
            } else {
                whole.v[position * 32 + 20] = f32::NAN
            }
            let actual = ring(&plan, &whole, NonFinite::Allow).unwrap();
            for (row, interval) in seen.iter().enumerate() {
                for head in 0..4 {
                    let reads = head >= 2 && interval.iter().any(|slot| slot.index() == position);
                    let at = (row * 4 + head) * 16;
                    let out = &actual.out[at..at + 16];
                    if reads {
                        assert!(out.iter().any(|x| x.is_nan()), "row {row} head {head}");
                    } else {
                        assert_eq!(out, &clean.out[at..at + 16], "row {row} head {head}");
                    }
                }
            }
        }
    }
}

#[test]
fn overflow_is_an_error_that_names_the_query() {
    let plan = plan(10, 2, Mask::Causal);
    let mut whole = Whole::random(plan.problem().shape, 10, 10, 7);
    whole.q[6 * 64..6 * 64 + 64].fill(3e38);
    whole.k.fill(2.0);
    let error = ring(&plan, &whole, NonFinite::Refuse).unwrap_err();
    let RunError::Rank { error, .. } = error else { panic!("{error}") };
    let named = matches!(error, EngineError::Overflow { rank: Rank(0), position: Position(6) });
    assert!(named, "{error}");
}

#[test]
fn large_logits_stay_exact() {
    for size in [300.0_f32, 6e4, 1e5] {
        let plan = plan(33, 4, Mask::Causal);
        let mut whole = Whole::random(plan.problem().shape, 33, 33, 8);
        whole.q.iter_mut().for_each(|q| *q *= size);
        let actual = ring(&plan, &whole, NonFinite::Refuse).unwrap();
        assert_close(&actual, &dense(&plan, &whole), &size);
    }
}

#[test]
fn half_precision_blocks_are_exact_for_the_rounded_values() {
    for kv_dtype in [DType::Bf16, DType::F16] {
        let problem = Problem { kv_dtype, ..plan(150, 3, Mask::Causal).problem().clone() };
        let layout = Layout::new(LayoutKind::Zigzag, None, 150, 3).unwrap();
        let mut whole = Whole::random(problem.shape, 150, 150, 9);
        for x in [&mut whole.k, &mut whole.v] {
            let rounded = Elements::from_f32(x.clone(), kv_dtype);
            *x = (0..x.len()).map(|i| rounded.view().get(i)).collect();
        }
        for schedule in RINGS {
            let plan = Plan::new(problem.clone(), layout.clone(), schedule).unwrap();
            let actual = ring(&plan, &whole, NonFinite::Refuse).unwrap();
            assert_close(&actual, &dense(&plan, &whole), &plan);
            assert_eq!(actual.measured[0].counts.resident_kv_bytes, 50 * 2 * 32 * 2);
        }
    }
}

#[test]
fn queries_may_be_other_tokens_than_keys() {
    for (queries, keys) in [(0, 20), (20, 0), (3, 50), (50, 3)] {
        let shape = AttentionShape::new(2, 1, 8).unwrap();
        let problem = Problem { shape, queries, keys, mask: Mask::Full, kv_dtype: DType::F32 };
        let layout = |len| Layout::new(LayoutKind::Striped, None, len, 4).unwrap();
        let (q, k) = (layout(queries), layout(keys));
        let whole = Whole::random(shape, queries, keys, 10);
        for schedule in RINGS {
            let (problem, q, k) = (problem.clone(), q.clone(), k.clone());
            let plan = Plan::with_layouts(problem, q, k, schedule).unwrap();
            let actual = ring(&plan, &whole, NonFinite::Refuse).unwrap();
            assert_close(&actual, &dense(&plan, &whole), &plan);
        }
    }
}
