//! Every small shape, layout and mask over a real ring, against dense attention in f64.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ringattn_core::{
    AttentionShape, DType, Documents, Interval, Mask, Position, QueryIntervals, Window,
};
use ringattn_engine::NonFinite;
use ringattn_plan::{Layout, LayoutKind, Plan, Problem, Schedule};
use support::{Whole, assert_close, dense, ring, visible};

fn masks(len: u64) -> Vec<Mask> {
    let window = |left, right| Mask::Window(Window { left, right });
    let documents = |cu: &[u64]| Mask::Documents(Documents::new(cu).unwrap());
    let third = len / 3;
    let interval = |i: u64| {
        let (start, end) = (i * 7 % (len + 1), i * 5 % (len + 1) + i % 2);
        Interval::new(Position(start), Position(end))
    };
    let free = Mask::Intervals(QueryIntervals::new((0..len).map(interval).collect::<Vec<_>>()));
    vec![
        Mask::Full,
        Mask::Causal,
        window(2, 0),
        window(3, 2),
        window(-1, 4),
        window(5, -2),
        documents(&[0, third, third, len]),
        documents(&[third, third + 1, len - third.min(len)].map(|c| c.min(len)).sorted()),
        Mask::Causal.and(documents(&[0, third, len])),
        Mask::Causal.and(documents(&[0, third, len])).and(window(4, 4)),
        free.clone(),
        Mask::Causal.and(free),
    ]
}

trait Sorted {
    fn sorted(self) -> Self;
}

impl Sorted for [u64; 3] {
    fn sorted(mut self) -> Self {
        self.sort_unstable();
        self
    }
}

const LAYOUTS: [(LayoutKind, Option<u64>); 6] = [
    (LayoutKind::Contiguous, None),
    (LayoutKind::Striped, None),
    (LayoutKind::Striped, Some(2)),
    (LayoutKind::Striped, Some(3)),
    (LayoutKind::Zigzag, None),
    (LayoutKind::Zigzag, Some(2)),
];

/// Plants NaN in every key and value that nobody sees.
fn poisoned(plan: &Plan, whole: &Whole) -> Whole {
    let mut seen = vec![false; plan.problem().keys as usize];
    for interval in visible(plan) {
        interval.iter().for_each(|slot| seen[slot.index()] = true);
    }
    let mut whole = whole.clone();
    let width = plan.problem().shape.key_width();
    for (position, _) in seen.iter().enumerate().filter(|(_, seen)| !**seen) {
        whole.k[position * width..][..width].fill(f32::NAN);
        whole.v[position * width..][..width].fill(f32::NAN);
    }
    whole
}

fn every_small_shape(group: usize) {
    for len in 0..=17 {
        for mask in masks(len) {
            // Two key heads where the group leaves room, so that head indexing is exercised.
            let shape = AttentionShape::new(2 * group, 2, 4).unwrap();
            let whole = Whole::random(shape, len, len, len * 31 + group as u64);
            let problem = Problem {
                shape,
                queries: len,
                keys: len,
                mask: mask.clone(),
                kv_dtype: DType::F32,
            };
            let mut reference = None;
            for p in 1..=9 {
                for (kind, block) in LAYOUTS {
                    let layout = Layout::new(kind, block, len, p).unwrap();
                    for schedule in [Schedule::RingPassKv, Schedule::RingPassQ] {
                        let plan = Plan::new(problem.clone(), layout.clone(), schedule).unwrap();
                        let expected = reference.get_or_insert_with(|| dense(&plan, &whole));
                        let actual = ring(&plan, &whole, NonFinite::Refuse).unwrap();
                        assert_close(&actual, expected, &plan);
                        // Only the numbers count here, times differ.
                        let poisoned = poisoned(&plan, &whole);
                        let again = ring(&plan, &poisoned, NonFinite::Refuse).unwrap();
                        assert!(actual.out == again.out && actual.lse == again.lse, "{plan}");
                    }
                }
            }
        }
    }
}

#[test]
fn group_of_1() {
    every_small_shape(1);
}

#[test]
fn group_of_2() {
    every_small_shape(2);
}

#[test]
fn group_of_3() {
    every_small_shape(3);
}

#[test]
fn group_of_8() {
    every_small_shape(8);
}
