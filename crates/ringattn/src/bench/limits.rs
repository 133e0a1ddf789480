//! What so many threads of this machine do at best when they all run at once.

use super::BenchError;
use super::Speed;
use super::case::Case;
use super::rounds::Row;
use ringattn_engine::cpu::limits::{fma_peak, read_bandwidth};
use ringattn_engine::cpu::{BusyTime, Isa, KernelError, Pinning, Team};
use serde::Serialize;
use std::sync::{Barrier, Mutex, PoisonError};

/// The limits of so many threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Threads that run at once.
    pub threads: usize,
    /// Multiply-adds of all threads, in 10^9 floating-point operations per second.
    pub peak_gflops: f64,
    /// Main memory read by all threads, in 10^9 bytes per second, where a row is compared with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_gb_s: Option<f64>,
}

/// The best limits seen so far, by the number of threads.
pub(super) struct Limits {
    isa: Isa,
    best: Vec<Limit>,
}

impl Limits {
    /// The limits that `rows` need, and both of one thread.
    pub(super) fn new(isa: Isa, rows: &[Row]) -> Self {
        let mut best = vec![Limit { threads: 1, peak_gflops: 0.0, read_gb_s: Some(0.0) }];
        for case in rows.iter().map(|row| &row.case) {
            let (reads, threads) = (case.reads(), case.limit_threads());
            match best.iter_mut().find(|limit| limit.threads == threads) {
                Some(limit) if reads => limit.read_gb_s = Some(0.0),
                Some(_) => (),
                None => {
                    best.push(Limit { threads, peak_gflops: 0.0, read_gb_s: reads.then_some(0.0) })
                }
            }
        }
        Self { isa, best }
    }

    /// Measures each once more, but a bandwidth that none of `rows` is compared with only once.
    pub(super) fn measure(&mut self, rows: &[Row]) -> Result<(), BenchError> {
        for limit in &mut self.best {
            let peak = together(limit.threads, || fma_peak(self.isa))?;
            limit.peak_gflops = limit.peak_gflops.max(peak / 1e9);
            let reads = |case: &Case| case.reads() && case.limit_threads() == limit.threads;
            let compared = rows.iter().any(|row| reads(&row.case));
            if let Some(best) = &mut limit.read_gb_s
                && (compared || *best == 0.0)
            {
                *best = best.max(read_bandwidth(self.isa, limit.threads)? / 1e9);
            }
        }
        Ok(())
    }

    /// Raises the limit to what the row has reached.
    pub(super) fn include(&mut self, row: &Row) {
        let threads = row.case.limit_threads();
        let Some(limit) = self.best.iter_mut().find(|limit| limit.threads == threads) else {
            return;
        };
        match (row.speed(), &mut limit.read_gb_s) {
            (Speed::GbS(speed), Some(best)) => *best = best.max(speed),
            (Speed::GbS(_), None) => (),
            (Speed::Gflops(speed), _) => limit.peak_gflops = limit.peak_gflops.max(speed),
        }
    }

    /// All limits, that of one thread first.
    pub(super) fn all(&self) -> &[Limit] {
        &self.best
    }

    /// The row's speed in percent of its limit, which [`Limits::include`] has seen; 0 without one.
    pub(super) fn percent(&self, row: &Row) -> f64 {
        let threads = row.case.limit_threads();
        let limit = self.best.iter().find(|limit| limit.threads == threads);
        let (speed, limit) = match row.speed() {
            Speed::Gflops(speed) => (speed, limit.map(|limit| limit.peak_gflops)),
            Speed::GbS(speed) => (speed, limit.and_then(|limit| limit.read_gb_s)),
        };
        limit.filter(|&limit| limit > 0.0).map_or(0.0, |limit| 100.0 * speed / limit)
    }
}

/// The sum of what `measure` gives on so many threads that start at the same time.
fn together(threads: usize, measure: impl Fn() -> f64 + Sync) -> Result<f64, BenchError> {
    let team = Team::new(threads, Pinning::Free).map_err(KernelError::from)?;
    let (start, sum) = (Barrier::new(threads), Mutex::new(0.0));
    // One item for each thread: a thread that waits at the start takes no second one.
    team.each(vec![(); threads], &BusyTime::default(), |()| {
        start.wait();
        let speed = measure();
        *sum.lock().unwrap_or_else(PoisonError::into_inner) += speed;
        Ok::<_, BenchError>(())
    })?;
    Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
}
