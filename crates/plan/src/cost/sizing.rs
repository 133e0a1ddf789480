//! Two sizes that follow from a machine: the smallest block that hides its transfer, and the longest
//! context that fits.
//!
//! **Smallest block.** A rank with `c` queries attends a block of `c` keys in `4 d Hq f c^2 / F`
//! seconds, where `f` is the share of the pairs that the mask shows (1 for full; 1/2 for causal over
//! striped or zigzag, where each step computes half). The block moves in `t + 2 c Hk d w / B` (`w` bytes an
//! element, `t` the latency). It is hidden when the first is no less than the second:
//!
//! ```text
//! a c^2 - e c - t >= 0,  a = 4 d Hq f / F,  e = 2 d Hk w / B
//! c >= (e + sqrt(e^2 + 4 a t)) / 2a  =  (w / 2f) (Hk / Hq) (F / B)  when t = 0
//! ```
//!
//! With MHA, 16 bits and no mask that is `c >= F / B`, and a device's shortest sequence is `6 c`
//! (Ring Attention, 2310.01889): its six blocks are one of Q, two of K,V in use, two arriving and the
//! output. The engine's own memory per token is what [`longest_context`] counts.

use super::time::Machine;
use ringattn_core::{AttentionShape, DType};

/// The smallest block that hides its transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmallestBlock {
    /// Tokens `c` of a rank's shard, not rounded.
    pub tokens: f64,
    /// Blocks of that size that Ring Attention's full overlap holds, in tokens: `6 c`.
    pub six_blocks: f64,
}

/// The longest contexts that fit into the memory of `p` ranks, in tokens and multiples of `p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestContext {
    /// K and V of one layer at a time are kept, as in scoring.
    pub one_layer: u64,
    /// K and V of all layers are kept, as in generation.
    pub all_layers: u64,
}

/// The smallest block of a problem whose mask shows the share `visible` of all pairs in a step.
pub fn smallest_block(
    shape: AttentionShape,
    kv_dtype: DType,
    visible: f64,
    machine: &Machine,
) -> SmallestBlock {
    let quadratic = 4.0 * shape.query_width() as f64 * visible / machine.flops;
    let linear = 2.0 * (shape.key_width() as u64 * kv_dtype.size()) as f64 / machine.bandwidth;
    let root = (linear * linear + 4.0 * quadratic * machine.latency).sqrt();
    let tokens = (linear + root) / (2.0 * quadratic);
    SmallestBlock { tokens, six_blocks: 6.0 * tokens }
}

/// Bytes of a token beside K and V while it is attended: Q and the output in f32, and `m`, `z` and
/// `lse` of every query head.
pub fn working_bytes_per_token(shape: AttentionShape) -> u64 {
    4 * (2 * shape.query_width() + 3 * shape.query_heads()) as u64
}

/// The longest context of which every rank holds at most `memory - reserved` bytes: its shard of K and
/// V (of one layer, or of all `layers`), one more shard that visits and one that arrives as far as
/// there are so many ranks, and what its queries work in.
///
/// Every block is taken to travel all the way, so that the result holds for every mask and layout.
pub fn longest_context(
    (shape, kv_dtype): (AttentionShape, DType),
    layers: u64,
    ranks: u32,
    memory: u64,
    reserved: u64,
) -> LongestContext {
    let shard = 2 * shape.key_width() as u64 * kv_dtype.size();
    let visiting = u64::from(ranks.saturating_sub(1).min(2));
    let free = memory.saturating_sub(reserved);
    let tokens = |own: u64| {
        let shards = own.saturating_add(visiting);
        let per_token = shard.saturating_mul(shards).saturating_add(working_bytes_per_token(shape));
        (free / per_token).saturating_mul(u64::from(ranks))
    };
    LongestContext { one_layer: tokens(1), all_layers: tokens(layers.max(1)) }
}
