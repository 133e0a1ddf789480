//! The arguments of `generate`.

use super::{KvDType, RunArgs, number};
use crate::failure::{Failure, UsageError};
use clap::{ArgGroup, Args};
use ringattn::DEFAULT_CACHE_BLOCK;
use ringattn::model::Sampling;
use std::path::PathBuf;

/// Continue a document over a sharded K,V cache: the new text goes to stdout as it comes.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("source").args(["file", "prompt", "tokens", "load_cache"]).multiple(true).required(true)),
    group(ArgGroup::new("text")),
    after_help = EXAMPLE
)]
pub(crate) struct GenerateArgs {
    /// A GGUF file, or a Hugging Face folder (config.json, *.safetensors, tokenizer.json)
    pub(crate) model: PathBuf,
    /// The prompt as a file of UTF-8 text, tokenized as the model's own tokenizer does
    #[arg(long, value_name = "TEXT", group = "text")]
    pub(crate) file: Option<PathBuf>,
    /// The prompt itself
    #[arg(long, value_name = "S", group = "text", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// The prompt as token ids: a JSON array, or an object with a `tokens` array
    #[arg(long, value_name = "IDS.json", group = "text", conflicts_with = "chat")]
    pub(crate) tokens: Option<PathBuf>,
    /// Generate at most N tokens; 0 only computes the prompt
    #[arg(short = 'n', long = "new-tokens", value_name = "N", default_value = "128", value_parser = number::count, allow_negative_numbers = true)]
    pub(crate) new_tokens: u64,
    /// Write the prompt as a question in the model's chat template
    #[arg(long)]
    pub(crate) chat: bool,
    /// Write a line {"index", "token", "logprob"} per new token; the log-probability is the model's own
    #[arg(long, value_name = "TOKENS.jsonl")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

const EXAMPLE: &str = "Example:
  ringattn generate model.gguf --file book.txt -n 0 --ranks 4 --save-cache book.cache
  ringattn generate model.gguf --load-cache book.cache --prompt 'In short,' -n 100 --ranks 2

Ctrl-C ends the text: what was printed stays, the cache is saved if that was asked for, and the exit code
is 130. A prompt behind a loaded cache is appended to its tokens.";

/// How tokens are chosen.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// 0 takes the most likely token, 1 draws from the model's own distribution
    #[arg(long, value_name = "T", default_value = "0", value_parser = number::number, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw from the K most likely tokens
    #[arg(long, value_name = "K", value_parser = number::at_least_one, allow_negative_numbers = true)]
    top_k: Option<u64>,
    /// Draw from the fewest most likely tokens that have probability P together
    #[arg(long, value_name = "P", default_value = "1", value_parser = number::number, allow_negative_numbers = true)]
    top_p: f64,
    /// Draw from tokens with at least P times the largest probability
    #[arg(long, value_name = "P", default_value = "0", value_parser = number::number, allow_negative_numbers = true)]
    min_p: f64,
    /// Above 1, tokens that occurred before become less likely
    #[arg(long, value_name = "R", default_value = "1", value_parser = number::number, allow_negative_numbers = true)]
    repetition_penalty: f64,
    /// Where the random numbers begin
    #[arg(long, value_name = "N", default_value = "0", value_parser = number::count, allow_negative_numbers = true)]
    seed: u64,
    /// Go on behind the tokens by which the model ends a text
    #[arg(long)]
    ignore_eos: bool,
    /// End the text before the first occurrence of S; may be given several times
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    stop: Vec<String>,
}

/// How keys and values are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cache")]
pub(crate) struct CacheArgs {
    /// The type in which K and V are kept and sent [default: that of the loaded cache, or f32]
    #[arg(long)]
    pub(crate) cache_dtype: Option<KvDType>,
    /// Generated tokens are dealt out to the ranks in blocks of N
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CACHE_BLOCK, value_parser = number::at_least_one, allow_negative_numbers = true)]
    pub(crate) cache_block: u64,
    /// Compute the prompt in pieces of N tokens [default: at once]
    #[arg(long, value_name = "N", value_parser = number::at_least_one, allow_negative_numbers = true)]
    pub(crate) prefill_chunk: Option<u64>,
    /// Write the cache to this folder in the end: a file per rank, and a manifest
    #[arg(long, value_name = "FOLDER")]
    pub(crate) save_cache: Option<PathBuf>,
    /// Go on with the cache in this folder, whatever ranks and layout wrote it
    #[arg(long, value_name = "FOLDER")]
    pub(crate) load_cache: Option<PathBuf>,
}

impl GenerateArgs {
    /// How tokens are chosen.
    ///
    /// # Errors
    /// When an option is outside its range.
    pub(crate) fn sampling(&self) -> Result<Sampling, Failure> {
        let args = &self.sampling;
        let sampling = Sampling {
            temperature: args.temperature,
            top_k: args.top_k.map(|k| usize::try_from(k).unwrap_or(usize::MAX)),
            top_p: args.top_p,
            min_p: args.min_p,
            repetition_penalty: args.repetition_penalty,
            seed: args.seed,
        };
        sampling.validate().map_err(ringattn::Error::from)?;
        Ok(sampling)
    }

    /// Whether tokens by which the model ends a text are treated as others.
    pub(crate) fn ignores_end(&self) -> bool {
        self.sampling.ignore_eos
    }

    /// Texts that end the text.
    ///
    /// # Errors
    /// When one is empty, which would end every text.
    pub(crate) fn stops(&self) -> Result<Vec<String>, UsageError> {
        match self.sampling.stop.iter().any(String::is_empty) {
            true => Err(UsageError::EmptyStop),
            false => Ok(self.sampling.stop.clone()),
        }
    }
}
