//! NaN, infinities and overflow: they reach exactly the rows that see them, and are never swallowed.

mod common;

use common::{Case, Seen, bits, kernels, shape, slots};
use ringattn_core::{DType, Elements, Log2, Partial};

const BAD: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// Two heads of keys; rows see causal-like intervals that leave some keys unseen.
fn case(dtype: DType) -> Case {
    let mut case = Case::new(shape(4, 2, 20), (120, 600), Seen::Full, dtype, 41);
    case.intervals = (0..120).map(|row| slots(row % 50, 40 + 4 * row)).collect();
    case.intervals[7] = slots(0, 0);
    case.intervals[100] = slots(300, 301);
    case
}

/// Overwrites one element.
fn plant(elements: &mut Elements, at: usize, value: f32) {
    let mut values: Vec<f32> = (0..elements.view().len()).map(|i| elements.view().get(i)).collect();
    values[at] = value;
    *elements = Elements::from_f32(values, elements.view().dtype());
}

/// Whether the state of `(head, row)` has a number that is none.
fn is_poisoned(state: &Partial, head: usize, row: usize) -> bool {
    let (heads, d) = (state.shape().query_heads(), state.shape().head_dim());
    let y = &state.y[(row * heads + head) * d..][..d];
    let (m, z) = (state.m[head * state.rows() + row].0, state.z[head * state.rows() + row]);
    m == f32::INFINITY || m.is_nan() || !z.is_finite() || y.iter().any(|y| !y.is_finite())
}

/// The bits of `(head, row)`.
fn cell_bits(state: &Partial, head: usize, row: usize) -> Vec<u32> {
    let (heads, d) = (state.shape().query_heads(), state.shape().head_dim());
    let at = head * state.rows() + row;
    let y = &state.y[(row * heads + head) * d..][..d];
    [state.m[at].0, state.z[at]].iter().chain(y).map(|x| x.to_bits()).collect()
}

#[test]
fn unseen_rows_change_no_bit() {
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        let clean = case(dtype);
        let width = clean.shape.key_width();
        for bad in BAD {
            let mut dirty = clean.clone();
            for slot in 0..clean.keys {
                let seen =
                    |i: &ringattn_core::Interval<_>| i.contains(ringattn_core::Slot(slot as u64));
                if clean.intervals.iter().any(seen) {
                    continue;
                }
                for x in 0..width {
                    plant(&mut dirty.k, slot * width + x, bad);
                    plant(&mut dirty.v, slot * width + x, bad);
                }
            }
            for kernel in kernels() {
                let context = format!("{} {dtype} {bad}", kernel.isa());
                assert_eq!(bits(&clean.run(&kernel)), bits(&dirty.run(&kernel)), "{context}");
            }
        }
    }
}

