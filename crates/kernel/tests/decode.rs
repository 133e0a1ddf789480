//! The decode shape: few query rows, any groups, dimensions, types and lengths, against the oracle.

#![allow(clippy::unwrap_used, reason = "a failed step stops the test")]

mod common;

use common::{Case, Seen, bits, kernels, shape, slots};
use ringattn_core::{Attention, DType, Elements, Interval, Partial, Slot};
use ringattn_kernel::{Isa, Kernel};
use ringattn_oracle::{Random, Tolerance};

const DTYPES: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];
/// Around the borders of chunks (64) and splits (256).
const KEYS: [usize; 11] = [0, 1, 3, 63, 64, 65, 130, 255, 256, 257, 3 * 256 + 5];
const BAD: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// What the rows of a few queries see.
const SIGHTS: [Sight; 6] =
    [Sight::Full, Sight::Drafts, Sight::Window, Sight::Random, Sight::Some, Sight::Empty];

#[derive(Clone, Copy, Debug)]
enum Sight {
    Full,
    /// Causal among the last keys, as drafts are verified.
    Drafts,
    /// The 70 keys before each draft.
    Window,
    Random,
    /// Every other row sees nothing.
    Some,
    Empty,
}

impl Sight {
    fn intervals(self, rows: usize, keys: usize, random: &mut Random) -> Vec<Interval<Slot>> {
        let own = |row: usize| (keys + row + 1).saturating_sub(rows);
        (0..rows)
            .map(|row| match self {
                Self::Full => slots(0, keys),
                Self::Drafts => slots(0, own(row)),
                Self::Window => slots(own(row).saturating_sub(70), own(row)),
                Self::Random => {
                    let mut at = || random.below(keys as u64 + 1) as usize;
                    slots(at(), at())
                }
                Self::Some if row % 2 == 0 => slots(keys / 3, keys),
                Self::Some | Self::Empty => slots(0, 0),
            })
            .collect()
    }

    fn case(
        self,
        heads: ringattn_core::AttentionShape,
        (rows, keys): (usize, usize),
        dtype: DType,
        seed: u64,
    ) -> Case {
        let mut case = Case::new(heads, (rows, keys), Seen::Full, dtype, seed);
        case.intervals = self.intervals(rows, keys, &mut Random::new(seed));
        case
    }
}

fn wild(elements: &mut Elements, at: usize, value: f32) {
    let mut values: Vec<f32> = (0..elements.view().len()).map(|i| elements.view().get(i)).collect();
    values[at] = value;
    *elements = Elements::from_f32(values, elements.view().dtype());
}

/// The numbers of one head and row: `m`, `z`, then `y`.
fn cell(state: &Partial, head: usize, row: usize) -> Vec<f32> {
    let (heads, d) = (state.shape().query_heads(), state.shape().head_dim());
    let at = head * state.rows() + row;
    let y = &state.y[(row * heads + head) * d..][..d];
    [state.m[at].0, state.z[at]].into_iter().chain(y.iter().copied()).collect()
}

fn is_poisoned(cell: &[f32]) -> bool {
    cell[0] == f32::INFINITY || cell[0].is_nan() || cell[1..].iter().any(|x| !x.is_finite())
}

