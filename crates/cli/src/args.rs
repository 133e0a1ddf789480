//! The command line: what can be asked for, and the help.

#[cfg(feature = "fault-injection")]
mod fault;
mod generate;
mod lists;
mod number;
mod plan;
mod view;

pub(crate) use generate::GenerateArgs;
pub(crate) use lists::{CuSeqlens, WindowBounds};
pub(crate) use plan::{ConditionArgs, MachineArgs, PlanArgs};
pub(crate) use view::ViewArgs;

use crate::console::{self, Chatter};
use crate::failure::{Failure, UsageError};
use clap::error::ErrorKind;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use ringattn::Recording;
use ringattn::bench::BenchSize;
use ringattn::comm::Checksum;
use ringattn::core::DType;
use ringattn::engine::cpu::{Affinity, Isa};
use ringattn::engine::{NonFinite, Overlap};
use ringattn::plan::LayoutKind;
use std::path::PathBuf;
use std::time::Duration;

/// Exact attention over a sequence that no single device holds.
#[derive(Debug, Parser)]
#[command(name = "ringattn", version, propagate_version = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 2 usage or shape, 3 input file, 4 peer lost, \
    5 timeout, 6 integrity, 7 ranks disagree, 8 memory, 9 output, 10 non-finite numbers, \
    130 SIGINT, 143 SIGTERM";

/// A command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Score(ScoreArgs),
    Generate(GenerateArgs),
    Attend(AttendArgs),
    Bench(BenchArgs),
    Plan(PlanArgs),
    View(ViewArgs),
}

/// Per-token log-probabilities and perplexity of a document.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("document").required(true)), after_help = SCORE_EXAMPLE)]
pub(crate) struct ScoreArgs {
    /// A GGUF file, or a Hugging Face folder (config.json, *.safetensors, tokenizer.json)
    pub(crate) model: PathBuf,
    /// The document as UTF-8 text, tokenized as the model's own tokenizer does
    #[arg(long, value_name = "TEXT", group = "document")]
    pub(crate) file: Option<PathBuf>,
    /// The document as token ids: a JSON array, or an object with a `tokens` array
    #[arg(long, value_name = "IDS.json", group = "document")]
    pub(crate) tokens: Option<PathBuf>,
    /// Score only the first N tokens; a text is tokenized to its end before it is cut
    #[arg(long, value_name = "N", value_parser = number::count, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
    /// Write a line {"index", "token", "logprob"} per token; `-` writes them to stdout, and the
    /// summary to stderr
    #[arg(long, value_name = "SCORES.jsonl")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

const SCORE_EXAMPLE: &str = "Example:
  ringattn score model.gguf --file book.txt --ranks 4 --out scores.jsonl --report report.json";

/// Attention over given tensors: writes `out` (type and rank of q) and `lse` (f32, natural log).
#[derive(Debug, Args)]
#[command(after_help = ATTEND_EXAMPLE)]
pub(crate) struct AttendArgs {
    /// One safetensors file with q, k, v ([heads, tokens, d] or [batch, heads, tokens, d]; f32,
    /// bf16 or f16), or three npy files: Q.npy K.npy V.npy (f32 or f16)
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// The safetensors file to write; for npy the folder for out.npy and lse.npy
    #[arg(long, value_name = "OUTPUT")]
    pub(crate) out: PathBuf,
    /// Which keys a query sees, before the narrower masks below
    #[arg(long)]
    pub(crate) mask: MaskName,
    /// See only keys from L before the query to R after it; bounds may be negative
    #[arg(long, value_name = "L,R", value_parser = lists::window, allow_hyphen_values = true)]
    pub(crate) window: Option<WindowBounds>,
    /// See only the own document: the increasing boundaries of packed documents
    #[arg(long, value_name = "a,b,...", value_parser = lists::cu_seqlens, allow_hyphen_values = true)]
    pub(crate) cu_seqlens: Option<CuSeqlens>,
    /// The factor of q.k [default: 1/sqrt(d)]
    #[arg(long, value_name = "X", value_parser = number::scale, allow_hyphen_values = true)]
    pub(crate) softmax_scale: Option<f64>,
    /// The type in which K and V are kept and sent [default: that of k and v]
    #[arg(long)]
    pub(crate) kv_dtype: Option<KvDType>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

const ATTEND_EXAMPLE: &str = "Example:
  ringattn attend qkv.safetensors --out out.safetensors --mask causal --ranks 4 --layout zigzag

A safetensors file may also hold q_positions and k_positions (integers, one per token): global
positions, which q and k of different lengths need.";

/// Kernel and ring speeds, beside the limits of this machine measured in the same run.
#[derive(Debug, Args)]
#[command(after_help = BENCH_EXAMPLE)]
pub(crate) struct BenchArgs {
    /// Measure only the rows that tell most: less than 20 seconds with the default threads and ranks
    #[arg(long)]
    quick: bool,
    /// Write the figures as JSON; `-` writes them to stdout, and the table to stderr
    #[arg(long, value_name = "FIGURES.json")]
    pub(crate) json: Option<PathBuf>,
    /// Measure only rows whose text contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
    /// The instruction set [default: the fastest that the processor has]
    #[arg(long)]
    pub(crate) isa: Option<IsaName>,
    /// Threads of the rows that use several [default: all cores]
    #[arg(long, value_name = "T", value_parser = number::threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Ranks of the ring that is compared with one rank
    #[arg(long, value_name = "P", default_value = "4", value_parser = number::ranks, allow_negative_numbers = true)]
    pub(crate) ranks: u32,
    /// No progress bar, and no table when the figures go to stdout
    #[arg(long)]
    quiet: bool,
}

const BENCH_EXAMPLE: &str = "Example:
  ringattn bench --quick --json figures.json
  ringattn bench --filter 'forward f32 heads=1/1 d=128' --isa avx2

The best of several rounds counts. A row is compared with as many threads that do nothing but
multiply and add, or read memory; where a row is faster than that, it is the limit. Ring rows are
speeds per second of processor time, all ranks and threads together, compared with one thread; the
row of one rank has as many processors as the ring, at most --threads.
The text of a row is, for instance:
  decode bf16 heads=8/2 d=128 L=131072 full threads=1 ranks=1
or, of one token's products with 4-bit weights that lie in main memory:
  dense q4 heads=9/3 d=64 L=1 full threads=1 ranks=1";

impl BenchArgs {
    /// How much is measured.
    pub(crate) fn size(&self) -> BenchSize {
        if self.quick { BenchSize::Quick } else { BenchSize::Full }
    }

