//! What a run was and what it counted: schema `ringattn.report/1`.
//!
//! Counts stand beside what the plan expects of them. They are sums over the layers; a batch counts
//! as further heads.

mod record;

pub(crate) use record::RankRecord;

use crate::engines::Engine;
use crate::options::RunOptions;
use crate::recording;
use ringattn_core::Rank;
use ringattn_engine::Law;
use ringattn_plan::{Plan, Timeline};
use serde::Serialize;
use std::time::Duration;

/// The report of one run; `R` is what its command adds.
#[derive(Clone, Debug, Serialize)]
pub struct Report<R> {
    /// `ringattn.report/1`.
    pub schema: &'static str,
    /// `score` or `attend`.
    pub command: &'static str,
    /// `local`: ranks are threads of one process; `mpi`: processes of a job.
    pub engine: String,
    /// Ranks `p`.
    pub ranks: u32,
    /// Threads of each rank.
    pub threads: usize,
    /// The layout's name.
    pub layout: String,
    /// Tokens of a block of the layout.
    pub block: u64,
    /// The schedule's name.
    pub schedule: String,
    /// The mask over positions; of several (layers with and without a window) the first layer's.
    pub mask: String,
    /// Attentions in all, one after another.
    pub layers: usize,
    /// Tokens of the sequence (keys).
    pub tokens: u64,
    /// Query heads, batch included.
    pub q_heads: usize,
    /// Key heads, batch included.
    pub kv_heads: usize,
    /// Head dimension.
    pub head_dim: usize,
    /// The type in which K and V are kept and sent.
    pub kv_dtype: String,
    /// The instruction set of the kernel.
    pub isa: String,
    /// Seconds from start to end, loading of inputs left out.
    pub wall_s: f64,
    /// `tokens / wall_s`.
    pub tokens_per_s: f64,
    /// What the command found.
    pub result: R,
    /// The memory and traffic law.
    pub law: LawReport,
    /// Bytes of K and V that are held once, however many ranks refer to them; with `mpi` by all
    /// processes together.
    pub unique_kv_bytes: u64,
    /// One entry per rank.
    pub per_rank: Vec<RankReport>,
    /// How evenly the work was spread.
    pub balance: Balance,
    /// How well transfers were hidden behind computing.
    pub overlap: Overlap,
    /// What every rank did when, if the run was recorded; no part of the report's file.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

/// The law: what each rank holds and receives follows from the plan.
#[derive(Clone, Debug, Serialize)]
pub struct LawReport {
    /// Bytes of K and V of the whole sequence in one layer.
    pub kv_bytes_total_per_layer: u64,
    /// Whether every measured count equals the plan's.
    pub holds: bool,
}

/// Counts and times of one rank.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "each count stands beside its expectation, explained once")]
pub struct RankReport {
    /// The rank.
    pub rank: u32,
    /// The machine it ran on.
    pub host: String,
    /// Tokens of its shard (keys).
    pub tokens: u64,
    /// (query, key) pairs computed per query head.
    pub pairs: u64,
    pub pairs_expected: u64,
    /// Processor seconds of computing: attention and dense layers, all threads of the rank.
    pub compute_s: f64,
    /// Processor seconds of attention alone.
    pub attention_s: f64,
    /// Seconds of waiting for blocks that were under way.
    pub transfer_wait_s: f64,
    /// Seconds of waiting for peers that had not sent yet.
    pub peer_wait_s: f64,
    /// Processor seconds of checksums, which hold up nothing; 0 between threads, which need none.
    pub checksum_s: f64,
    /// Most memory of the rank's process so far; shared by all ranks of the process.
    pub peak_rss_bytes: Option<u64>,
    /// Bytes of K and V of the rank's own shard.
    pub resident_kv_bytes: u64,
    pub resident_kv_bytes_expected: u64,
    /// Most bytes of K and V that the rank referred to at once.
    pub peak_kv_bytes: u64,
    pub peak_kv_bytes_expected: u64,
    /// Most bytes of other ranks' queries that the rank held at once.
    pub peak_query_bytes: u64,
    pub peak_query_bytes_expected: u64,
    /// Most bytes of partial states from other ranks that the rank held at once.
    pub peak_state_bytes: u64,
    pub peak_state_bytes_expected: u64,
    /// Bytes of K and V sent.
    pub sent_bytes: u64,
    pub sent_bytes_expected: u64,
    /// Bytes of K and V received.
    pub received_bytes: u64,
    pub received_bytes_expected: u64,
    /// Blocks received.
    pub hops: u64,
    pub hops_expected: u64,
}

/// The most over the mean, 1 for a perfect balance.
#[derive(Clone, Debug, Serialize)]
pub struct Balance {
    /// Of the pairs.
    pub pairs_max_over_mean: f64,
    /// Of the processor seconds.
    pub compute_max_over_mean: f64,
    /// Of the processor seconds of attention alone.
    pub attention_max_over_mean: f64,
}

/// Transfers against the waits that they caused.
#[derive(Clone, Debug, Serialize)]
pub struct Overlap {
    /// Seconds that blocks were under way, summed over ranks and hops.
    pub transfer_s: f64,
    /// `1 - transfer waits / transfer time`; 1 when nothing was transferred.
    pub hidden_fraction: f64,
}

/// What is known before the ranks start.
pub(crate) struct Headline<'a> {
    pub(crate) command: &'static str,
    pub(crate) options: &'a RunOptions,
    /// The plan of the first layer.
    pub(crate) plan: &'a Plan,
    /// The mask over positions.
    pub(crate) mask: String,
    pub(crate) layers: usize,
}

