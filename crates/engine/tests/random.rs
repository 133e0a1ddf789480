//! Random larger shapes over a real ring, against dense attention in f64.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use proptest::prelude::*;
use ringattn_core::{AttentionShape, DType, Documents, Mask, Window};
use ringattn_engine::NonFinite;
use ringattn_plan::{Layout, LayoutKind, Plan, Problem, Schedule};
use support::{Whole, assert_close, dense, ring};

fn mask() -> impl Strategy<Value = Mask> {
    let window =
        (-40_i64..300, -40_i64..300).prop_map(|(left, right)| Mask::Window(Window { left, right }));
    let documents = prop::collection::vec(0_u64..300, 1..6).prop_map(|mut cu| {
        cu.sort_unstable();
        Mask::Documents(Documents::new(&cu).unwrap())
    });
    let one = prop_oneof![Just(Mask::Full), Just(Mask::Causal), window, documents];
    prop::collection::vec(one, 1..4).prop_map(|masks| masks.into_iter().fold(Mask::Full, Mask::and))
}

fn layout() -> impl Strategy<Value = (LayoutKind, Option<u64>)> {
    prop_oneof![
        Just((LayoutKind::Contiguous, None)),
        prop::option::of(1_u64..60).prop_map(|block| (LayoutKind::Striped, block)),
        prop::option::of(1_u64..60).prop_map(|block| (LayoutKind::Zigzag, block)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn larger_shapes(
        (len, p) in (300_u64..520, 1_u32..8),
        (kind, block) in layout(),
        schedule in prop_oneof![Just(Schedule::RingPassKv), Just(Schedule::RingPassQ)],
        mask in mask(),
        (key_heads, group, head_dim) in (1_usize..3, 1_usize..4, 1_usize..100),
        seed in any::<u64>(),
    ) {
        let shape = AttentionShape::new(key_heads * group, key_heads, head_dim).unwrap();
        let problem = Problem { shape, queries: len, keys: len, mask, kv_dtype: DType::F32 };
        let layout = Layout::new(kind, block, len, p).unwrap();
        let plan = Plan::new(problem, layout, schedule).unwrap();
        let whole = Whole::random(shape, len, len, seed);
        let actual = ring(&plan, &whole, NonFinite::Refuse).unwrap();
        assert_close(&actual, &dense(&plan, &whole), &plan);
        let again = ring(&plan, &whole, NonFinite::Refuse).unwrap();
        prop_assert!(actual.out == again.out && actual.lse == again.lse);
    }
}
