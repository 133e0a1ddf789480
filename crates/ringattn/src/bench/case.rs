//! The rows as data: which problems are measured, by size of the benchmark.

use super::{BenchSize, Stored};
use ringattn_core::DType;
use ringattn_engine::cpu::dense::Codes;
use serde::{Serialize, Serializer};
use std::fmt;

/// One row to be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The kind of work.
    #[serde(serialize_with = "as_text")]
    pub what: What,
    /// The type of K and V, or of the weights.
    #[serde(serialize_with = "as_text")]
    pub dtype: Stored,
    /// Query heads.
    pub query_heads: usize,
    /// Key heads.
    pub kv_heads: usize,
    /// Head dimension. A dense row of several tokens is the widening product of a feed-forward layer
    /// whose width is `query_heads * head_dim`; one of a single token is all products of such layers.
    pub head_dim: usize,
    /// Query tokens that are computed.
    pub queries: u64,
    /// Tokens of the whole sequence.
    pub tokens: u64,
    /// What each query sees.
    #[serde(serialize_with = "as_text")]
    pub mask: BenchMask,
    /// Threads of a rank.
    pub threads: usize,
    /// Ranks.
    pub ranks: u32,
}

/// The kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Attention of many query rows over one block, the state and its end included.
    Forward,
    /// One query against a long cache.
    Decode,
    /// Attention over all ranks of a ring in this process, sharding and gathering included.
    Ring,
    /// Products with packed weights: of several tokens, bound by arithmetic, or of one, bound by the
    /// reading of weights that lie in main memory.
    Dense,
}

/// What the queries of a row see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchMask {
    /// Every key.
    Full,
    /// Keys at or before the query.
    Causal,
    /// The last 512 keys up to the query.
    CausalWindow,
    /// What one rank of 8 sees, causally, of another rank's block in the striped layout.
    StripedShard,
}

/// Keys of a window.
pub(super) const WINDOW: u64 = 512;
/// Ranks of the sequence that a striped shard is taken from.
pub(super) const STRIPES: u32 = 8;
/// Quantised weights, as those of Q8_0 and Q4_0 are packed.
const CODES: [Stored; 2] =
    [Stored::Quantised(Codes::Bytes), Stored::Quantised(Codes::Nibbles { lowest: -8 })];

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Decode => "decode",
            Self::Ring => "ring",
            Self::Dense => "dense",
        })
    }
}

impl fmt::Display for BenchMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Causal => "causal",
            Self::CausalWindow => "causal+window",
            Self::StripedShard => "striped-shard",
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, dtype, query_heads, kv_heads, head_dim, tokens, mask, .. } = self;
        let (threads, ranks) = (self.threads, self.ranks);
        write!(f, "{what} {dtype} heads={query_heads}/{kv_heads} d={head_dim} L={tokens} ")?;
        write!(f, "{mask} threads={threads} ranks={ranks}")
    }
}

impl Case {
    /// Whether it reads weights from main memory: the dense layers of decoding.
    pub(super) fn reads_weights(&self) -> bool {
        self.what == What::Dense && self.tokens == 1
    }

    /// Whether it is bound by reading, so that its speed is bytes per second.
    pub(super) fn reads(&self) -> bool {
        self.what == What::Decode || self.reads_weights()
    }

    /// Threads of the limit that it is compared with: a ring's speed is per second of processor time.
    pub(super) fn limit_threads(&self) -> usize {
        if self.what == What::Ring { 1 } else { self.threads }
    }

    /// Whether it is `ring`'s problem on one rank.
    pub(super) fn is_one_rank_of(&self, ring: &Self) -> bool {
        *self == Self { ranks: 1, threads: self.threads, ..ring.clone() }
    }

    /// The width inside the feed-forward layer: the usual size of a gated one.
    pub(super) fn wide(&self) -> usize {
        self.query_heads * self.head_dim * 8 / 3
    }
}

fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Tokens of the rows of one benchmark.
struct Tokens {
    forward: u64,
    decode: u64,
    ring: u64,
    dense: u64,
}

impl BenchSize {
    fn tokens(self) -> Tokens {
        match self {
            Self::Full => Tokens { forward: 4096, decode: 131_072, ring: 16_384, dense: 512 },
            Self::Quick => Tokens { forward: 4096, decode: 65_536, ring: 4096, dense: 512 },
            Self::Smallest => Tokens { forward: 100, decode: 1000, ring: 100, dense: 24 },
        }
    }
}