impl<R> Report<R> {
    pub(crate) fn new(
        headline: &Headline<'_>,
        mut records: Vec<RankRecord>,
        wall: Duration,
        result: R,
    ) -> Self {
        let Headline { command, options, plan, layers, .. } = *headline;
        let spans = records.iter_mut().flat_map(|record| std::mem::take(&mut record.spans));
        let timeline = recording::timeline(options, spans.collect());
        let problem = plan.problem();
        let layout = plan.key_layout();
        let total = |count: fn(&RankRecord) -> Duration| -> f64 {
            records.iter().map(|record| count(record).as_secs_f64()).sum()
        };
        let (transfer_s, waits) =
            (total(|r| r.measured.transfer), total(|r| r.measured.transfer_wait));
        let holds = |r: &RankRecord| Law::broken(&r.expected, &r.measured.counts).is_none();
        let resident: u64 = records.iter().map(|r| r.measured.counts.resident_kv_bytes).sum();
        let ranks = layout.ranks().zip(&records);
        Self {
            schema: "ringattn.report/1",
            command,
            engine: options.engine.to_string(),
            ranks: options.ranks,
            threads: options.threads_per_rank(),
            layout: options.layout.to_string(),
            block: layout.segments().first().map_or(1, |segment| segment.block),
            schedule: plan.schedule().to_string(),
            mask: headline.mask.clone(),
            layers,
            tokens: problem.keys,
            q_heads: problem.shape.query_heads(),
            kv_heads: problem.shape.key_heads(),
            head_dim: problem.shape.head_dim(),
            kv_dtype: problem.kv_dtype.to_string(),
            isa: options.isa.to_string(),
            wall_s: wall.as_secs_f64(),
            tokens_per_s: problem.keys as f64 / wall.as_secs_f64(),
            result,
            law: LawReport {
                kv_bytes_total_per_layer: problem.kv_bytes(),
                holds: records.iter().all(holds),
            },
            // Local ranks share blocks by handle, and blocks that are read in place are disjoint parts
            // of one tensor: each shard is held once, a layer a time.
            unique_kv_bytes: resident / layers.max(1) as u64,
            per_rank: ranks
                .map(|(rank, r)| RankReport::new(plan, (rank, &options.engine), r))
                .collect(),
            balance: Balance {
                pairs_max_over_mean: max_over_mean(
                    records.iter().map(|r| r.measured.counts.pairs as f64),
                ),
                compute_max_over_mean: max_over_mean(
                    records.iter().map(|r| (r.measured.compute + r.dense).as_secs_f64()),
                ),
                attention_max_over_mean: max_over_mean(
                    records.iter().map(|r| r.measured.compute.as_secs_f64()),
                ),
            },
            timeline,
            overlap: Overlap {
                transfer_s,
                hidden_fraction: if transfer_s > 0.0 {
                    (1.0 - waits / transfer_s).max(0.0)
                } else {
                    1.0
                },
            },
        }
    }
}

impl RankReport {
    fn new(plan: &Plan, (rank, engine): (Rank, &Engine), record: &RankRecord) -> Self {
        let RankRecord { measured, expected, dense, .. } = record;
        let counts = &measured.counts;
        Self {
            rank: rank.0,
            host: engine.host(rank),
            tokens: plan.key_layout().count(rank),
            pairs: counts.pairs,
            pairs_expected: expected.pairs,
            compute_s: (measured.compute + *dense).as_secs_f64(),
            attention_s: measured.compute.as_secs_f64(),
            transfer_wait_s: measured.transfer_wait.as_secs_f64(),
            peer_wait_s: measured.peer_wait.as_secs_f64(),
            checksum_s: record.checksum.as_secs_f64(),
            peak_rss_bytes: record.peak_rss_bytes,
            resident_kv_bytes: counts.resident_kv_bytes,
            resident_kv_bytes_expected: expected.resident_kv_bytes,
            peak_kv_bytes: counts.peak_kv_bytes,
            peak_kv_bytes_expected: expected.peak_kv_bytes,
            peak_query_bytes: counts.peak_query_bytes,
            peak_query_bytes_expected: expected.peak_query_bytes,
            peak_state_bytes: counts.peak_state_bytes,
            peak_state_bytes_expected: expected.peak_state_bytes,
            sent_bytes: counts.sent_bytes,
            sent_bytes_expected: expected.sent_bytes,
            received_bytes: counts.received_bytes,
            received_bytes_expected: expected.received_bytes,
            hops: counts.hops,
            hops_expected: expected.hops,
        }
    }
}

/// The most over the mean; 1 when all are 0.
fn max_over_mean(values: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
    let mean = values.clone().sum::<f64>() / values.len().max(1) as f64;
    let max = values.fold(0.0, f64::max);
    if mean > 0.0 { max / mean } else { 1.0 }
}
