//! Forward speed of one thread as a percentage of the FMA peak, both measured in the same minute.
//!
//! `cargo bench -p ringattn-kernel --bench forward [-- FILTER]`, where FILTER is a part of a row's
//! name, such as `avx512` or `d=64 causal`: more instruction sets and head dimensions than
//! `ringattn bench` measures. Rows are interleaved over rounds and the best round of each counts, on
//! the thread's own clock, so that other work on the machine shows little. The second percentage adds
//! up the best time of each work unit instead: an idle machine's, by estimate. FLOPs are
//! `4 * pairs * d`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and may stop")]

use ringattn_core::{
    AttentionShape, DType, Elements, ElementsView, Interrupted, Interval, Partial, Progress, Slot,
};
use ringattn_kernel::limits::fma_peak;
use ringattn_kernel::{Arrangement, Isa, Kernel, KeysValues, Problem, Rows, Work, thread_cpu_time};
use ringattn_oracle::Random;
use std::sync::Mutex;
use std::time::Duration;

struct Row {
    name: String,
    kernel: usize,
    shape: AttentionShape,
    q: Vec<f32>,
    k: Elements,
    v: Elements,
    intervals: Vec<Interval<Slot>>,
    /// Seconds of the best round.
    best: f64,
    /// Seconds of the best round of each stretch between two progress marks.
    stretches: Vec<f64>,
}

/// Notes the time of each progress mark.
#[derive(Default)]
struct Stopwatch(Mutex<Vec<Duration>>);

impl Stopwatch {
    fn mark(&self) {
        self.0.lock().unwrap().push(thread_cpu_time());
    }
}

impl Progress for Stopwatch {
    fn advance(&self) -> Result<(), Interrupted> {
        self.mark();
        Ok(())
    }
}

impl Row {
    fn flops(&self) -> f64 {
        let pairs: u64 = self.intervals.iter().map(|seen| seen.len()).sum();
        4.0 * pairs as f64 * self.shape.head_dim() as f64
    }

    fn percent(&self, seconds: f64, peaks: &[f64]) -> f64 {
        100.0 * self.flops() / seconds / peaks[self.kernel]
    }

    fn run(&mut self, kernel: &Kernel) {
        let tokens = self.intervals.len();
        let mut state = Partial::identity(self.shape, tokens).unwrap();
        // One head of queries and one of keys.
        let rows =
            |data| Rows::whole(data, Arrangement::token_major(1, tokens, self.shape.head_dim()));
        let work = Work {
            queries: rows(ElementsView::F32(&self.q)),
            block: KeysValues { keys: rows(self.k.view()), values: rows(self.v.view()) },
            intervals: &self.intervals,
        };
        let scale = 1.0 / (self.shape.head_dim() as f32).sqrt();
        let problem = Problem { shape: self.shape, softmax_scale: scale };
        let watch = Stopwatch::default();
        watch.mark();
        kernel.absorb(&problem, &work, &mut state, &watch).unwrap();
        watch.mark();
        let marks = watch.0.into_inner().unwrap();
        let stretches = marks.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
        self.best = self.best.min(stretches.clone().sum());
        self.stretches.resize(stretches.len(), f64::INFINITY);
        for (best, seconds) in self.stretches.iter_mut().zip(stretches) {
            *best = best.min(seconds);
        }
    }
}

fn rows(kernels: &[Kernel], filter: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for (kernel, isa) in kernels.iter().map(Kernel::isa).enumerate() {
        for (dtype, tokens) in [(DType::F32, 4096), (DType::Bf16, 4096), (DType::F32, 1024)] {
            for head_dim in [64, 80, 96, 128] {
                for mask in ["full", "causal"] {
                    let name = format!("{isa} {dtype} L={tokens} d={head_dim} {mask}");
                    if !name.contains(filter) || (isa == Isa::Scalar && filter != "scalar") {
                        continue;
                    }
                    let mut random = Random::new(1);
                    let seen = |row| if mask == "full" { tokens as u64 } else { row + 1 };
                    let normals = random.normals(tokens * head_dim);
                    rows.push(Row {
                        name,
                        kernel,
                        shape: AttentionShape::new(1, 1, head_dim).unwrap(),
                        q: random.normals(tokens * head_dim),
                        k: Elements::from_f32(normals, dtype),
                        v: Elements::from_f32(random.normals(tokens * head_dim), dtype),
                        intervals: (0..tokens as u64)
                            .map(|r| Interval::from_len(seen(r)))
                            .collect(),
                        best: f64::INFINITY,
                        stretches: Vec::new(),
                    });
                }
            }
        }
    }
    rows
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    let kernels: Vec<Kernel> =
        Isa::available().into_iter().map(|isa| Kernel::new(isa, 1).unwrap()).collect();
    let mut peaks = vec![0.0_f64; kernels.len()];
    let mut rows = rows(&kernels, &filter);
    for _ in 0..7 {
        for (peak, kernel) in peaks.iter_mut().zip(&kernels) {
            *peak = peak.max(fma_peak(kernel.isa()));
        }
        for row in &mut rows {
            row.run(&kernels[row.kernel]);
        }
    }
    for (peak, kernel) in peaks.iter().zip(&kernels) {
        println!("{:34} {:7.1} GFLOP/s", format!("{} peak", kernel.isa()), peak / 1e9);
    }
    for row in &rows {
        let best = row.percent(row.best, &peaks);
        let clean = row.percent(row.stretches.iter().sum(), &peaks);
        let speed = row.flops() / row.best / 1e9;
        println!("{:34} {speed:7.1} GFLOP/s {best:5.1} % {clean:5.1} %", row.name);
    }
}
