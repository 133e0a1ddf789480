//! The kernel's parts by themselves, for those who change them: a few tiles, the ends of a long call,
//! one query against a long cache, packing and products of weights, exponentials.
//!
//! `cargo bench -p ringattn-kernel --bench parts [-- FILTER]`. An item is a floating-point operation,
//! so Gitem/s are GFLOP/s; where memory is the limit bytes are counted. Wall-clock time on this
//! processor's fastest instruction set: for comparisons between two versions on a quiet machine. What
//! counts as a figure is measured by `ringattn bench`.
#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use ringattn_core::{
    AttentionShape, DType, Elements, ElementsView, Interval, Partial, Slot, Unwatched,
};
use ringattn_kernel::dense::{Columns, PackedMatrix, StagedRows, Workspace, Write};
use ringattn_kernel::pointwise::{log_sum_exp, silu_multiply};
use ringattn_kernel::{Arrangement, Isa, Kernel, KeysValues, Problem, Rows, Work};
use ringattn_oracle::Random;

fn main() {
    divan::main();
}

/// One call of the kernel, on one thread.
struct Call {
    kernel: Kernel,
    problem: Problem,
    queries: Vec<f32>,
    keys: Elements,
    values: Elements,
    intervals: Vec<Interval<Slot>>,
    rows: usize,
}

impl Call {
    /// Every one of `queries` rows sees all of `rows` keys, in one head.
    fn new((queries, rows): (usize, usize), head_dim: usize, dtype: DType) -> Self {
        let mut random = Random::new(1);
        let mut normals = |tokens: usize| random.normals(tokens * head_dim);
        let shape = AttentionShape::new(1, 1, head_dim).unwrap();
        Self {
            kernel: Kernel::new(Isa::detect(), 1).unwrap(),
            problem: Problem { shape, softmax_scale: 1.0 / (head_dim as f32).sqrt() },
            queries: normals(queries),
            keys: Elements::from_f32(normals(rows), dtype),
            values: Elements::from_f32(normals(rows), dtype),
            intervals: vec![Interval::from_len(rows as u64); queries],
            rows,
        }
    }

    /// Row `i` of as many queries as keys sees the keys `i + 1 - window` to `i`.
    fn windowed(mut self, window: u64) -> Self {
        for (row, seen) in (0..).zip(&mut self.intervals) {
            let start = u64::saturating_sub(row + 1, window);
            *seen = Interval::new(Slot(start), Slot(row + 1));
        }
        self
    }

    fn flops(&self) -> ItemsCount {
        let pairs: u64 = self.intervals.iter().map(|seen| seen.len()).sum();
        ItemsCount::new(4 * pairs * self.problem.shape.head_dim() as u64)
    }

    fn bytes(&self) -> BytesCount {
        BytesCount::new(self.keys.bytes().len() + self.values.bytes().len())
    }

    fn run(&self) -> Partial {
        let rows = self.intervals.len();
        let mut state = Partial::identity(self.problem.shape, rows).unwrap();
        let head_dim = self.problem.shape.head_dim();
        let tensor =
            |data, tokens| Rows::whole(data, Arrangement::token_major(1, tokens, head_dim));
        let work = Work {
            queries: tensor(ElementsView::F32(&self.queries), rows),
            block: KeysValues {
                keys: tensor(self.keys.view(), self.rows),
                values: tensor(self.values.view(), self.rows),
            },
            intervals: &self.intervals,
        };
        self.kernel.absorb(&self.problem, &work, &mut state, &Unwatched).unwrap();
        state
    }
}

/// Queries and keys: less than a tile, one tile, many query tiles on one key tile, the reverse, and many of
/// both.
const SHAPES: [(usize, usize); 5] = [(24, 64), (96, 512), (1536, 512), (96, 8192), (3072, 4096)];

#[divan::bench(args = SHAPES, consts = [64, 128])]
fn absorb<const D: usize>(bencher: Bencher<'_, '_>, shape: (usize, usize)) {
    let call = Call::new(shape, D, DType::F32);
    bencher.counter(call.flops()).bench_local(|| call.run());
}

/// The window's two edges cross every tile.
#[divan::bench(args = [16, 128, 512])]
fn absorb_window(bencher: Bencher<'_, '_>, window: u64) {
    let call = Call::new((2048, 2048), 64, DType::F32).windowed(window);
    bencher.counter(call.flops()).bench_local(|| call.run());
}

/// Bytes of K and V per second; the cache is larger than any processor's.
#[divan::bench(args = [DType::F32, DType::Bf16, DType::F16], sample_count = 20)]
fn decode(bencher: Bencher<'_, '_>, dtype: DType) {
    let call = Call::new((1, 131_072), 128, dtype);
    bencher.counter(call.bytes()).bench_local(|| call.run());
}

/// Rows and columns of the up projection of SmolLM2-135M.
const WEIGHTS: (usize, usize) = (1536, 576);

fn with_types(rows: usize) -> [(usize, DType); 2] {
    [DType::F32, DType::Bf16].map(|dtype| (rows, dtype))
}

fn packed(dtype: DType) -> PackedMatrix {
    let normals = Random::new(2).normals(WEIGHTS.1);
    let read = |_: usize, to: &mut [f32]| to.copy_from_slice(&normals);
    PackedMatrix::pack(Isa::detect(), WEIGHTS, dtype, read).unwrap()
}

#[divan::bench(args = [DType::F32, DType::Bf16])]
fn pack_weights(bencher: Bencher<'_, '_>, dtype: DType) {
    let bytes = WEIGHTS.0 as u64 * WEIGHTS.1 as u64 * dtype.size();
    bencher.counter(BytesCount::new(bytes)).bench_local(|| packed(dtype));
}

/// Rows of `x`, and the type of the weights.
#[divan::bench(args = [1, 12, 96, 504].into_iter().flat_map(with_types))]
fn multiply(bencher: Bencher<'_, '_>, (rows, dtype): (usize, DType)) {
    let weights = packed(dtype);
    let (x, mut y) = (Random::new(3).normals(rows * WEIGHTS.1), vec![0.0; rows * WEIGHTS.0]);
    let (mut staged, mut workspace) = (StagedRows::default(), Workspace::default());
    let flops = 2 * rows * WEIGHTS.0 * WEIGHTS.1;
    bencher.counter(ItemsCount::new(flops)).bench_local(|| {
        let target = Columns { data: &mut y, width: WEIGHTS.0, first: 0 };
        let x = staged.stage(&x, WEIGHTS.1).unwrap();
        weights.multiply(0..WEIGHTS.0, x, (target, Write::Replace), &mut workspace).unwrap();
    });
}

/// An item is one `silu(gate) * up`.
#[divan::bench]
fn silu(bencher: Bencher<'_, '_>) {
    let up = Random::new(4).normals(1536);
    let gates = || up.clone();
    bencher
        .counter(ItemsCount::new(up.len()))
        .with_inputs(gates)
        .bench_local_refs(|gate| silu_multiply(Isa::detect(), gate, &up));
}

/// An item is one logit of the vocabulary.
#[divan::bench]
fn vocabulary_log_sum_exp(bencher: Bencher<'_, '_>) {
    let logits = Random::new(5).normals(49_152);
    bencher
        .counter(ItemsCount::new(logits.len()))
        .bench_local(|| log_sum_exp(Isa::detect(), black_box(&logits)));
}
