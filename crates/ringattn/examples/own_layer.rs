//! An attention layer of one's own over a sharded K,V cache, without the model crate.
//!
//! `cargo run --release --example own_layer -- RANKS`: a toy layer feeds its output back as its next input,
//! as decoding does. Each rank keeps its share of keys and values; for each new token the ranks attend
//! what they hold, and their partial states meet in a tree. Any number of ranks prints the same numbers.

#![allow(clippy::print_stdout, reason = "an example shows what it found")]

use ringattn::comm::{Communicator, local};
use ringattn::core::{AttentionShape, DType, Elements, Interval, Mask, Position, QueryIntervals};
use ringattn::engine::cpu::{
    Arrangement, CacheShape, CpuBackend, CpuState, Isa, Kernel, KvCache, OutputRows, SharedRows,
};
use ringattn::engine::{Job, NonFinite, RankPlan, run};
use ringattn::plan::{Plan, Problem, Schedule};
use std::error::Error;

const TOKENS: u64 = 40;
/// Tokens of a block of the cache.
const BLOCK: u64 = 4;

/// What stands for a layer's projections: any function of the token's activation that all ranks share.
fn project(x: &[f32], turn: f32, len: usize) -> Vec<f32> {
    (0..len).map(|i| (x[i % x.len()] + turn * (i as f32 + 1.0)).sin()).collect()
}

/// One token through the layer: its key and value go into the cache of the rank that owns it, its query
/// is on every rank, and so is the result.
fn attend<C: Communicator>(
    cache: &mut KvCache,
    backend: &CpuBackend,
    x: &[f32],
    comm: &C,
) -> Result<Vec<f32>, Box<dyn Error + Send + Sync>> {
    let shape = cache.shape().attention;
    cache.place_generated(1, BLOCK)?;
    let len = cache.layout().len();
    let owner = cache.layout().owner(Position(len - 1));
    let mine = owner.is_some_and(|(rank, _)| rank == comm.rank());
    let kv = |turn| if mine { project(x, turn, shape.key_width()) } else { Vec::new() };
    cache.append(0, (&kv(0.5), &kv(0.7)), NonFinite::Refuse)?;

    let sees_all = Interval::new(Position(0), Position(len));
    let mask = Mask::Intervals(QueryIntervals::new([sees_all]));
    let problem = Problem { shape, queries: 1, keys: len, mask, kv_dtype: cache.shape().dtype };
    let plan = Plan::with_replicated_queries(problem, cache.layout().clone(), Schedule::Tree)?;
    let rank_plan = RankPlan::new(&plan.prepare(), comm.rank());

    let row = Arrangement::token_major(shape.query_heads(), 1, shape.head_dim());
    let queries = SharedRows::whole(Elements::F32(project(x, 0.3, shape.query_width())), row);
    let mut out = vec![0.0; shape.query_width()];
    let state = CpuState::empty(OutputRows::whole(&mut out, row)?)?;
    let job = Job {
        plan: &rank_plan,
        queries: &queries,
        block: cache.block(0)?,
        non_finite: NonFinite::CheckedInputs,
        attended: &|_| (),
    };
    run(&job, state, backend, comm)?;
    Ok(out)
}

fn main() -> Result<(), Box<dyn Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(3), |ranks| ranks.parse())?;
    let attention = AttentionShape::new(4, 2, 8)?;
    let results = local::run(ranks, local::DEFAULT_TIMEOUT, |comm| {
        let shape = CacheShape { attention, layers: 1, dtype: DType::F32 };
        let mut cache = KvCache::new(shape, comm.rank(), comm.size())?;
        let kernel = Kernel::new(Isa::detect(), 1)?;
        let backend = CpuBackend::new(kernel, attention, 1.0 / (8.0_f32).sqrt());
        let mut x = vec![0.1; attention.query_width()];
        for _ in 0..TOKENS {
            x = attend(&mut cache, &backend, &x, &comm)?;
        }
        Ok::<_, Box<dyn Error + Send + Sync>>((cache.layout().count(comm.rank()), x))
    })?;
    for (rank, (tokens, x)) in results.iter().enumerate() {
        println!("rank {rank} holds {tokens} of {TOKENS} tokens; {:.6} {:.6} ...", x[0], x[1]);
    }
    Ok(())
}
