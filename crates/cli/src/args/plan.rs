//! The arguments of `plan`.

use super::{KvDType, LayoutName, MaskName, WindowBounds, lists, number};
use crate::console::Chatter;
use clap::Args;
use ringattn::core::Rank;
use ringattn::plan::NamedMachine;
use std::path::PathBuf;

/// What a run would cost: memory, traffic, time and balance of every layout, before it is started.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct PlanArgs {
    /// The model whose attention is planned: a GGUF file, a Hugging Face folder or its config.json;
    /// only the configuration is read
    pub(crate) model: Option<PathBuf>,
    /// Query heads
    #[arg(long, value_name = "N", value_parser = number::size, allow_negative_numbers = true,
        required_unless_present = "model", conflicts_with = "model")]
    pub(crate) q_heads: Option<usize>,
    /// Key heads [default: as many as query heads]
    #[arg(long, value_name = "N", value_parser = number::size, allow_negative_numbers = true,
        conflicts_with = "model")]
    pub(crate) kv_heads: Option<usize>,
    /// Head dimension
    #[arg(long, value_name = "N", value_parser = number::size, allow_negative_numbers = true,
        required_unless_present = "model", conflicts_with = "model")]
    pub(crate) head_dim: Option<usize>,
    /// Attentions, one after another [default: 1]
    #[arg(long, value_name = "N", value_parser = number::at_least_one, allow_negative_numbers = true,
        conflicts_with = "model")]
    pub(crate) layers: Option<u64>,
    /// Tokens of the sequence; 1M, 131072, 128Ki
    #[arg(long, value_name = "L", value_parser = number::count, allow_negative_numbers = true)]
    pub(crate) tokens: u64,
    /// Ranks of the ring
    #[arg(long, value_name = "P", default_value = "1", value_parser = number::planned_ranks,
        allow_negative_numbers = true)]
    pub(crate) ranks: u32,
    /// Which keys a query sees [default: causal]
    #[arg(long, conflicts_with = "model")]
    pub(crate) mask: Option<MaskName>,
    /// See only keys from L before the query to R after it; bounds may be negative
    #[arg(long, value_name = "L,R", value_parser = lists::window, allow_hyphen_values = true,
        conflicts_with = "model")]
    pub(crate) window: Option<WindowBounds>,
    /// The type in which K and V are kept and sent
    #[arg(long, default_value = "bf16")]
    pub(crate) kv_dtype: KvDType,
    /// Only this layout [default: all are compared]
    #[arg(long)]
    pub(crate) layout: Option<LayoutName>,
    /// The stripe of striped, the chunk of zigzag, in tokens
    #[arg(long, value_name = "N", value_parser = number::at_least_one,
        allow_negative_numbers = true, requires = "layout")]
    pub(crate) block: Option<u64>,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) conditions: ConditionArgs,
    /// What the next token costs behind all these: rounds, bytes and simulated time of its attention by
    /// a tree to rank 0, a tree to all, ring and gather, in the layout to take; for at most 1024 ranks
    #[arg(long)]
    pub(crate) decode: bool,
    /// Print which rank attends which block in which step, for at most 1024 ranks
    #[arg(long)]
    pub(crate) grid: bool,
    /// Print one JSON object (ringattn.plan/1) and nothing else on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the JSON object to a file
    #[arg(long, value_name = "PLAN.json")]
    pub(crate) out: Option<PathBuf>,
    /// No notes
    #[arg(long)]
    quiet: bool,
}

