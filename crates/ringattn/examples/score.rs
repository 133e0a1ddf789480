//! Scores token ids with a model over a ring of ranks, from Rust.
//!
//! `cargo run --release --example score -- MODEL IDS.json RANKS`

#![allow(clippy::print_stdout, reason = "an example prints")]

use ringattn::RunOptions;
use ringattn::model::Model;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, ids, ranks] = arguments.as_slice() else {
        return Err("usage: score MODEL IDS.json RANKS".into());
    };
    let model = Model::open(Path::new(model))?;
    let tokens: Vec<u32> = serde_json::from_str(&std::fs::read_to_string(ids)?)?;
    let scored = ringattn::score(&model, &tokens, &RunOptions::new(ranks.parse()?))?;
    let (output, report) = scored.ok_or("another process of the job has the result")?;
    println!("{:?}", output.summary);
    for rank in &report.per_rank {
        println!(
            "rank {}: {} tokens, {} of {} bytes of K,V held, {} received in {} hops",
            rank.rank,
            rank.tokens,
            rank.resident_kv_bytes,
            report.law.kv_bytes_total_per_layer * report.layers as u64,
            rank.received_bytes,
            rank.hops,
        );
    }
    println!("{:.1} tokens/s; the law holds: {}", report.tokens_per_s, report.law.holds);
    Ok(())
}
