//! The most pairs that any rank computes in each step of a ring.
//!
//! In step `s` rank `u` attends block `j = (u - s) mod p`. Around the ring the pairs of `(u, j)` change
//! only where the kind of either shard changes or `j` passes rank 0 ([`Shards::is_translatable`]), so
//! that a few ranks stand for all. Other layouts are visited rank by rank.

use crate::closed_form::Shards;

/// For each step in order the most pairs of a rank.
pub(super) fn most_pairs(shards: &Shards, world_size: u32) -> impl Iterator<Item = u128> + '_ {
    let p = u64::from(world_size);
    let kinds = if shards.is_translatable() { shards.kinds() } else { (0..p).collect() };
    (0..p).map(move |step| {
        let blocks = kinds.iter().map(|&block| (block + step) % p);
        let ranks = kinds.iter().copied().chain(blocks);
        ranks.map(|rank| shards.pairs(rank, (rank + p - step) % p)).max().unwrap_or(0)
    })
}