/// What each rank runs on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Machine of a rank")]
pub(crate) struct MachineArgs {
    /// a100-nvlink, h100-nvlink, cpu-1gbe or cpu-10gbe [default: h100-nvlink]
    #[arg(long, value_name = "NAME", value_parser = machine, conflicts_with = "measure")]
    pub(crate) machine: Option<&'static NamedMachine>,
    /// This machine, measured: takes some seconds
    #[arg(long)]
    pub(crate) measure: bool,
    /// Threads of each rank that are measured [default: cores / ranks, at least 1]
    #[arg(long, value_name = "T", value_parser = number::threads, allow_negative_numbers = true,
        requires = "measure")]
    pub(crate) threads: Option<usize>,
    /// FLOP/s in attention, instead of the machine's; 312T
    #[arg(long, value_name = "FLOP/S", value_parser = number::positive,
        allow_hyphen_values = true)]
    pub(crate) flops: Option<f64>,
    /// Byte/s in one direction; 300G
    #[arg(long, value_name = "BYTE/S", value_parser = number::positive,
        allow_hyphen_values = true)]
    pub(crate) bandwidth: Option<f64>,
    /// Seconds of a message beside its bytes; 1e-5
    #[arg(long, value_name = "SECONDS", value_parser = number::not_negative,
        allow_hyphen_values = true)]
    pub(crate) latency: Option<f64>,
    /// Bytes of memory; 80G
    #[arg(long, value_name = "BYTES", value_parser = number::count, allow_negative_numbers = true)]
    pub(crate) memory: Option<u64>,
}

/// Under which conditions one layer is simulated.
#[derive(Debug, Args)]
#[command(next_help_heading = "Simulation of one layer, for at most 1024 ranks")]
pub(crate) struct ConditionArgs {
    /// Simulate even when nothing below is given
    #[arg(long)]
    simulate: bool,
    /// Rank R computes F times slower; may be repeated
    #[arg(long, value_name = "R:F", value_parser = lists::slow, allow_hyphen_values = true)]
    pub(crate) slow_rank: Vec<(Rank, f64)>,
    /// What rank R sends takes F times longer; may be repeated
    #[arg(long, value_name = "R:F", value_parser = lists::slow, allow_hyphen_values = true)]
    pub(crate) slow_link: Vec<(Rank, f64)>,
    /// Every message takes up to so many seconds more
    #[arg(long, value_name = "SECONDS", value_parser = number::not_negative,
        allow_hyphen_values = true)]
    pub(crate) jitter: Option<f64>,
    /// Decides the jitter
    #[arg(long, value_name = "N", value_parser = number::count, allow_negative_numbers = true,
        requires = "jitter")]
    pub(crate) seed: Option<u64>,
    /// Throughput by block size, and what one late message costs; for at most 64 ranks
    #[arg(long)]
    pub(crate) charts: bool,
}

const EXAMPLE: &str = "Example:
  ringattn plan model/config.json --tokens 1Mi --ranks 8 --machine a100-nvlink
  ringattn plan --q-heads 32 --kv-heads 8 --head-dim 128 --layers 32 --tokens 1Mi --ranks 8 \\
    --flops 312T --bandwidth 300G --latency 1e-5 --memory 80G --json
  ringattn plan --q-heads 8 --head-dim 64 --tokens 64k --ranks 4 --slow-rank 2:1.5 --grid
  ringattn plan model/config.json --tokens 8192 --ranks 8 --machine cpu-10gbe --decode

Times are those of ranks that wait for each other after every step, the transfer of the next block
beside the computing of the present one. Named machines run at their makers' peaks, so that their times
are lower bounds. Sizes go up to 2^48 tokens and 65536 ranks; a window over zigzag, whose steps have no
closed form, up to 1024 ranks.";

impl PlanArgs {
    /// How much is said on stderr.
    pub(crate) fn chatter(&self) -> Chatter {
        if self.quiet { Chatter::Quiet } else { Chatter::Shown }
    }
}

impl ConditionArgs {
    /// Whether anything asks for a simulation.
    pub(crate) fn is_asked_for(&self) -> bool {
        let slow = !self.slow_rank.is_empty() || !self.slow_link.is_empty();
        self.simulate || slow || self.jitter.is_some()
    }
}

fn machine(name: &str) -> Result<&'static NamedMachine, String> {
    let names = || {
        let names: Vec<_> = ringattn::plan::MACHINES.iter().map(|machine| machine.name).collect();
        format!("expected one of {}", names.join(", "))
    };
    NamedMachine::find(name).ok_or_else(names)
}
