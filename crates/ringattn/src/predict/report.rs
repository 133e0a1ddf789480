//! A prediction as it is written: fields that a run's report has too bear the same names, so that the
//! two can be compared field by field.

use super::{DecodePlanReport, PlanRequest, Priced};
use ringattn_plan::{
    LongestContext, MAX_ENUMERATED_RANKS, Plan, RankCost, Recommendation, longest_context,
    working_bytes_per_token,
};
use serde::Serialize;

/// Schema `ringattn.plan/1`. Layout, block and schedule at the top are those that are recommended;
/// times are seconds, sizes bytes.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// `ringattn.plan/1`.
    pub schema: &'static str,
    /// `plan`.
    pub command: &'static str,
    /// Ranks `p`.
    pub ranks: u32,
    /// The recommended layout's name.
    pub layout: String,
    /// Tokens of a block of it.
    pub block: u64,
    /// The schedule's name.
    pub schedule: String,
    /// The mask of the first layer.
    pub mask: String,
    /// Attentions in all, one after another.
    pub layers: u64,
    /// Tokens of the sequence.
    pub tokens: u64,
    /// Query heads.
    pub q_heads: usize,
    /// Key heads.
    pub kv_heads: usize,
    /// Head dimension.
    pub head_dim: usize,
    /// The type in which K and V are kept and sent.
    pub kv_dtype: String,
    /// What each rank runs on.
    pub machine: MachineReport,
    /// The masks of all layers.
    pub masks: Vec<MaskReport>,
    /// The model, where one is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelReport>,
    /// Which layout to take, and why.
    pub recommended: Recommended,
    /// Every layout that was asked for.
    pub layouts: Vec<LayoutReport>,
    /// Layouts without a price; left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unpriced: Vec<UnpricedReport>,
    /// Tokens of the smallest shard that hides its transfer, for full and causal masks.
    pub smallest_block: Option<SmallestBlockReport>,
    /// The longest contexts that fit.
    pub longest_context: LongestContextReport,
    /// One layer of each layout simulated, where it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Vec<SimulationReport>>,
    /// A new token behind the tokens, in the recommended layout, by schedule, where it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<Vec<DecodePlanReport>>,
    /// Charts of simulations, where they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charts: Option<ChartsReport>,
    /// Grids, where they are asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grids: Vec<GridReport>,
}

/// What a rank runs on.
#[derive(Clone, Debug, Serialize)]
pub struct MachineReport {
    /// Its name; none for numbers that were given.
    pub name: Option<String>,
    /// Where its numbers come from.
    pub source: String,
    /// FLOP/s of a rank in attention.
    pub flops: f64,
    /// Byte/s that a rank sends while it receives as many.
    pub bandwidth: f64,
    /// Seconds of a message beside its bytes.
    pub latency: f64,
    /// Bytes of a rank.
    pub memory: u64,
}

/// Layers with one mask.
#[derive(Clone, Debug, Serialize)]
pub struct MaskReport {
    /// The mask.
    pub mask: String,
    /// How many layers have it.
    pub layers: u64,
}

/// The model beside its attention.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// The architecture.
    pub family: String,
    /// FLOPs of a token in the matrix products of all layers and the head; none beyond 2^64.
    pub dense_flops_per_token: Option<u64>,
    /// Seconds of those products, each rank with its share of the tokens.
    pub dense_s: Option<f64>,
    /// Bytes of the weight files, which every rank holds; 0 where only a configuration is given.
    pub weight_file_bytes: u64,
}

/// The layout to take.
#[derive(Clone, Debug, Serialize)]
pub struct Recommended {
    /// Its name.
    pub layout: String,
    /// Tokens of its block.
    pub block: u64,
    /// Why.
    pub reason: String,
}

