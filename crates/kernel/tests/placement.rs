//! Where rows lie changes no bit, and rows that lie wrong are refused by name.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step stops the test")]

mod common;

use common::{Case, Seen, bits, kernels, shape};
use ringattn_core::{DType, Elements, Partial, Unwatched};
use ringattn_kernel::{
    Arrangement, Isa, Kernel, KernelError, KeysValues, OutputRows, Problem, Rows, StateMut, Work,
};
use ringattn_oracle::Random;

type Arrange = fn(usize, usize, usize) -> Arrangement;

const ORDERS: [(&str, Arrange); 2] =
    [("token-major", Arrangement::token_major), ("head-major", Arrangement::head_major)];
const TOKENS_PER_ROW: usize = 3;

/// A tensor that holds the rows of a token-major one at the listed tokens, and NaN elsewhere.
struct Spread {
    elements: Elements,
    arrangement: Arrangement,
    tokens: Vec<usize>,
}

impl Spread {
    fn new(
        dense: &Elements,
        (heads, head_dim): (usize, usize),
        arrange: Arrange,
        seed: u64,
    ) -> Self {
        let rows = dense.view().len() / (heads * head_dim);
        let total = TOKENS_PER_ROW * rows + 1;
        let tokens = shuffled(total, rows, seed);
        let mut values = vec![f32::NAN; heads * total * head_dim];
        let (arrangement, head_major) =
            (arrange(heads, total, head_dim), arrange(2, 2, 2) == Arrangement::head_major(2, 2, 2));
        for (slot, &token) in tokens.iter().enumerate() {
            for head in 0..heads {
                let row = if head_major { head * total + token } else { token * heads + head };
                for column in 0..head_dim {
                    let at = (slot * heads + head) * head_dim + column;
                    values[row * head_dim + column] = dense.view().get(at);
                }
            }
        }
        Self { elements: Elements::from_f32(values, dense.view().dtype()), arrangement, tokens }
    }

    fn rows(&self) -> Rows<'_> {
        Rows::listed(self.elements.view(), self.arrangement, &self.tokens)
    }
}

/// `count` different numbers below `total`, in no order.
fn shuffled(total: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed);
    let mut all: Vec<_> = (0..total).collect();
    for last in (1..total).rev() {
        all.swap(last, random.below(last as u64 + 1) as usize);
    }
    all.truncate(count);
    all
}

/// The state as `bits` gives it, from a buffer in which `y` lies spread out.
fn run_spread(case: &Case, kernel: &Kernel, queries: DType, arrange: Arrange) -> Partial {
    let (shape, rows) = (case.shape, case.rows());
    let (query_shape, key_shape) =
        ((shape.query_heads(), shape.head_dim()), (shape.key_heads(), shape.head_dim()));
    let q = Spread::new(&Elements::from_f32(case.q.clone(), queries), query_shape, arrange, 3);
    let (k, v) = (
        Spread::new(&case.k, key_shape, arrange, 5),
        // Values may lie otherwise than keys.
        Spread::new(&case.v, key_shape, Arrangement::head_major, 7),
    );
    let work = Work {
        queries: q.rows(),
        block: KeysValues { keys: k.rows(), values: v.rows() },
        intervals: &case.intervals,
    };
    let mut state = case.identity();
    let total = TOKENS_PER_ROW * rows;
    let arrangement = arrange(shape.query_heads(), total, shape.head_dim());
    // Two owners; the other's rows must keep what they hold.
    let lists = shuffled(total, total, 11);
    let (own, other) = lists.split_at(rows);
    let mut buffer = vec![0.0; total * shape.query_width()];
    let mut owners = OutputRows::split(&mut buffer, arrangement, [own, other]).unwrap();
    let (mut theirs, mut y) = (owners.pop().unwrap(), owners.pop().unwrap());
    for head in 0..shape.query_heads() {
        (0..other.len()).for_each(|slot| theirs.row_mut(head, slot).fill(7.0));
    }
    let problem = Problem { shape, softmax_scale: case.scale };
    let lent = StateMut { m: &mut state.m, z: &mut state.z, y: y.reborrow() };
    kernel.absorb(&problem, &work, lent, &Unwatched).unwrap();
    for (at, sums) in state.y.chunks_exact_mut(shape.head_dim()).enumerate() {
        sums.copy_from_slice(y.row(at % shape.query_heads(), at / shape.query_heads()));
    }
    for head in 0..shape.query_heads() {
        (0..other.len()).for_each(|slot| assert!(theirs.row(head, slot).iter().all(|&x| x == 7.0)));
    }
    state
}