    /// How much is said on stderr.
    pub(crate) fn chatter(&self) -> Chatter {
        if self.quiet { Chatter::Quiet } else { Chatter::Shown }
    }
}

/// How to run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct RunArgs {
    /// Ranks of the ring [default: 1, or the size of the MPI job]
    #[arg(long, value_name = "P", value_parser = number::ranks, allow_negative_numbers = true)]
    pub(crate) ranks: Option<u32>,
    /// Threads of each rank [default: cores of the machine / ranks on it, at least 1]
    #[arg(long, value_name = "T", value_parser = number::threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Keep every thread on a processor of its own, rank by rank (Linux)
    #[arg(long)]
    pin: bool,
    /// Which rank owns which token
    #[arg(long, default_value = "striped")]
    pub(crate) layout: LayoutName,
    /// The stripe of striped, the chunk of zigzag, in tokens
    #[arg(long, value_name = "N", value_parser = number::at_least_one, allow_negative_numbers = true)]
    pub(crate) block: Option<u64>,
    /// Where ranks run: local are threads of this process, mpi processes that mpirun or srun has started;
    /// auto is mpi where one of these has, else local
    #[arg(long, default_value = "auto")]
    pub(crate) engine: EngineName,
    /// Wait for each block before computing, to see in the report what overlap is worth
    #[arg(long)]
    no_overlap: bool,
    /// Trust the fabric: send without checksums between processes
    #[arg(long)]
    no_checksum: bool,
    /// Give up when a rank that others wait for stands still for so long [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = number::seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// Refuse to start when more memory than this is predicted for a process; 80G, 8e10, 16Gi
    #[arg(long, value_name = "BYTES", value_parser = number::count, allow_negative_numbers = true)]
    pub(crate) memory_limit: Option<u64>,
    /// Let NaN and infinity reach the rows that see them
    #[arg(long)]
    allow_nonfinite: bool,
    /// Write what was run and counted as JSON
    #[arg(long, value_name = "REPORT.json")]
    pub(crate) report: Option<PathBuf>,
    /// Write what every rank did when as a Chrome trace, which Perfetto and `ringattn view` open
    #[arg(long, value_name = "TRACE.json")]
    pub(crate) trace: Option<PathBuf>,
    /// No progress bar, notes or warnings; the summary stays on stdout, errors on stderr
    #[arg(long)]
    quiet: bool,
    /// Let a rank fail: kill, stop, panic, stick, slow10 or damage, then @RANK:STEP
    #[cfg(feature = "fault-injection")]
    #[arg(long, value_name = "FAULT", value_parser = fault::fault)]
    pub(crate) fault: Option<ringattn::fault::Fault>,
}

impl RunArgs {
    /// How much is said on stderr.
    pub(crate) fn chatter(&self) -> Chatter {
        if self.quiet { Chatter::Quiet } else { Chatter::Shown }
    }

