//! This machine as the machine of a plan whose ranks are threads of one process.
//!
//! Speed: what the kernel reaches on a block like those of the plan (same heads per key head, head
//! dimension, element type and kind of mask) per second of processor time, while as many threads run as
//! all ranks have, up to the cores there are; shared out among the ranks. A hop hands over a handle: its latency is that of waking the
//! receiver, measured with barriers between two ranks, and its bytes are read from memory when they are
//! used, at the measured read bandwidth, shared out likewise. Memory: what the system has available.

use super::NamedOrMeasured;
use crate::bench::{BenchError, BenchMask, Case, What, measure_case};
use crate::error::Error;
use crate::host;
use crate::options::RunOptions;
use ringattn_comm::local::Launch;
use ringattn_comm::{CommError, Communicator};
use ringattn_core::{AttentionShape, DType, Mask};
use ringattn_engine::cpu::limits::read_bandwidth;
use ringattn_plan::Machine;
use std::time::Instant;

/// Tokens of the measured block: no more than a shard, and enough that starting does not show.
const TOKENS: std::ops::RangeInclusive<u64> = 256..=4096;
/// How often the block is attended; the best counts.
const ROUNDS: u32 = 12;
/// Barriers between the two ranks.
const BARRIERS: u32 = 2000;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    shape: AttentionShape,
    kv_dtype: DType,
    mask: BenchMask,
    tokens: u64,
    ranks: u32,
}

impl Measurement {
    /// Of a machine for these tokens.
    pub fn new(
        (shape, kv_dtype): (AttentionShape, DType),
        mask: &Mask,
        tokens: u64,
        ranks: u32,
    ) -> Self {
        let mask = if *mask == Mask::Full { BenchMask::Full } else { BenchMask::Causal };
        Self { shape, kv_dtype, mask, tokens, ranks }
    }

    fn case(&self, threads: usize) -> Case {
        let shard = self.tokens / u64::from(self.ranks.max(1));
        let tokens = shard.clamp(*TOKENS.start(), *TOKENS.end());
        Case {
            what: What::Forward,
            dtype: self.kv_dtype.into(),
            query_heads: self.shape.group(),
            kv_heads: 1,
            head_dim: self.shape.head_dim(),
            queries: tokens,
            tokens,
            mask: self.mask,
            threads,
            ranks: 1,
        }
    }
}

/// Measures this machine for ranks of `run.threads_per_rank()` threads each; takes some seconds.
///
/// # Errors
/// When the shape is beyond the kernel, memory or threads are lacking, or the run is stopped.
pub fn measure_machine(
    measurement: &Measurement,
    run: &RunOptions,
) -> Result<NamedOrMeasured, Error> {
    let ranks = measurement.ranks.max(1);
    let run = RunOptions { ranks, ..run.clone() };
    let wanted = run.threads_per_rank().saturating_mul(ranks as usize);
    let threads = wanted.min(host::cores());
    let share = f64::from(ranks);
    let of_thread = measure_case(&measurement.case(threads), ROUNDS, &run)?;
    let flops = of_thread * threads as f64 / share;
    let bandwidth = read_bandwidth(run.isa, threads).map_err(BenchError::from)? / share;
    let latency = latency(&run)?;
    let memory = host::available_memory_bytes().unwrap_or(u64::MAX) / u64::from(ranks);
    let machine = Machine { flops, bandwidth, latency, memory };
    let source = format!(
        "measured here: {} on {threads} thread{} for {ranks} rank{}, {}",
        measurement.case(threads),
        if threads == 1 { "" } else { "s" },
        if ranks == 1 { "" } else { "s" },
        run.isa,
    );
    Ok(NamedOrMeasured { name: Some("this machine".to_owned()), source, machine })
}

/// Seconds in which a message wakes the rank that waits for it: a barrier of two ranks is one message
/// each way at once.
fn latency(run: &RunOptions) -> Result<f64, Error> {
    let seconds = Launch::new(2).timeout(run.timeout).stop_signal(&run.stop).run(|comm| {
        comm.barrier()?;
        let start = Instant::now();
        for _ in 0..BARRIERS {
            comm.barrier()?;
        }
        Ok::<_, CommError>(start.elapsed().as_secs_f64() / f64::from(BARRIERS))
    })?;
    Ok(seconds.into_iter().fold(0.0, f64::max))
}
