//! How fast this machine attends, beside what it could do at best in the same minute.
//!
//! A [`Case`] is a row to be measured: plain data. Rounds interleave all rows with the measurement of
//! the limits, and the best round of each counts, so that a slow phase of the machine hits all alike.
//! Speeds are GFLOP/s (`4 * pairs * d` floating-point operations per query head of attention, two per
//! multiply-add of a matrix product) or, of decoding, GB/s of K and V or of packed weights read. A percentage compares a row with the
//! best limit of as many threads running at once; a ring row's speed is per second of processor time
//! summed over its ranks, and its limit that of one core. What a row reaches the machine can do, so a
//! limit is never below its rows.

mod attention;
mod case;
mod dense;
mod inputs;
mod limits;
mod machine;
mod narrow;
mod ring;
mod rounds;
mod stored;

pub use case::{BenchMask, Case, What};
pub use limits::Limit;
pub use stored::Stored;

use crate::error::Error;
use crate::host;
use crate::options::RunOptions;
use limits::Limits;
use ringattn_core::{Interrupted, OutOfMemory, Progress};
use ringattn_engine::cpu::dense::DenseError;
use ringattn_engine::cpu::{Isa, KernelError};
use rounds::{Clock, Row};
use serde::Serialize;
use thiserror::Error;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchSize {
    /// Every row, about two minutes.
    Full,
    /// The rows that tell most, about 15 seconds.
    Quick,
    /// The rows of [`BenchSize::Quick`] over few tokens, once: too short to mean anything.
    Smallest,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Which rows, and for how long.
    pub size: BenchSize,
    /// Only rows whose text, such as `decode bf16 heads=8/2 d=128`, contains this.
    pub filter: String,
    /// The revision that the program was built from, for the report.
    pub commit: String,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Processor, cores, instruction set and caches, as far as the system tells.
    pub machine: String,
    /// The revision that the program was built from.
    pub commit: String,
    /// The instruction set that was measured.
    pub isa: String,
    /// Multiply-adds of one core at best, in 10^9 floating-point operations per second.
    pub peak_gflops: f64,
    /// Main memory that one thread reads at best, in 10^9 bytes per second.
    pub read_gb_s: f64,
    /// The limits by the number of threads.
    pub limits: Vec<Limit>,
    /// How often each row was run.
    pub rounds: u32,
    /// The rows.
    pub rows: Vec<BenchRow>,
}

/// One speed.
#[derive(Clone, Debug, Serialize)]
pub struct BenchRow {
    /// What was run.
    #[serde(flatten)]
    pub case: Case,
    /// How fast.
    #[serde(flatten)]
    pub speed: Speed,
    /// The speed in percent of the limit, 0 to 100.
    pub percent_of_limit: f64,
    /// Seconds of the best round: the thread's own clock for one thread, the summed processor time
    /// of all ranks for a ring, else wall-clock.
    pub seconds: f64,
    /// For a ring of several ranks its processor time over that of one rank on the same problem and on as
    /// many processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_vs_one_rank: Option<f64>,
}

/// How fast a row is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Speed {
    /// 10^9 floating-point operations per second.
    #[serde(rename = "gflops")]
    Gflops(f64),
    /// 10^9 bytes per second.
    #[serde(rename = "gb_s")]
    GbS(f64),
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum BenchError {
    /// No row's text contains the filter.
    #[error("no row contains {filter:?}; an example is {example:?}")]
    NoRow {
        /// What was asked for.
        filter: String,
        /// The text of some row.
        example: String,
    },
    /// A row of attention over quantised keys and values, which do not exist.
    #[error("keys and values cannot be {actual}, expected f32, bf16 or f16")]
    Stored {
        /// What was asked for.
        actual: Stored,
    },
    /// The kernel refused, failed, or its threads cannot be started.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A matrix product failed.
    #[error(transparent)]
    Dense(#[from] DenseError),
    /// No memory for inputs.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The run was stopped from outside.
    #[error(transparent)]
    Stopped(#[from] Interrupted),
}

/// Measures this machine.
///
/// Rows run with one thread, and with `run.threads` (all cores unless given); the ring rows with
/// `run.ranks` of one thread each, and with one rank of as many threads, at most `run.threads`.
///
/// # Errors
/// When the processor lacks the instruction set, no row matches the filter, memory is lacking, or the
/// run is stopped.
pub fn bench(options: &BenchOptions, run: &RunOptions) -> Result<BenchReport, Error> {
    if !Isa::available().contains(&run.isa) {
        return Err(BenchError::Kernel(KernelError::Isa { isa: run.isa }).into());
    }
    let threads = run.threads.unwrap_or_else(host::cores);
    let cases = matching(case::cases(options.size, threads, run.ranks), &options.filter)?;
    let mut inputs = inputs::Inputs::new(options.size);
    let mut rows = Vec::with_capacity(cases.len());
    for case in cases {
        Watch(run).advance().map_err(BenchError::from)?;
        rows.push(Row::new(case, run, &mut inputs)?);
    }
    let mut limits = Limits::new(run.isa, &rows);
    let rounds = rounds::measure(&mut rows, &mut limits, options.size, run)?;
    rows.iter().for_each(|row| limits.include(row));
    // That of one thread is always there, and the first.
    let all = limits.all();
    Ok(BenchReport {
        machine: machine::describe(run.isa),
        commit: options.commit.clone(),
        isa: run.isa.to_string(),
        peak_gflops: all[0].peak_gflops,
        read_gb_s: all[0].read_gb_s.unwrap_or_default(),
        rounds,
        rows: rows.iter().map(|row| finished(row, &rows, &limits)).collect(),
        limits: all.to_vec(),
    })
}

/// The best speed of one thread in so many rounds of one row, while all its threads run: in
/// floating-point operations per second of processor time, in bytes for a row that is bound by reading.
///
/// # Errors
/// As for [`bench()`].
pub fn measure_case(case: &Case, rounds: u32, run: &RunOptions) -> Result<f64, Error> {
    let mut row = Row::new(case.clone(), run, &mut inputs::Inputs::new(BenchSize::Full))?;
    // Processor time, so that other work on the machine shows little.
    row.clock = Clock::Process;
    for _ in 0..rounds.max(1) {
        Watch(run).advance().map_err(BenchError::from)?;
        row.run(run)?;
    }
    Ok(match row.speed() {
        Speed::Gflops(speed) | Speed::GbS(speed) => speed * 1e9,
    })
}

fn matching(mut cases: Vec<Case>, filter: &str) -> Result<Vec<Case>, BenchError> {
    let example = cases.first().map(Case::to_string).unwrap_or_default();
    cases.retain(|case| case.to_string().contains(filter));
    if cases.is_empty() {
        return Err(BenchError::NoRow { filter: filter.to_owned(), example });
    }
    Ok(cases)
}

/// A row of the report.
fn finished(row: &Row, all: &[Row], limits: &Limits) -> BenchRow {
    let several = row.case.ranks > 1;
    let one_rank = all.iter().find(|other| several && other.case.is_one_rank_of(&row.case));
    BenchRow {
        speed: row.speed(),
        percent_of_limit: limits.percent(row),
        seconds: row.best,
        cpu_vs_one_rank: one_rank.map(|one| row.best / one.best),
        case: row.case.clone(),
    }
}

/// Ends a row's work when the run is stopped.
struct Watch<'a>(&'a RunOptions);

impl Progress for Watch<'_> {
    fn advance(&self) -> Result<(), Interrupted> {
        if self.0.stop.reason().is_some() { Err(Interrupted) } else { Ok(()) }
    }
}