fn words(cell: &[f32]) -> Vec<u32> {
    cell.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn all_rows_groups_and_dimensions_agree_with_the_oracle() {
    let kernels = kernels();
    let mut seed = 100;
    for head_dim in [1, 2, 7, 16, 64, 80, 96, 128, 256] {
        for (rows, group) in (1..=8).flat_map(|rows| [1, 2, 3, 4, 8].map(|group| (rows, group))) {
            seed += 1;
            // Each combination meets some of the types, sights and lengths; all meet all over the table.
            let dtype = DTYPES[seed as usize % 3];
            let sight = SIGHTS[seed as usize % 5];
            let keys = [65, 130, 63, 1025][seed as usize % 4];
            let heads = shape(2 * group, 2, head_dim);
            let case = sight.case(heads, (rows, keys), dtype, seed);
            for kernel in &kernels {
                let context = format!("{} {dtype} {sight:?} {seed}", kernel.isa());
                case.check(case.run(kernel), &context);
            }
        }
    }
}

#[test]
fn long_blocks_have_longer_splits() {
    // More than 128 splits of 256 keys, and one key in the last.
    let keys = 128 * 512 + 1;
    for (seed, sight) in SIGHTS.into_iter().enumerate() {
        let case = sight.case(shape(2, 1, 32), (2, keys), DTYPES[seed % 3], seed as u64);
        for kernel in kernels().iter().filter(|kernel| kernel.isa() != Isa::Scalar) {
            case.check(case.run(kernel), &format!("{} {sight:?}", kernel.isa()));
        }
    }
}

#[test]
fn all_lengths_and_intervals_agree_with_the_oracle() {
    let kernels = kernels();
    for (index, keys) in KEYS.into_iter().enumerate() {
        for (sight, dtype) in SIGHTS.into_iter().flat_map(|s| DTYPES.map(|dtype| (s, dtype))) {
            for (rows, head_dim) in [(1, 32), (5, 48)] {
                let seed = 1000 + index as u64;
                let case = sight.case(shape(3, 1, head_dim), (rows, keys), dtype, seed);
                for kernel in &kernels {
                    let context = format!("{} {dtype} {sight:?}", kernel.isa());
                    case.check(case.run(kernel), &context);
                }
            }
        }
    }
}

#[test]
fn long_sums_stay_exact() {
    let case = Sight::Full.case(shape(1, 1, 16), (1, 40_000), DType::F32, 7);
    for kernel in kernels() {
        case.check(case.run(&kernel), &format!("{}", kernel.isa()));
    }
}

#[test]
fn threads_change_no_bit() {
    for (sight, dtype) in SIGHTS.into_iter().flat_map(|s| DTYPES.map(|dtype| (s, dtype))) {
        let case = sight.case(shape(4, 2, 64), (3, 5000), dtype, 11);
        for isa in Isa::available() {
            let states =
                [1, 2, 3, 4].map(|threads| bits(&case.run(&Kernel::new(isa, threads).unwrap())));
            assert!(states.iter().all(|state| *state == states[0]), "{isa} {sight:?} {dtype}");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_company() {
    // What other rows see decides which keys are read beside a row's own, and in which groups.
    for (sight, dtype) in SIGHTS.into_iter().flat_map(|s| DTYPES.map(|dtype| (s, dtype))) {
        let case = sight.case(shape(2, 1, 96), (8, 1500), dtype, 13);
        for kernel in kernels() {
            let together = case.run(&kernel);
            for row in 0..8 {
                let mut alone = case.clone();
                let width = case.shape.query_width();
                alone.q = case.q[row * width..(row + 1) * width].to_vec();
                alone.intervals = vec![case.intervals[row]];
                let alone = alone.run(&kernel);
                for head in 0..2 {
                    let expected = words(&cell(&alone, head, 0));
                    let context = format!("{} {sight:?} {dtype} {row}", kernel.isa());
                    assert_eq!(words(&cell(&together, head, row)), expected, "{context}");
                }
            }
        }
    }
}

#[test]
fn blocks_in_any_cut_and_path_agree_with_the_oracle() {
    for dtype in DTYPES {
        let case = Sight::Drafts.case(shape(4, 2, 64), (4, 3000), dtype, 17);
        for kernel in kernels() {
            let mut forward = case.identity();
            for (start, end) in [(0, 1), (1, 1100), (1100, 1100), (1100, 3000)] {
                case.absorb(&kernel, start..end, &mut forward);
            }
            case.check(forward, &format!("{} {dtype} forward", kernel.isa()));
            let mut backward = case.identity();
            for (start, end) in [(1100, 3000), (1, 1100), (0, 1)] {
                case.absorb(&kernel, start..end, &mut backward);
            }
            case.check(backward, &format!("{} {dtype} backward", kernel.isa()));
        }
    }
}

#[test]
fn the_packed_path_agrees() {
    for dtype in DTYPES {
        let few = Sight::Drafts.case(shape(2, 2, 64), (8, 2000), dtype, 19);
        // The same rows among others are too many for the decode shape.
        let mut many = few.clone();
        many.q.extend(Random::new(23).normals(4 * few.shape.query_width()));
        many.intervals.extend([slots(0, 2000); 4]);
        let tolerance = Tolerance::of(&few.dense());
        for kernel in kernels() {
            let (few, many) = (few.run(&kernel).finish(), many.run(&kernel).finish());
            let close = |a: &f32, b: &f32, within: f64| f64::from((a - b).abs()) <= 2.0 * within;
            let Attention { out, lse } = &few;
            assert!(out.iter().zip(&many.out).all(|(a, b)| close(a, b, tolerance.out)));
            for (at, lse) in lse.iter().enumerate() {
                let other = many.lse[at / 8 * 12 + at % 8];
                assert!(close(&lse.0, &other.0, tolerance.lse), "{} {at}", kernel.isa());
            }
        }
    }
}

#[test]
fn extreme_logits_raise_the_maximum_late() {
    for (scale, keys) in [(30.0, 200), (-30.0, 1100)] {
        let mut case = Sight::Drafts.case(shape(2, 1, 16), (3, keys), DType::F32, 29);
        case.scale = scale;
        for kernel in kernels() {
            case.check(case.run(&kernel), &format!("{} {scale}", kernel.isa()));
        }
    }
}

#[test]
fn bad_numbers_reach_their_readers_and_nobody_else() {
    for dtype in DTYPES {
        for head_dim in [20, 64] {
            let mut clean = Sight::Full.case(shape(4, 2, head_dim), (4, 1200), dtype, 31);
            clean.intervals = vec![slots(0, 40), slots(30, 1100), slots(50, 64), slots(0, 0)];
            let width = clean.shape.key_width();
            for (slot, key_head) in
                [(0, 0), (35, 1), (45, 0), (63, 1), (64, 0), (1050, 1), (1150, 0)]
            {
                for (bad, tensor) in BAD.into_iter().flat_map(|bad| [(bad, 'k'), (bad, 'v')]) {
                    let mut dirty = clean.clone();
                    let target = if tensor == 'k' { &mut dirty.k } else { &mut dirty.v };
                    wild(target, slot * width + key_head * head_dim + 3, bad);
                    for kernel in kernels() {
                        let (expected, actual) = (clean.run(&kernel), dirty.run(&kernel));
                        for (head, row) in
                            (0..4).flat_map(|head| (0..4).map(move |row| (head, row)))
                        {
                            let sees = head / 2 == key_head
                                && clean.intervals[row].contains(Slot(slot as u64));
                            let context = format!(
                                "{} {dtype} {bad} {tensor} {slot} {head} {row}",
                                kernel.isa()
                            );
                            let actual = cell(&actual, head, row);
                            assert_eq!(is_poisoned(&actual), sees, "{context}");
                            if !sees {
                                let expected = cell(&expected, head, row);
                                assert_eq!(words(&actual), words(&expected), "{context}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn bad_queries_poison_their_own_row() {
    let clean = Sight::Some.case(shape(2, 1, 32), (4, 300), DType::Bf16, 37);
    for bad in BAD {
        let mut dirty = clean.clone();
        for row in [1, 2] {
            dirty.q[row * 64 + 32] = bad;
        }
        for kernel in kernels() {
            let (expected, actual) = (clean.run(&kernel), dirty.run(&kernel));
            for (head, row) in (0..2).flat_map(|head| (0..4).map(move |row| (head, row))) {
                // Row 1 sees nothing: its query is never read.
                let (expected, actual) = (cell(&expected, head, row), cell(&actual, head, row));
                assert_eq!(is_poisoned(&actual), (head, row) == (1, 2), "{} {bad}", kernel.isa());
                if (head, row) != (1, 2) {
                    assert_eq!(words(&actual), words(&expected), "{} {bad}", kernel.isa());
                }
            }
        }
    }
}

#[test]
fn large_numbers_are_summed_carefully_where_they_overflow() {
    // 2e38 * 2 - 2e38 * 2 + 1: the logit is 1, though its first term is beyond f32; and values whose
    // weighted sum is beyond f32 before it is divided.
    let mut case = Sight::Full.case(shape(1, 1, 3), (2, 70), DType::F32, 41);
    case.scale = 1.0;
    case.q = vec![2.0, 2.0, 1.0, 0.0, 0.0, 0.0];
    let mut k = vec![0.0; 210];
    k[..3].copy_from_slice(&[2e38, -2e38, 1.0]);
    k[9..12].copy_from_slice(&[-2e38, 2e38, 0.5]);
    case.k = Elements::F32(k);
    for kernel in kernels() {
        case.check(case.run(&kernel), &format!("{}", kernel.isa()));
    }
    let mut case = Sight::Full.case(shape(1, 1, 4), (1, 3), DType::F32, 43);
    (case.scale, case.q) = (1.0, vec![-2.0; 4]);
    wild(&mut case.k, 4, 3e38);
    for kernel in kernels() {
        assert!(is_poisoned(&cell(&case.run(&kernel), 0, 0)), "{}", kernel.isa());
    }
}

#[test]
fn every_stored_number_is_read_exactly() {
    // One key: the output is its value. All f16 and bf16 that are numbers, subnormal ones too.
    let head_dim = 64;
    for first in (0..=u16::MAX).step_by(head_dim) {
        let halves = first..=first + (head_dim as u16 - 1);
        let stored = [
            Elements::F16(halves.clone().map(half::f16::from_bits).collect()),
            Elements::Bf16(halves.map(half::bf16::from_bits).collect()),
        ];
        for v in stored {
            if (0..head_dim).any(|at| !v.view().get(at).is_finite()) {
                continue;
            }
            let mut case = Sight::Full.case(shape(1, 1, head_dim), (1, 1), v.view().dtype(), 47);
            case.v = v;
            for kernel in kernels() {
                let out = case.run(&kernel).finish().out;
                for (at, &out) in out.iter().enumerate() {
                    assert_eq!(out, case.v.view().get(at), "{} {first}", kernel.isa());
                }
            }
        }
    }
}
