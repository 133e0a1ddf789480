//! What so many threads of this machine do at best when they all run at once.

use super::BenchError;
use super::Speed;
use super::case::What;
use super::rounds::Row;
use ringattn_engine::cpu::Isa;
use ringattn_engine::cpu::limits::{fma_peak, read_bandwidth};
use serde::Serialize;
use std::sync::Barrier;
use std::thread;

/// The limits of so many threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Threads that run at once.
    pub threads: usize,
    /// Multiply-adds of all threads, in 10^9 floating-point operations per second.
    pub peak_gflops: f64,
    /// Main memory read by all threads, in 10^9 bytes per second.
    pub read_gb_s: f64,
}

/// The best limits seen so far, by the number of threads.
pub(super) struct Limits {
    isa: Isa,
    best: Vec<Limit>,
    /// Numbers of threads whose bandwidth some row is compared with.
    reading: Vec<usize>,
}

impl Limits {
    /// The limits that `rows` need, and those of one thread.
    pub(super) fn new(isa: Isa, rows: &[Row]) -> Self {
        let of = |row: &Row| row.case.threads;
        let sorted = |mut threads: Vec<usize>| {
            threads.sort_unstable();
            threads.dedup();
            threads
        };
        let threads = sorted(rows.iter().map(of).chain([1]).collect());
        let decode = rows.iter().filter(|row| row.case.what == What::Decode);
        let reading = sorted(decode.map(of).chain([1]).collect());
        let none = |threads| Limit { threads, peak_gflops: 0.0, read_gb_s: 0.0 };
        Self { isa, best: threads.into_iter().map(none).collect(), reading }
    }

    /// Measures each once more.
    pub(super) fn measure(&mut self) -> Result<(), BenchError> {
        for limit in &mut self.best {
            let peak = together(limit.threads, || fma_peak(self.isa));
            limit.peak_gflops = limit.peak_gflops.max(peak / 1e9);
            if self.reading.contains(&limit.threads) {
                let read = read_bandwidth(self.isa, limit.threads)?;
                limit.read_gb_s = limit.read_gb_s.max(read / 1e9);
            }
        }
        Ok(())
    }

    /// Raises the limit to what the row has reached.
    pub(super) fn include(&mut self, row: &Row) {
        if let Some(limit) = self.best.iter_mut().find(|limit| limit.threads == row.case.threads) {
            match row.speed() {
                Speed::Gflops(speed) => limit.peak_gflops = limit.peak_gflops.max(speed),
                Speed::GbS(speed) => limit.read_gb_s = limit.read_gb_s.max(speed),
            }
        }
    }

    /// The limit of so many threads; all zero for a number that was not measured.
    pub(super) fn of(&self, threads: usize) -> Limit {
        let found = self.best.iter().find(|limit| limit.threads == threads);
        found.copied().unwrap_or(Limit { threads, peak_gflops: 0.0, read_gb_s: 0.0 })
    }

    /// All limits, the fewest threads first.
    pub(super) fn all(self) -> Vec<Limit> {
        self.best
    }

    /// The row's speed in percent of its limit; call [`Limits::include`] before.
    pub(super) fn percent(&self, row: &Row) -> f64 {
        let limit = self.of(row.case.threads);
        match row.speed() {
            Speed::Gflops(speed) => 100.0 * speed / limit.peak_gflops,
            Speed::GbS(speed) => 100.0 * speed / limit.read_gb_s,
        }
    }
}

/// The sum of what `measure` gives on so many threads that start at the same time.
fn together(threads: usize, measure: impl Fn() -> f64 + Sync) -> f64 {
    if threads == 1 {
        return measure();
    }
    let start = Barrier::new(threads);
    let one = || {
        start.wait();
        measure()
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}