/// The price of one layout. Counts are sums over the layers, sizes those of one layer.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutReport {
    /// Its name.
    pub layout: String,
    /// Tokens of its block.
    pub block: u64,
    /// The schedule's name.
    pub schedule: String,
    /// Most bytes of K and V of a rank's own shard.
    pub resident_kv_bytes: u64,
    /// Most bytes of K and V that a rank holds at once.
    pub peak_kv_bytes: u64,
    /// Bytes of the rank that needs the most, K and V, queries, outputs and weights.
    pub memory: MemoryReport,
    /// Most bytes that a rank sends.
    pub sent_bytes: u64,
    /// Most bytes that a rank receives.
    pub received_bytes: u64,
    /// Bytes of the largest block that moves.
    pub hop_bytes: u64,
    /// Seconds of its hop.
    pub hop_s: f64,
    /// Seconds of computing beside a hop: the busiest rank's, on average over the steps with one.
    pub compute_per_hop_s: f64,
    /// Seconds of the busiest rank's computing of every step.
    pub compute_s: f64,
    /// Seconds of the largest hop of every step.
    pub transfer_s: f64,
    /// The share of the transfers that computing hides.
    pub hidden_fraction: f64,
    /// Seconds of all steps in lockstep.
    pub attention_s: f64,
    /// Tokens per second of that time.
    pub tokens_per_s: f64,
    /// How evenly the pairs are spread.
    pub balance: PairBalance,
    /// One entry per rank, for at most 1024 ranks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_rank: Vec<RankPlanReport>,
}

/// A layout without a price.
#[derive(Clone, Debug, Serialize)]
pub struct UnpricedReport {
    /// Its name.
    pub layout: String,
    /// Why.
    pub reason: String,
}

/// How evenly the pairs are spread.
#[derive(Clone, Debug, Serialize)]
pub struct PairBalance {
    /// The busiest rank's pairs over the mean.
    pub pairs_max_over_mean: f64,
    /// The share of all ranks' time in lockstep that is spent computing, transfers aside.
    pub utilisation: f64,
}

/// Bytes of the rank that needs the most.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryReport {
    /// K and V of one layer at a time, as `score` and `attend` keep them.
    pub one_layer_bytes: u64,
    /// K and V of all layers, as a K,V cache keeps them.
    pub all_layers_bytes: u64,
    /// Whether the first fits into the machine's memory.
    pub one_layer_fits: bool,
    /// Whether the second does.
    pub all_layers_fit: bool,
}

/// What a run's report will say about a rank, under the same names: sums over the layers.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names are those of the run's report, explained there")]
pub struct RankPlanReport {
    pub rank: u32,
    pub tokens: u64,
    pub pairs: u128,
    pub resident_kv_bytes: u64,
    pub peak_kv_bytes: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub hops: u64,
}

/// From which shard on a transfer is hidden.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SmallestBlockReport {
    /// Tokens of a shard, rounded up.
    pub tokens: u64,
    /// Six of them: what a device of Ring Attention holds at least.
    pub six_blocks: u64,
}

/// The longest contexts that fit into the memory of all ranks, in tokens.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LongestContextReport {
    /// K and V of one layer at a time are kept.
    pub one_layer: u64,
    /// K and V of all layers are kept.
    pub all_layers: u64,
}

/// One layer of a layout, rank by rank.
#[derive(Clone, Debug, Serialize)]
pub struct SimulationReport {
    /// The layout's name.
    pub layout: String,
    /// Seconds until the last rank ends.
    pub end_s: f64,
    /// Seconds of each rank's computing.
    pub compute_s: Vec<f64>,
    /// Seconds that each rank waits for messages under way.
    pub transfer_wait_s: Vec<f64>,
    /// Seconds that each rank waits for peers that have not posted.
    pub peer_wait_s: Vec<f64>,
    /// Who waits for whom, the longest first.
    pub waits: Vec<WaitReport>,
}

/// One rank's waits for another.
#[derive(Clone, Debug, Serialize)]
pub struct WaitReport {
    /// Who waits.
    pub rank: u32,
    /// For whom.
    pub peer: u32,
    /// `transfer` or `peer`.
    pub cause: String,
    /// Seconds.
    pub seconds: f64,
}