#[test]
fn where_rows_lie_changes_no_bit() {
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        // The last two are decode shapes, with rows of whole and of broken vectors.
        for (heads, rows, seen) in [
            (shape(4, 2, 20), 110, Seen::Random),
            (shape(1, 1, 64), 110, Seen::Causal),
            (shape(4, 2, 64), 3, Seen::Random),
            (shape(2, 2, 20), 1, Seen::Full),
        ] {
            for queries in [DType::F32, DType::Bf16, DType::F16] {
                let mut case = Case::new(heads, (rows, 600), seen, dtype, 71);
                if queries != DType::F16 {
                    // A wild query, which takes the careful path; f16 has none.
                    case.q[3] = 2e13;
                }
                let rounded = Elements::from_f32(case.q, queries);
                case.q = (0..rounded.view().len()).map(|at| rounded.view().get(at)).collect();
                for kernel in kernels() {
                    let expected = bits(&case.run(&kernel));
                    for (order, arrange) in ORDERS {
                        let actual = bits(&run_spread(&case, &kernel, queries, arrange));
                        let context = format!("{} {order} q {queries} k {dtype}", kernel.isa());
                        assert_eq!(actual, expected, "{context}");
                    }
                }
            }
        }
    }
}

#[test]
fn threads_share_an_output_without_a_trace() {
    let case = Case::new(shape(6, 2, 48), (300, 900), Seen::Random, DType::F32, 73);
    let kernel = |threads| Kernel::new(Isa::detect(), threads).unwrap();
    let expected = bits(&case.run(&kernel(1)));
    for (order, arrange) in ORDERS {
        let actual = bits(&run_spread(&case, &kernel(3), DType::F32, arrange));
        assert_eq!(actual, expected, "{order}");
    }
}

#[test]
fn outputs_that_overlap_or_leave_the_buffer_are_refused() {
    let cases: [(&[&[usize]], &str); 5] = [
        (&[&[0, 1], &[2, 1]], "output: token 1 is given out twice"),
        (&[&[0, 3, 0]], "output: token 0 is given out twice"),
        (&[&[0], &[1, 4]], "output: slot 1 is said to be token 4 of 4"),
        (&[&[usize::MAX]], "output: slot 0 is said to be token 18446744073709551615 of 4"),
        (&[&[], &[0], &[3, 2, 1]], ""),
    ];
    for (_, arrange) in ORDERS {
        for (lists, message) in cases {
            let mut buffer = vec![0.0; 24];
            let lists = lists.iter().copied();
            let split = OutputRows::split(&mut buffer, arrange(2, 4, 3), lists);
            let refusal = split.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(refusal, message);
        }
        for tokens in [3, 5, usize::MAX] {
            let mut buffer = vec![0.0; 24];
            let whole = OutputRows::whole(&mut buffer, arrange(2, tokens, 3));
            let expected = tokens.saturating_mul(6);
            let refusal = KernelError::Length { tensor: "output", expected, actual: 24 };
            assert_eq!(whole.err(), Some(refusal));
        }
    }
}

#[test]
fn rows_that_leave_their_tensor_are_refused() {
    let case = Case::new(shape(2, 1, 4), (3, 5), Seen::Full, DType::F32, 79);
    let problem = Problem { shape: case.shape, softmax_scale: 1.0 };
    let kernel = Kernel::new(Isa::Scalar, 1).unwrap();
    for (_, arrange) in ORDERS {
        let spread = |dense: &Elements, heads| Spread::new(dense, (heads, 4), arrange, 1);
        let tensors =
            [spread(&Elements::F32(case.q.clone()), 2), spread(&case.k, 1), spread(&case.v, 1)];
        for (bad, name) in ["queries", "keys", "values"].into_iter().enumerate() {
            let mut lists = [0, 1, 2].map(|tensor| tensors[tensor].tokens.clone());
            let tokens = tensors[bad].arrangement.tokens();
            lists[bad][2] = tokens;
            let [queries, keys, values] = [0, 1, 2].map(|tensor| {
                let Spread { elements, arrangement, .. } = &tensors[tensor];
                Rows::listed(elements.view(), *arrangement, &lists[tensor])
            });
            let block = KeysValues { keys, values };
            let work = Work { queries, block, intervals: &case.intervals };
            let mut state = case.identity();
            let refusal = kernel.absorb(&problem, &work, &mut state, &Unwatched).err();
            let expected = KernelError::Row { tensor: name, slot: 2, token: tokens, tokens };
            assert_eq!(refusal, Some(expected));
            assert_eq!(bits(&state), bits(&case.identity()));
            let rows = [queries, keys, values][bad];
            assert!(rows.row(0, 2).is_empty() && rows.row(0, rows.len()).is_empty());
            assert!(rows.row(2, 0).is_empty() && rows.row(0, 1).len() == 4);
        }
    }
}