    /// Whether blocks travel while others are attended.
    pub(crate) fn overlap(&self) -> Overlap {
        if self.no_overlap { Overlap::Off } else { Overlap::On }
    }

    /// Whether blocks are checked on their way between processes.
    pub(crate) fn checksum(&self) -> Checksum {
        if self.no_checksum { Checksum::Off } else { Checksum::Verified }
    }

    /// Where threads run.
    pub(crate) fn affinity(&self) -> Affinity {
        if self.pin { Affinity::Pinned } else { Affinity::Free }
    }

    /// Whether the run is recorded.
    pub(crate) fn recording(&self) -> Recording {
        if self.trace.is_some() { Recording::On } else { Recording::Off }
    }

    /// What to do about values that are not finite.
    pub(crate) fn non_finite(&self) -> NonFinite {
        if self.allow_nonfinite { NonFinite::Allow } else { NonFinite::Refuse }
    }
}

/// The mask that the others narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MaskName {
    /// Every key
    Full,
    /// Keys at or before the query
    Causal,
}

/// The types of K and V.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvDType {
    F32,
    Bf16,
    F16,
}

impl KvDType {
    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::Bf16,
            Self::F16 => DType::F16,
        }
    }
}

/// The layouts by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutName {
    /// One run of tokens per rank
    Contiguous,
    /// Tokens in turn
    Striped,
    /// Two runs per rank, from both ends
    Zigzag,
}

impl LayoutName {
    pub(crate) fn kind(self) -> LayoutKind {
        match self {
            Self::Contiguous => LayoutKind::Contiguous,
            Self::Striped => LayoutKind::Striped,
            Self::Zigzag => LayoutKind::Zigzag,
        }
    }
}

/// The instruction sets by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsaName {
    Avx512,
    Avx2,
    Neon,
    Scalar,
}

impl IsaName {
    pub(crate) fn isa(self) -> Isa {
        match self {
            Self::Avx512 => Isa::Avx512,
            Self::Avx2 => Isa::Avx2,
            Self::Neon => Isa::Neon,
            Self::Scalar => Isa::Scalar,
        }
    }
}

/// Where ranks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    Auto,
    Local,
    Mpi,
}

/// Why there is no command to run: help was asked for, or the arguments are wrong.
#[derive(Debug)]
pub(crate) struct NoCommand(clap::Error);

/// The command of this process's arguments.
pub(crate) fn parse() -> Result<Command, NoCommand> {
    Cli::try_parse().map(|cli| cli.command).map_err(NoCommand)
}

impl NoCommand {
    /// Prints help or version; anything else is a failure.
    pub(crate) fn tell(&self) -> Result<(), Failure> {
        let text = self.0.render().to_string();
        match self.0.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(console::result(&text)?),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let message =
                    "no command is given, expected score, attend, bench, plan or view".to_owned();
                let help = "Usage: ringattn <COMMAND>; for more information, try --help".to_owned();
                Err(UsageError::Arguments { message, help }.into())
            }
            _ => {
                let (message, help) = condense(&text);
                Err(UsageError::Arguments { message, help }.into())
            }
        }
    }
}

/// clap's error text as one line of what is wrong and one of where help is.
fn condense(text: &str) -> (String, String) {
    let mut paragraphs = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = paragraphs.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(&message).to_owned();
    let rest: Vec<_> = paragraphs.collect();
    let tip = rest.iter().find(|paragraph| paragraph.starts_with("tip:"));
    let usage = rest.iter().find(|paragraph| paragraph.starts_with("Usage:"));
    let help = "for more information, try --help".to_owned();
    (message, tip.or(usage).cloned().unwrap_or(help))
}