/// Charts of simulations of one layer.
#[derive(Clone, Debug, Serialize)]
pub struct ChartsReport {
    /// Throughput by the tokens of a rank.
    pub throughput: Vec<ThroughputPoint>,
    /// What one late message costs.
    pub latency_spike: Vec<SpikePoint>,
}

/// One simulated size of a layout.
#[derive(Clone, Debug, Serialize)]
pub struct ThroughputPoint {
    /// The layout's name.
    pub layout: String,
    /// Tokens of a rank's shard: the block that circulates.
    pub block_tokens: u64,
    /// Tokens of the sequence, as many times more as there are ranks.
    pub tokens: u64,
    /// Seconds until the last rank ends.
    pub seconds: f64,
    /// FLOP/s of a rank on average.
    pub flops_per_rank: f64,
    /// The same as a share of the machine's.
    pub share_of_peak: f64,
}

/// One late message.
#[derive(Clone, Debug, Serialize)]
pub struct SpikePoint {
    /// The layout's name.
    pub layout: String,
    /// Seconds by which the message is late.
    pub spike_s: f64,
    /// Seconds by which the run ends later.
    pub added_s: f64,
}

/// Who attends which block when.
#[derive(Clone, Debug, Serialize)]
pub struct GridReport {
    /// The layout's name.
    pub layout: String,
    /// The printed grid of the first layer.
    pub text: String,
}

impl PlanReport {
    pub(super) fn new(request: &PlanRequest, priced: &[Priced], chosen: &Recommendation) -> Self {
        let PlanRequest { shape, kv_dtype, .. } = *request;
        let layouts: Vec<_> = priced.iter().map(|one| LayoutReport::new(request, one)).collect();
        let best = &layouts[chosen.index];
        let weights = request.weight_bytes();
        let memory = request.machine.machine.memory;
        let kind = (shape, kv_dtype);
        let LongestContext { one_layer, all_layers } =
            longest_context(kind, request.layers(), request.ranks, memory, weights);
        let grid = |one: &Priced| {
            let text = one.plans.first().map(Plan::to_string).unwrap_or_default();
            GridReport { layout: one.kind.to_string(), text }
        };
        let up = |tokens: f64| tokens.ceil() as u64;
        Self {
            schema: "ringattn.plan/1",
            command: "plan",
            ranks: request.ranks,
            layout: best.layout.clone(),
            block: best.block,
            schedule: best.schedule.clone(),
            mask: request.masks.first().map(|group| group.mask.to_string()).unwrap_or_default(),
            layers: request.layers(),
            tokens: request.tokens,
            q_heads: shape.query_heads(),
            kv_heads: shape.key_heads(),
            head_dim: shape.head_dim(),
            kv_dtype: kv_dtype.to_string(),
            machine: MachineReport::new(request),
            masks: request
                .masks
                .iter()
                .map(|group| MaskReport { mask: group.mask.to_string(), layers: group.layers })
                .collect(),
            model: ModelReport::new(request),
            recommended: Recommended {
                layout: best.layout.clone(),
                block: best.block,
                reason: chosen.reason.to_string(),
            },
            unpriced: Vec::new(),
            smallest_block: request.smallest_block().map(|block| SmallestBlockReport {
                tokens: up(block.tokens),
                six_blocks: up(block.six_blocks),
            }),
            longest_context: LongestContextReport { one_layer, all_layers },
            simulation: None,
            decode: None,
            charts: None,
            grids: if request.details.grid {
                priced.iter().map(grid).collect()
            } else {
                Vec::new()
            },
            layouts,
        }
    }
}

impl PlanRequest {
    fn weight_bytes(&self) -> u64 {
        self.model.as_ref().map_or(0, |model| model.weight_file_bytes)
    }
}

impl Priced {
    /// The rank's peaks of all layers, summed as a run's report sums them.
    fn peak_of_layers(&self, rank: usize) -> u64 {
        let peaks = self
            .groups
            .iter()
            .map(|(layers, cost)| cost.ranks[rank].peak_kv_bytes.saturating_mul(*layers));
        peaks.fold(0, u64::saturating_add)
    }
}

