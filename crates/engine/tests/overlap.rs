//! Attention while messages travel and after they have come: the same bits.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ringattn_core::{AttentionShape, DType, Interval, Mask, Position, QueryIntervals, Window};
use ringattn_engine::{NonFinite, Overlap};
use ringattn_plan::{Layout, LayoutKind, Plan, Problem, Schedule};
use support::{Gathered, Whole, assert_close, dense, overlapping};

/// The last `queries` of `keys` tokens, by what each sees of those before it.
fn last(queries: u64, keys: u64) -> Mask {
    let sees = |query| Interval::new(Position(0), Position(keys - queries + query + 1));
    Mask::Intervals(QueryIntervals::new((0..queries).map(sees).collect::<Vec<_>>()))
}

/// Bits, since equal floats may differ by the sign of a zero.
fn bits(gathered: &Gathered) -> (Vec<u32>, Vec<u32>) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    (bits(&gathered.out), bits(&gathered.lse))
}

#[test]
fn without_overlap_the_bits_are_the_same() {
    let window = Mask::Causal.and(Mask::Window(Window { left: 11, right: 0 }));
    for (queries, keys, mask) in [
        (61, 61, Mask::Full),
        (61, 61, Mask::Causal),
        (61, 61, window),
        (40, 190, last(40, 190)),
        // Fewer than there are ranks, so that some have none.
        (2, 90, last(2, 90)),
    ] {
        let shape = AttentionShape::new(4, 2, 16).unwrap();
        let whole = Whole::random(shape, queries, keys, keys + queries);
        for p in [2, 3, 5] {
            for kind in [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag] {
                for schedule in [Schedule::RingPassQ, Schedule::RingPassKv] {
                    let kv_dtype = DType::F32;
                    let problem = Problem { shape, queries, keys, mask: mask.clone(), kv_dtype };
                    let layout = |len| Layout::new(kind, None, len, p).unwrap();
                    let layouts = (layout(queries), layout(keys));
                    let plan = Plan::with_layouts(problem, layouts.0, layouts.1, schedule).unwrap();
                    let [on, off] = [Overlap::On, Overlap::Off].map(|overlap| {
                        overlapping(&plan, &whole, (NonFinite::Refuse, overlap)).unwrap()
                    });
                    assert_close(&on, &dense(&plan, &whole), &plan);
                    assert_eq!(bits(&on), bits(&off), "{plan}");
                    for (on, off) in on.measured.iter().zip(&off.measured) {
                        assert_eq!(on.counts, off.counts, "{plan}");
                    }
                }
            }
        }
    }
}