#[test]
fn seen_rows_reach_their_readers_only() {
    let clean = case(DType::F32);
    let (width, d) = (clean.shape.key_width(), clean.shape.head_dim());
    for (slot, key_head) in [(0, 0), (45, 1), (255, 0), (256, 1), (300, 0), (511, 1), (512, 0)] {
        for (bad, tensor) in BAD.into_iter().flat_map(|bad| [(bad, 'k'), (bad, 'v')]) {
            let mut dirty = clean.clone();
            let target = if tensor == 'k' { &mut dirty.k } else { &mut dirty.v };
            plant(target, slot * width + key_head * d + 3, bad);
            for kernel in kernels() {
                let (expected, actual) = (clean.run(&kernel), dirty.run(&kernel));
                for (head, row) in (0..4).flat_map(|h| (0..120).map(move |r| (h, r))) {
                    let sees = head / 2 == key_head
                        && clean.intervals[row].contains(ringattn_core::Slot(slot as u64));
                    let context = format!("{} {bad} {tensor} {slot} {head} {row}", kernel.isa());
                    assert_eq!(is_poisoned(&actual, head, row), sees, "{context}");
                    if !sees {
                        let same = cell_bits(&expected, head, row);
                        assert_eq!(same, cell_bits(&actual, head, row), "{context}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_bad_query_poisons_its_own_row() {
    let clean = case(DType::F32);
    let (heads, d) = (4, clean.shape.head_dim());
    for bad in BAD {
        let mut dirty = clean.clone();
        for (row, head) in [(7, 0), (11, 1), (100, 3)] {
            dirty.q[(row * heads + head) * d] = bad;
        }
        for kernel in kernels() {
            let (expected, actual) = (clean.run(&kernel), dirty.run(&kernel));
            for (head, row) in (0..4).flat_map(|h| (0..120).map(move |r| (h, r))) {
                // Row 7 sees nothing: its query is never read.
                let hit = (row, head) == (11, 1) || (row, head) == (100, 3);
                assert_eq!(is_poisoned(&actual, head, row), hit, "{} {head} {row}", kernel.isa());
                if !hit {
                    assert_eq!(cell_bits(&expected, head, row), cell_bits(&actual, head, row));
                }
            }
        }
    }
}

#[test]
fn poison_survives_later_blocks_and_merges() {
    let clean = case(DType::F32);
    let width = clean.shape.key_width();
    for slot in [10, 450] {
        let mut dirty = clean.clone();
        plant(&mut dirty.k, slot * width, f32::NAN);
        for kernel in kernels() {
            let sees = |row: usize| clean.intervals[row].contains(ringattn_core::Slot(slot as u64));
            let mut forward = dirty.identity();
            dirty.absorb(&kernel, 0..300, &mut forward);
            dirty.absorb(&kernel, 300..600, &mut forward);
            let (mut first, mut second) = (dirty.identity(), dirty.identity());
            dirty.absorb(&kernel, 0..300, &mut first);
            dirty.absorb(&kernel, 300..600, &mut second);
            first.merge(&second).unwrap();
            for row in 0..120 {
                assert_eq!(is_poisoned(&forward, 0, row), sees(row), "{} {row}", kernel.isa());
                assert_eq!(is_poisoned(&first, 0, row), sees(row), "{} {row}", kernel.isa());
            }
        }
    }
}

#[test]
fn overflow_is_never_swallowed() {
    // One key whose logit is beyond f32, on either side, among harmless ones.
    for huge in [1e38_f32, -1e38, 3e38] {
        let mut case = Case::new(shape(1, 1, 4), (30, 40), Seen::Causal, DType::F32, 43);
        case.scale = 1.0;
        case.q = vec![2.0; 30 * 4];
        for x in 0..4 {
            plant(&mut case.k, 10 * 4 + x, huge);
        }
        for kernel in kernels() {
            let state = case.run(&kernel);
            for row in 0..30 {
                let context = format!("{} {huge} row {row}", kernel.isa());
                assert_eq!(is_poisoned(&state, 0, row), row >= 10, "{context}");
            }
        }
    }
}

#[test]
fn partial_sums_beyond_f32_are_no_overflow() {
    // 2e38 * 2 - 2e38 * 2 + 1: the logit is 1, though its first term is beyond f32.
    let mut case = Case::new(shape(1, 1, 3), (1, 2), Seen::Full, DType::F32, 47);
    case.scale = 1.0;
    case.q = vec![2.0, 2.0, 1.0];
    case.k = Elements::F32(vec![2e38, -2e38, 1.0, 0.0, 0.0, 0.0]);
    for kernel in kernels() {
        case.check(case.run(&kernel), &format!("{}", kernel.isa()));
    }
}

#[test]
fn a_state_that_came_in_bad_stays_bad() {
    let case = case(DType::F32);
    for kernel in kernels() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut state = case.identity();
            state.m[5] = Log2(bad);
            state.z[5] = 1.0;
            case.absorb(&kernel, 0..600, &mut state);
            assert!(is_poisoned(&state, 0, 5), "{} {bad}", kernel.isa());
            assert!(!is_poisoned(&state, 0, 6), "{} {bad}", kernel.isa());
        }
    }
}