impl MachineReport {
    fn new(request: &PlanRequest) -> Self {
        let given = &request.machine;
        let machine = given.machine;
        Self {
            name: given.name.clone(),
            source: given.source.clone(),
            flops: machine.flops,
            bandwidth: machine.bandwidth,
            latency: machine.latency,
            memory: machine.memory,
        }
    }
}

impl ModelReport {
    fn new(request: &PlanRequest) -> Option<Self> {
        let model = request.model.as_ref()?;
        let dense = model.config.dense_flops_per_token();
        let tokens = request.tokens.div_ceil(u64::from(request.ranks)) as f64;
        Some(Self {
            family: format!("{:?}", model.config.family).to_lowercase(),
            dense_flops_per_token: dense,
            dense_s: dense.map(|flops| flops as f64 * tokens / request.machine.machine.flops),
            weight_file_bytes: model.weight_file_bytes,
        })
    }
}

impl LayoutReport {
    fn new(request: &PlanRequest, priced: &Priced) -> Self {
        let Priced { kind, plans, cost, timing, .. } = priced;
        let plan = plans.first();
        let segment = plan.and_then(|plan| plan.key_layout().segments().first());
        let shown = request.ranks <= MAX_ENUMERATED_RANKS;
        let per_rank = |(rank, counts): (u32, &RankCost)| RankPlanReport {
            rank,
            tokens: counts.queries,
            pairs: counts.pairs,
            resident_kv_bytes: counts.resident_kv_bytes.saturating_mul(request.layers()),
            peak_kv_bytes: priced.peak_of_layers(rank as usize),
            sent_bytes: counts.sent_bytes,
            received_bytes: counts.received_bytes,
            hops: counts.hops,
        };
        Self {
            layout: kind.to_string(),
            block: segment.map_or(1, |segment| segment.block),
            schedule: plan.map(|plan| plan.schedule().to_string()).unwrap_or_default(),
            resident_kv_bytes: cost.most(|rank| rank.resident_kv_bytes),
            peak_kv_bytes: cost.most(|rank| rank.peak_kv_bytes),
            memory: MemoryReport::new(request, priced),
            sent_bytes: cost.most(|rank| rank.sent_bytes),
            received_bytes: cost.most(|rank| rank.received_bytes),
            hop_bytes: cost.steps.iter().map(|step| step.hop_bytes).max().unwrap_or(0),
            hop_s: timing.hop,
            compute_per_hop_s: timing.compute_per_hop,
            compute_s: timing.compute,
            transfer_s: timing.transfer,
            hidden_fraction: timing.hidden_fraction(),
            attention_s: timing.total,
            tokens_per_s: request.tokens as f64 / timing.total,
            balance: PairBalance {
                pairs_max_over_mean: cost.max_over_mean(),
                utilisation: cost.utilisation(),
            },
            per_rank: if shown {
                (0..).zip(&cost.ranks).map(per_rank).collect()
            } else {
                Vec::new()
            },
        }
    }
}

impl MemoryReport {
    fn new(request: &PlanRequest, priced: &Priced) -> Self {
        let working = working_bytes_per_token(request.shape);
        let others = request.layers().saturating_sub(1);
        let weights = request.weight_bytes();
        let one_layer = |rank: &RankCost| {
            rank.queries.saturating_mul(working).saturating_add(rank.peak_kv_bytes)
        };
        let all_layers = |rank: &RankCost| {
            rank.resident_kv_bytes.saturating_mul(others).saturating_add(one_layer(rank))
        };
        let one_layer_bytes = priced.cost.most(one_layer).saturating_add(weights);
        let all_layers_bytes = priced.cost.most(all_layers).saturating_add(weights);
        let memory = request.machine.machine.memory;
        Self {
            one_layer_bytes,
            all_layers_bytes,
            one_layer_fits: one_layer_bytes <= memory,
            all_layers_fit: all_layers_bytes <= memory,
        }
    }
}
