//! Decode speed as a percentage of the read bandwidth, both measured in the same minute.
//!
//! `cargo bench -p ringattn-kernel --bench decode [-- FILTER]`, where FILTER is a part of a row's name,
//! such as `avx512 bf16` or `32/8`. Rounds of the limit and of the row alternate and the best of each
//! counts. Time is that of the threads' own clocks, shared evenly, so that other work on the machine
//! shows little; the last column is by the clock on the wall. Bytes are those of K and V.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and may stop")]

use half::{bf16, f16};
use ringattn_core::{
    AttentionShape, DType, Elements, ElementsView, Interval, Partial, PlainElement, Unwatched,
};
use ringattn_kernel::limits::read_bandwidth;
use ringattn_kernel::{Arrangement, Isa, Kernel, KeysValues, Problem, Rows, Work, thread_cpu_time};
use ringattn_oracle::Random;
use std::time::Instant;

const KEYS: usize = 131_072;
const ROUNDS: usize = 3;
/// Runs between two measurements of the limit.
const RUNS: usize = 8;

/// `len` numbers that repeat after 65537, at any length quickly made.
fn numbers(dtype: DType, len: usize, seed: u64) -> Elements {
    fn cycle<T: PlainElement>(pattern: &[f32], len: usize) -> Vec<T> {
        let pattern: Vec<T> = pattern.iter().map(|&x| T::from_f32(x)).collect();
        pattern.iter().copied().cycle().take(len).collect()
    }
    let pattern = Random::new(seed).normals(65_537);
    match dtype {
        DType::F32 => Elements::F32(cycle(&pattern, len)),
        DType::Bf16 => Elements::Bf16(cycle::<bf16>(&pattern, len)),
        DType::F16 => Elements::F16(cycle::<f16>(&pattern, len)),
    }
}

/// One row of the table: a shape, an element type, and the buffers that it reads.
struct Row {
    shape: AttentionShape,
    rows: usize,
    q: Vec<f32>,
    k: Elements,
    v: Elements,
}

impl Row {
    fn new(shape: AttentionShape, rows: usize, dtype: DType) -> Self {
        let len = KEYS * shape.key_width();
        Self {
            shape,
            rows,
            q: Random::new(1).normals(rows * shape.query_width()),
            k: numbers(dtype, len, 2),
            v: numbers(dtype, len, 3),
        }
    }

    fn bytes(&self) -> f64 {
        (self.k.bytes().len() + self.v.bytes().len()) as f64
    }

    /// Seconds of one run, on the threads' clocks and on the wall.
    fn run(&self, kernel: &Kernel) -> (f64, f64) {
        let mut state = Partial::identity(self.shape, self.rows).unwrap();
        let intervals = vec![Interval::from_len(KEYS as u64); self.rows];
        let (heads, head_dim) = (self.shape.key_heads(), self.shape.head_dim());
        let arrangement = Arrangement::token_major(heads, KEYS, head_dim);
        let queries = Arrangement::token_major(self.shape.query_heads(), self.rows, head_dim);
        let work = Work {
            queries: Rows::whole(ElementsView::F32(&self.q), queries),
            block: KeysValues {
                keys: Rows::whole(self.k.view(), arrangement),
                values: Rows::whole(self.v.view(), arrangement),
            },
            intervals: &intervals,
        };
        let softmax_scale = 1.0 / (self.shape.head_dim() as f32).sqrt();
        let problem = Problem { shape: self.shape, softmax_scale };
        let (wall, own, busy) = (Instant::now(), thread_cpu_time(), kernel.busy());
        kernel.absorb(&problem, &work, &mut state, &Unwatched).unwrap();
        let (wall, own, busy) = (wall.elapsed(), thread_cpu_time() - own, kernel.busy() - busy);
        let threads = kernel.threads() as f64;
        let used = if threads > 1.0 { own + busy } else { own };
        (used.as_secs_f64() / threads, wall.as_secs_f64())
    }

    fn measure(&self, kernel: &Kernel, name: &str) {
        let (mut limit, mut own, mut wall) = (0.0_f64, f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            limit = limit.max(read_bandwidth(kernel.isa(), kernel.threads()).unwrap());
            for _ in 0..RUNS {
                let times = self.run(kernel);
                own = own.min(times.0);
                wall = wall.min(times.1);
            }
        }
        let (speed, wall, limit) =
            (self.bytes() / own / 1e9, self.bytes() / wall / 1e9, limit / 1e9);
        let percent = 100.0 * speed / limit;
        println!("{name:44} {speed:6.1} GB/s {percent:5.1} % of {limit:6.1}   wall {wall:6.1}");
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    for head_dim in [64, 128] {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for (heads, key_heads, rows) in [(1, 1, 1), (8, 8, 1), (32, 8, 1), (8, 8, 4)] {
                let shape = AttentionShape::new(heads, key_heads, head_dim).unwrap();
                let mut row = None;
                for isa in Isa::available().into_iter().filter(|&isa| isa != Isa::Scalar) {
                    for threads in [1, 2] {
                        let name = format!(
                            "{isa} {dtype} d={head_dim} heads={heads}/{key_heads} rows={rows} threads={threads}"
                        );
                        if name.contains(&filter) {
                            let row = row.get_or_insert_with(|| Row::new(shape, rows, dtype));
                            row.measure(&Kernel::new(isa, threads).unwrap(), &name);
                        }
                    }
                }
            }
        }
    }
}
