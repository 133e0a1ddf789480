//! The measuring loop: rounds over limits and rows, of which the best counts.

use super::attention::Attention;
use super::case::{Case, What};
use super::dense::Dense;
use super::inputs::Inputs;
use super::limits::Limits;
use super::narrow::Narrow;
use super::ring::Ring;
use super::{BenchError, BenchSize, Speed, Watch};
use crate::error::Error;
use crate::host;
use crate::options::RunOptions;
use ringattn_core::Progress;
use ringattn_engine::cpu::thread_cpu_time;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// A case with its inputs, and the best that was seen of it.
pub(super) struct Row {
    pub(super) case: Case,
    task: Task,
    /// The time that counts.
    pub(super) clock: Clock,
    /// Seconds of the best round.
    pub(super) best: f64,
}

enum Task {
    Attention(Attention),
    Ring(Ring),
    Dense(Dense),
    Narrow(Narrow),
}

impl Row {
    pub(super) fn new(case: Case, run: &RunOptions, inputs: &mut Inputs) -> Result<Self, Error> {
        let task = match case.what {
            What::Forward | What::Decode => {
                Task::Attention(Attention::new(&case, run.isa, inputs)?)
            }
            What::Ring => Task::Ring(Ring::new(&case, run, inputs)?),
            What::Dense if case.reads_weights() => {
                Task::Narrow(Narrow::new(&case, run.isa, inputs)?)
            }
            What::Dense => Task::Dense(Dense::new(&case, run.isa, inputs)?),
        };
        let clock = match task {
            Task::Ring(_) => Clock::Process,
            _ if case.threads == 1 => Clock::Thread,
            _ => Clock::Wall,
        };
        Ok(Self { case, task, clock, best: f64::INFINITY })
    }

    /// What the best round reached.
    pub(super) fn speed(&self) -> Speed {
        let Case { query_heads, head_dim, .. } = self.case;
        let of_pairs = |pairs: u64| 4.0 * pairs as f64 * (query_heads * head_dim) as f64;
        let work = match &self.task {
            Task::Attention(attention) if self.case.reads() => attention.bytes() as f64,
            Task::Attention(attention) => of_pairs(attention.pairs()),
            Task::Ring(ring) => of_pairs(ring.pairs()),
            Task::Dense(dense) => 2.0 * dense.products() as f64,
            Task::Narrow(narrow) => narrow.bytes() as f64,
        };
        let speed = work / self.best / 1e9;
        if self.case.reads() { Speed::GbS(speed) } else { Speed::Gflops(speed) }
    }

    /// Runs it once more.
    pub(super) fn run(&mut self, run: &RunOptions) -> Result<(), Error> {
        let clock = self.clock;
        let start = (Instant::now(), clock.processor_time());
        match &mut self.task {
            Task::Attention(attention) => attention.run(&Watch(run))?,
            Task::Ring(ring) => ring.run()?,
            Task::Dense(dense) => dense.run()?,
            Task::Narrow(narrow) => narrow.run()?,
        }
        let time = match (clock.processor_time(), start.1) {
            (Some(end), Some(start)) => end.saturating_sub(start),
            _ => start.0.elapsed(),
        };
        self.best = self.best.min(time.as_secs_f64().max(1e-9));
        Ok(())
    }
}

/// The time that counts for a row.
#[derive(Clone, Copy)]
pub(super) enum Clock {
    /// Processor time of this thread, which other work on the machine stretches little.
    Thread,
    /// Processor time of all threads of the process.
    Process,
    /// Time on the wall.
    Wall,
}

impl Clock {
    fn processor_time(self) -> Option<Duration> {
        match self {
            Self::Thread => Some(thread_cpu_time()),
            Self::Process => Some(host::process_cpu_time()),
            Self::Wall => None,
        }
    }
}

impl BenchSize {
    /// The least and the most rounds, and how long rounds are added.
    fn rounds(self) -> (RangeInclusive<u32>, Duration) {
        match self {
            Self::Full => (3..=200, Duration::from_secs(100)),
            Self::Quick => (2..=40, Duration::from_secs(12)),
            Self::Smallest => (1..=1, Duration::ZERO),
        }
    }
}

/// Runs all rows and limits in rounds, and says how many.
pub(super) fn measure(
    rows: &mut [Row],
    limits: &mut Limits,
    size: BenchSize,
    run: &RunOptions,
) -> Result<u32, Error> {
    let (counts, budget) = size.rounds();
    run.meter.start(budget.as_millis() as u64);
    let start = Instant::now();
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while rounds < *counts.start() || (rounds < *counts.end() && start.elapsed() + longest < budget)
    {
        let mut begun = Instant::now();
        let round = begun;
        limits.measure(rows)?;
        for row in &mut *rows {
            Watch(run).advance().map_err(BenchError::from)?;
            row.run(run)?;
            run.meter.add(begun.elapsed().as_millis() as u64);
            begun = Instant::now();
        }
        longest = longest.max(round.elapsed());
        rounds += 1;
    }
    Ok(rounds)
}