/// The rows of a benchmark of `size`, with one thread and with `threads`, and with `ranks` of one thread and
/// with one rank that has as many processors: what they share with each other and with whoever else is on
/// the machine costs both the same.
pub(super) fn cases(size: BenchSize, threads: usize, ranks: u32) -> Vec<Case> {
    let tokens = size.tokens();
    let mut cases = forward(DType::F32, tokens.forward);
    let decoded = |dtype| decode(dtype, (2, 2), tokens.decode);
    let several = |cases: &[Case]| -> Vec<Case> {
        let cases = cases.iter().filter(|_| threads > 1);
        cases.map(|case| Case { threads, ..case.clone() }).collect()
    };
    if size == BenchSize::Full {
        cases.extend(several(&cases));
        cases.extend(forward(DType::F32, 1024));
        cases.extend(forward(DType::Bf16, tokens.forward));
        cases.extend([64, 128].map(|d| attention(BenchMask::CausalWindow, d, 8192)));
        cases.extend([64, 128].map(|d| attention(BenchMask::StripedShard, d, 32_768)));
        let grouped = attention(BenchMask::Causal, 64, tokens.forward);
        cases.push(Case { query_heads: 8, kv_heads: 2, ..grouped });
        let mut decodes: Vec<_> =
            [DType::F32, DType::Bf16, DType::F16].into_iter().flat_map(decoded).collect();
        decodes.extend(decode(DType::Bf16, (8, 2), tokens.decode));
        decodes.extend(several(&decodes));
        cases.extend(decodes);
    } else {
        cases.extend(several(&cases[3..]));
        cases.push(Case { dtype: DType::Bf16.into(), ..cases[3].clone() });
        cases.extend([DType::F32, DType::Bf16].into_iter().flat_map(decoded));
    }
    let heads = if size == BenchSize::Full { 8 } else { 2 };
    let one = Case {
        what: What::Ring,
        query_heads: heads,
        kv_heads: heads,
        ..attention(BenchMask::Causal, 64, tokens.ring)
    };
    cases.push(Case { threads: threads.min(ranks as usize), ..one.clone() });
    if ranks > 1 {
        cases.push(Case { ranks, ..one });
    }
    cases.extend([DType::F32, DType::Bf16].map(|dtype| dense(dtype.into(), tokens.dense)));
    let stored = [DType::F32.into(), DType::Bf16.into()].into_iter().chain(CODES);
    let singles: Vec<_> = stored.map(|stored| dense(stored, 1)).collect();
    let several = several(&singles);
    cases.extend(singles.into_iter().chain(several));
    cases
}

/// Both head dimensions, full and causal.
fn forward(dtype: DType, tokens: u64) -> Vec<Case> {
    let dtype = dtype.into();
    let masks = [BenchMask::Full, BenchMask::Causal];
    let of = |head_dim| masks.map(|mask| Case { dtype, ..attention(mask, head_dim, tokens) });
    [64, 128].into_iter().flat_map(of).collect()
}

/// One head of f32.
fn attention(mask: BenchMask, head_dim: usize, tokens: u64) -> Case {
    let queries = match mask {
        BenchMask::StripedShard => tokens / u64::from(STRIPES),
        _ => tokens,
    };
    Case {
        what: What::Forward,
        dtype: DType::F32.into(),
        query_heads: 1,
        kv_heads: 1,
        head_dim,
        queries,
        tokens,
        mask,
        threads: 1,
        ranks: 1,
    }
}

/// One query over so many keys, for both head dimensions.
fn decode(dtype: DType, (query_heads, kv_heads): (usize, usize), tokens: u64) -> [Case; 2] {
    let (what, dtype) = (What::Decode, dtype.into());
    [64, 128].map(|head_dim| Case {
        what,
        dtype,
        query_heads,
        kv_heads,
        queries: 1,
        ..attention(BenchMask::Full, head_dim, tokens)
    })
}

/// The up projection of SmolLM2-135M, 576 to 1536; of one token, whole layers of it.
fn dense(dtype: Stored, tokens: u64) -> Case {
    let what = What::Dense;
    Case { what, dtype, query_heads: 9, kv_heads: 3, ..attention(BenchMask::Full, 64, tokens) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_holds_the_four_rows_that_are_promised() {
        for (size, tokens) in [(BenchSize::Full, 4096), (BenchSize::Quick, 4096)] {
            let texts: Vec<_> = cases(size, 2, 4).iter().map(Case::to_string).collect();
            for d in [64, 128] {
                for mask in ["full", "causal"] {
                    let text =
                        format!("forward f32 heads=1/1 d={d} L={tokens} {mask} threads=1 ranks=1");
                    assert!(texts.contains(&text), "{text} in {size:?}");
                }
            }
        }
    }

    #[test]
    fn no_row_is_measured_twice() {
        for size in [BenchSize::Full, BenchSize::Quick, BenchSize::Smallest] {
            for (threads, ranks) in [(1, 1), (1, 4), (2, 1), (3, 5)] {
                let cases = cases(size, threads, ranks);
                for (index, case) in cases.iter().enumerate() {
                    assert!(!cases[..index].contains(case), "{case}");
                    assert!(
                        [1, threads].contains(&case.threads) && [1, ranks].contains(&case.ranks)
                    );
                }
                let most = |of: fn(&Case) -> usize| cases.iter().map(of).max();
                assert_eq!(most(|case| case.threads), Some(threads));
                assert_eq!(most(|case| case.ranks as usize), Some(ranks as usize));
            }
        }
    }
}
