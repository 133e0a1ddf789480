//! The kernel against the oracle: shapes, masks, element types, splits, extreme logits; every
//! instruction set of this processor runs every case.

mod common;

use common::{ALL_SEEN, Case, Seen, kernels, shape};
use proptest::prelude::*;
use ringattn_core::{DType, Elements};
use ringattn_oracle::Random;

#[test]
fn head_dims() {
    for head_dim in [1, 3, 16, 17, 64, 80, 96, 128, 256] {
        for (seed, seen) in ALL_SEEN.into_iter().enumerate() {
            let case = Case::new(shape(2, 1, head_dim), (101, 290), seen, DType::F32, seed as u64);
            for kernel in kernels() {
                case.check(case.run(&kernel), &format!("{} {seen:?}", kernel.isa()));
            }
        }
    }
}

#[test]
fn rows_and_blocks() {
    let kernels = kernels();
    for rows in [0, 1, 5, 6, 7, 11, 12, 13, 97, 300] {
        for keys in [0, 1, 15, 16, 17, 31, 33, 255, 256, 257, 700] {
            for seen in ALL_SEEN {
                let case = Case::new(shape(1, 1, 24), (rows, keys), seen, DType::F32, 7);
                for kernel in &kernels {
                    case.check(case.run(kernel), &format!("{} {seen:?}", kernel.isa()));
                }
            }
        }
    }
}

#[test]
fn head_groups_and_element_types() {
    for group in [1, 2, 3, 8] {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let case = Case::new(shape(2 * group, 2, 40), (50, 130), Seen::Random, dtype, 11);
            for kernel in kernels() {
                case.check(case.run(&kernel), &format!("{} {dtype}", kernel.isa()));
            }
        }
    }
}

#[test]
fn blocks_longer_than_a_packed_chunk() {
    for seen in [Seen::Full, Seen::Causal, Seen::Random] {
        let case = Case::new(shape(1, 1, 16), (70, 5000), seen, DType::F32, 13);
        for kernel in kernels() {
            case.check(case.run(&kernel), &format!("{} {seen:?}", kernel.isa()));
        }
    }
}

#[test]
fn blocks_arrive_in_any_order() {
    let cuts = [0, 100, 101, 357, 357, 600];
    for seen in ALL_SEEN {
        let case = Case::new(shape(3, 1, 32), (100, 600), seen, DType::F32, 17);
        for kernel in kernels() {
            for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
                let mut state = case.identity();
                for part in order {
                    case.absorb(&kernel, cuts[part]..cuts[part + 1], &mut state);
                }
                case.check(state, &format!("{} {seen:?} {order:?}", kernel.isa()));
            }
        }
    }
}

#[test]
fn partial_states_merge() {
    let case = Case::new(shape(2, 2, 20), (40, 500), Seen::Random, DType::F32, 19);
    for kernel in kernels() {
        let mut whole = case.identity();
        for part in [300..500, 0..300] {
            let mut state = case.identity();
            case.absorb(&kernel, part, &mut state);
            whole.merge(&state).unwrap();
        }
        case.check(whole, &format!("{} merged", kernel.isa()));
    }
}

/// Logits `factor * (j mod 3 - 1)`, `factor * (-1)^j`, all equal, all far below 0.
fn extreme(kind: usize, factor: f32) -> Case {
    let mut case = Case::new(shape(1, 1, 2), (40, 300), Seen::Causal, DType::F32, 23);
    case.scale = 1.0;
    case.q = (0..40).flat_map(|_| [1.0, 0.0]).collect();
    let logit = |j: usize| match kind {
        0 => factor * (j % 3) as f32 - factor,
        1 => factor * if j.is_multiple_of(2) { 1.0 } else { -1.0 },
        2 => factor,
        _ => -factor,
    };
    case.k = Elements::F32((0..300).flat_map(|j| [logit(j), 1.0]).collect());
    case
}

#[test]
fn extreme_logits() {
    for factor in [0.0, 1e-45, 1e-38, 1e-6, 88.0, 100.0, 1e4, 6e4, 1e5, 1e12, 1e30] {
        for kind in 0..4 {
            let case = extreme(kind, factor);
            for kernel in kernels() {
                let context = format!("{} kind {kind} factor {factor:e}", kernel.isa());
                let state = case.run(&kernel);
                assert!(state.y.iter().all(|y| y.is_finite()), "{context}");
                case.check(state, &context);
            }
        }
    }
}

#[test]
fn a_block_far_above_or_below_the_last() {
    for step in [-800.0, -126.0, -24.0, 24.0, 126.0, 800.0] {
        let mut case = Case::new(shape(1, 1, 1), (20, 900), Seen::Full, DType::F32, 29);
        case.scale = 1.0;
        case.q = vec![1.0; 20];
        case.k = Elements::F32((0..900).map(|j| step * (j / 300) as f32).collect());
        for kernel in kernels() {
            case.check(case.run(&kernel), &format!("{} step {step}", kernel.isa()));
        }
    }
}

#[test]
fn any_finite_scale() {
    for scale in [0.0, -1.0, 3.5, 1e-30] {
        let mut case = Case::new(shape(1, 1, 8), (30, 100), Seen::Random, DType::F32, 31);
        case.scale = scale;
        for kernel in kernels() {
            case.check(case.run(&kernel), &format!("{} scale {scale}", kernel.isa()));
        }
    }
}

#[test]
fn long_dot_products_of_large_logits() {
    for (head_dim, scale) in [(128, 3.0), (255, 1.0), (256, 1.0), (256, 3.0)] {
        for seed in 0..4 {
            let shape = shape(4, 4, head_dim);
            let mut case = Case::new(shape, (97, 97), Seen::Random, DType::F32, 50 + seed);
            case.scale = scale;
            for kernel in kernels() {
                let context = format!("{} d={head_dim} scale {scale}", kernel.isa());
                case.check(case.run(&kernel), &context);
            }
        }
    }
}

#[test]
fn values_of_any_finite_size() {
    for size in [1e-40_f32, 1e-20, 1e11, 1e13, 1e30] {
        let mut case = Case::new(shape(1, 1, 8), (30, 300), Seen::Random, DType::F32, 37);
        let mut random = Random::new(37);
        case.v = Elements::F32(random.normals(300 * 8).into_iter().map(|x| x * size).collect());
        for kernel in kernels() {
            case.check(case.run(&kernel), &format!("{} values {size:e}", kernel.isa()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_shapes(
        (key_heads, group, head_dim) in (1_usize..4, 1_usize..4, 1_usize..140),
        (rows, keys) in (0_usize..130, 0_usize..600),
        (seen, dtype) in (0_usize..5, 0_usize..3),
        seed: u64,
    ) {
        let dtype = [DType::F32, DType::Bf16, DType::F16][dtype];
        let heads = shape(key_heads * group, key_heads, head_dim);
        let case = Case::new(heads, (rows, keys), ALL_SEEN[seen], dtype, seed);
        for kernel in kernels() {
            case.check(case.run(&kernel), &format!("{} seed {seed}", kernel.isa()));
        }
    }
}
