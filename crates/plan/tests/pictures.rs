//! Printed plans: a schedule's test is also its picture.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use expect_test::{Expect, expect};
use ringattn_core::{AttentionShape, DType, Mask, Window};
use ringattn_plan::{Layout, LayoutKind, Plan, Problem, Schedule};

fn picture(kind: LayoutKind, size: (u64, u32), mask: Mask, expected: &Expect) {
    picture_of(Schedule::RingPassKv, (kind, size), mask, expected);
}

fn picture_of(
    schedule: Schedule,
    (kind, (len, p)): (LayoutKind, (u64, u32)),
    mask: Mask,
    expected: &Expect,
) {
    let shape = AttentionShape::new(1, 1, 4).unwrap();
    let problem = Problem { shape, queries: len, keys: len, mask, kv_dtype: DType::F32 };
    let layout = Layout::new(kind, None, len, p).unwrap();
    let plan = Plan::new(problem, layout, schedule).unwrap();
    expected.assert_eq(&plan.to_string());
}

#[test]
fn pictures() {
    let window = Mask::Window(Window { left: 5, right: 0 });
    let ahead = Mask::Window(Window { left: 0, right: 3 });
    picture(
        LayoutKind::Striped,
        (32, 4),
        Mask::Causal,
        &expect![[r#"
        ring-pass-kv, striped in blocks of 1, 32 tokens on 4 ranks, mask causal
        rank |   0   1   2   3
           0 |   0   3   2   1
           1 |   1   0   3   2
           2 |   2   1   0   3
           3 |   3   2   1   0
    "#]],
    );
    picture(
        LayoutKind::Contiguous,
        (32, 4),
        Mask::Causal,
        &expect![[r#"
        ring-pass-kv, contiguous, 32 tokens on 4 ranks, mask causal
        rank |   0   1   2   3
           0 |   0   .   .   .
           1 |   1   0   .   .
           2 |   2   1   0   .
           3 |   3   2   1   0
    "#]],
    );
    picture(
        LayoutKind::Contiguous,
        (32, 4),
        window,
        &expect![[r#"
        ring-pass-kv, contiguous, 32 tokens on 4 ranks, mask window(5,0)
        rank |   0   1   2   3
           0 |   0   .   .   .
           1 |   1   0   .   .
           2 |   2   1   .   .
           3 |   3   2   .   .
    "#]],
    );
    picture(
        LayoutKind::Contiguous,
        (32, 4),
        ahead,
        &expect![[r#"
        ring-pass-kv, contiguous, 32 tokens on 4 ranks, mask window(0,3)
        rank |   0   1   2   3
           0 |   0 (3) (2)   1
           1 |   1   . (3)   2
           2 |   2 (1)   .   3
           3 |   3 (2) (1)   .
    "#]],
    );
    picture(
        LayoutKind::Zigzag,
        (17, 3),
        Mask::Full,
        &expect![[r#"
        ring-pass-kv, zigzag in blocks of 3, 17 tokens on 3 ranks, mask full
        rank |   0   1   2
           0 |   0   2   1
           1 |   1   0   2
           2 |   2   1   0
    "#]],
    );
    picture(
        LayoutKind::Striped,
        (2, 5),
        Mask::Full,
        &expect![[r#"
        ring-pass-kv, contiguous, 2 tokens on 5 ranks, mask full
        rank |   0   1   2   3   4
           0 |   0   .   .   .   1
           1 |   1   0   .   .   .
           2 |   . (1)   .   .   .
           3 |   .   . (1)   .   .
           4 |   .   .   . (1)   .
    "#]],
    );
    picture(
        LayoutKind::Striped,
        (0, 1),
        Mask::Full,
        &expect![[r#"
        ring-pass-kv, contiguous, 0 tokens on 1 ranks, mask full
        rank |   0
           0 |   .
    "#]],
    );
}

#[test]
fn queries_go_round_and_states_go_home() {
    let window = Mask::Window(Window { left: 5, right: 0 });
    let pass_q = |kind, mask, expected| {
        picture_of(Schedule::RingPassQ, (kind, (32, 4)), mask, expected);
    };
    pass_q(
        LayoutKind::Striped,
        Mask::Causal,
        &expect![[r#"
        ring-pass-q, striped in blocks of 1, 32 tokens on 4 ranks, mask causal
        rank |    0    1    2    3    4
           0 |    0   q3   q2   q1 >1<3
           1 |    1   q0   q3   q2 >2<0
           2 |    2   q1   q0   q3 >3<1
           3 |    3   q2   q1   q0 >0<2
    "#]],
    );
    pass_q(
        LayoutKind::Contiguous,
        window,
        &expect![[r#"
        ring-pass-q, contiguous, 32 tokens on 4 ranks, mask window(5,0)
        rank |    0    1    2    3    4
           0 |    0 (q3) (q2)   q1   >1
           1 |    1    . (q3)   q2 >2<0
           2 |    2 (q1)    .   q3 >3<1
           3 |    3 (q2) (q1)    .   <2
    "#]],
    );
}
