//! The arguments of `view`.

use clap::{ArgGroup, Args};
use std::path::PathBuf;

/// A page that shows a plan or a run step by step: one HTML file that needs no network.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where").required(true).multiple(true)), after_help = EXAMPLE)]
pub(crate) struct ViewArgs {
    /// A plan, a report or a trace as JSON, of at most 32 ranks [default: rings of 2 to 8 devices
    /// to learn from]
    #[arg(value_name = "PLAN|REPORT|TRACE")]
    pub(crate) input: Option<PathBuf>,
    /// Write the page to a file; `-` writes it to stdout
    #[arg(long, value_name = "PAGE.html", group = "where")]
    pub(crate) out: Option<PathBuf>,
    /// Serve the page to this machine alone until interrupted; prints its address
    #[arg(long, group = "where")]
    pub(crate) serve: bool,
    /// The port to serve at [default: one that is free]
    #[arg(long, value_name = "PORT", requires = "serve")]
    pub(crate) port: Option<u16>,
}

const EXAMPLE: &str = "Example:
  ringattn view --out ring.html
  ringattn attend qkv.safetensors --out out.safetensors --mask causal --ranks 4 --report run.json
  ringattn view run.json --serve";
