//! The field's closed forms for the layouts and schedules that exist, by enumeration for `p` from 2 to
//! 16. `n = L / p` tokens of a rank, `KV` bytes of a shard.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use ringattn_core::{AttentionShape, DType, Interval, Mask, Rank, Slot};
use ringattn_plan::{
    BlockId, Cost, Layout, LayoutKind, Machine, Plan, Problem, Schedule, longest_context, price,
    smallest_block, working_bytes_per_token,
};
use support::{KINDS, enumerated, plan, window};

/// Every ring of 2 to 16 ranks with some numbers of tokens per rank, even for zigzag's halves.
fn rings() -> impl Iterator<Item = (u64, u32)> {
    (2..=16).flat_map(|p| [2, 4, 10, 16].map(|n| (n, p)))
}

fn causal(kind: LayoutKind, n: u64, p: u32) -> Plan {
    plan((kind, None), n * u64::from(p), p, Mask::Causal)
}

fn pairs(cost: &Cost) -> Vec<u64> {
    cost.ranks.iter().map(|rank| rank.pairs as u64).collect()
}

#[test]
fn causal_pairs_per_rank() {
    for (n, ranks) in rings() {
        let p = u64::from(ranks);
        let of = |kind| pairs(&enumerated(&causal(kind, n, ranks)));
        let each = |pairs: &dyn Fn(u64) -> u64| (0..p).map(pairs).collect::<Vec<_>>();
        assert_eq!(of(LayoutKind::Contiguous), each(&|r| n * n * r + n * (n + 1) / 2));
        assert_eq!(of(LayoutKind::Striped), each(&|r| p * n * (n - 1) / 2 + (r + 1) * n));
        assert_eq!(of(LayoutKind::Zigzag), each(&|_| n * (p * n + 1) / 2));
    }
}

#[test]
fn causal_makespan_and_balance() {
    for (n, ranks) in rings() {
        let p = u64::from(ranks);
        let of = |kind| enumerated(&causal(kind, n, ranks));
        let [contiguous, striped, zigzag] = KINDS.map(of);
        let triangle = n * (n + 1) / 2;
        assert_eq!(contiguous.makespan_pairs(), u128::from(triangle + (p - 1) * n * n));
        assert_eq!(striped.makespan_pairs(), u128::from(p * triangle));
        assert_eq!(zigzag.makespan_pairs(), u128::from(n * (p * n + 1) / 2));

        let (n, p) = (n as f64, f64::from(ranks));
        let near = |actual: f64, expected: f64| (actual - expected).abs() < 1e-12 * expected;
        assert!(near(striped.max_over_mean(), p * (n + 1.0) / (p * n + 1.0)));
        assert!(near(zigzag.max_over_mean(), 1.0) && near(zigzag.utilisation(), 1.0));
        // The limits for many tokens, which are approached as 1 / n: the exact forms are
        // (2pn - n + 1) / (pn + 1) and (pn + 1) / ((2p - 1) n + 1).
        let (most, busy) = (contiguous.max_over_mean(), contiguous.utilisation());
        assert!((most - (2.0 - 1.0 / p)).abs() < 1.0 / n, "{most}");
        assert!((busy - p / (2.0 * p - 1.0)).abs() < 1.0 / n, "{busy}");
    }
    let busy = price(&causal(LayoutKind::Contiguous, 1 << 20, 8)).unwrap().utilisation();
    assert!((busy - 0.533).abs() < 5e-4, "{busy}");
}

#[test]
fn causal_pairs_of_a_rank_with_a_block() {
    for (n, p) in rings() {
        let [striped, zigzag] = [LayoutKind::Striped, LayoutKind::Zigzag].map(|k| causal(k, n, p));
        for rank in 0..p {
            for source in 0..p {
                let pairs = |plan: &Plan| plan.pairs(Rank(rank), BlockId(Rank(source)));
                let triangle = if rank >= source { n * (n + 1) / 2 } else { n * (n - 1) / 2 };
                assert_eq!(pairs(&striped), triangle);
                let local = if rank == source { n * (n + 1) / 2 } else { n * n / 2 };
                assert_eq!(pairs(&zigzag), local);
            }
        }
    }
}

/// Zigzag at step `s` of rank `r`: all queries see the first half of the block while `s <= r`, then the
/// second half of the queries sees all of it.
#[test]
fn zigzag_halves() {
    for (n, p) in rings() {
        let plan = causal(LayoutKind::Zigzag, n, p);
        for (rank, step) in (0..p).flat_map(|rank| (1..p).map(move |step| (rank, step))) {
            let block = BlockId(Rank((rank + p - step) % p));
            let seen: Vec<_> =
                plan.intervals(Rank(rank), block).map(|i| (i.start().0, i.end().0)).collect();
            let (half, n) = (n as usize / 2, n);
            let expected: Vec<_> = if step <= rank {
                vec![(0, n / 2); 2 * half]
            } else {
                [vec![(0, 0); half], vec![(0, n); half]].concat()
            };
            assert_eq!(seen, expected, "rank {rank} step {step} of {p}");
        }
    }
}

/// Tiles of `T x T` slots that hold any visible pair: with `m = n / T` the busiest ranks compute
/// `(m + 1) / m` of the pairs' worth when striped, and `(pm + 1) / (pm)` in zigzag.
#[test]
fn tiles_on_the_diagonal() {
    const TILE: u64 = 4;
    for (m, p) in (2..=16).flat_map(|p| [2, 4, 8].map(|m| (m, p))) {
        let n = m * TILE;
        let busiest = |kind| -> u64 {
            let plan = causal(kind, n, p);
            let of_step = |step| (0..p).map(|rank| tiles(&plan, rank, (rank + p - step) % p)).max();
            (0..p).filter_map(of_step).sum()
        };
        let p = u64::from(p);
        assert_eq!(busiest(LayoutKind::Striped), p * m * (m + 1) / 2);
        assert_eq!(busiest(LayoutKind::Zigzag), m * (p * m + 1) / 2);
    }

    fn tiles(plan: &Plan, rank: u32, block: u32) -> u64 {
        let rows: Vec<_> = plan.intervals(Rank(rank), BlockId(Rank(block))).collect();
        let keys = plan.key_layout().count(Rank(block));
        let rows = rows.chunks(TILE as usize).map(|rows| {
            let columns = (0..keys / TILE).map(|tile| {
                let columns = Interval::new(Slot(tile * TILE), Slot((tile + 1) * TILE));
                u64::from(rows.iter().any(|row| !row.intersect(columns).is_empty()))
            });
            columns.sum::<u64>()
        });
        rows.sum()
    }
}

#[test]
fn ring_traffic() {
    for (n, ranks) in rings() {
        let p = u64::from(ranks);
        let kv = 64 * n;
        for kind in [LayoutKind::Striped, LayoutKind::Zigzag] {
            for rank in enumerated(&causal(kind, n, ranks)).ranks {
                assert_eq!((rank.hops, rank.sent_bytes), (p - 1, (p - 1) * kv));
                assert_eq!(rank.peak_kv_bytes, kv * p.min(3));
            }
        }
        for kind in KINDS {
            let full = enumerated(&plan((kind, None), n * p, ranks, Mask::Full));
            assert!(full.ranks.iter().all(|rank| rank.received_bytes == (p - 1) * kv));
        }
        // Contiguous and causal: half of the hops are dead, the busiest link keeps all of its own.
        let pruned = enumerated(&causal(LayoutKind::Contiguous, n, ranks));
        assert_eq!(pruned.ranks.iter().map(|rank| rank.hops).sum::<u64>(), p * (p - 1) / 2);
        assert_eq!(pruned.most(|rank| rank.hops), p - 1);
        assert_eq!(pruned.most(|rank| rank.sent_bytes), (p - 1) * kv);
    }
}

#[test]
fn a_window_needs_the_hops_that_it_reaches() {
    for (n, p) in rings() {
        let len = n * u64::from(p);
        for width in 1..=len + 1 {
            let plan_of = |right| {
                let mask = window(width as i64 - 1, right);
                enumerated(&plan((LayoutKind::Contiguous, None), len, p, mask))
            };
            let hops = plan_of(0).most(|rank| rank.hops);
            assert_eq!(hops, u64::from(p - 1).min((width - 1).div_ceil(n)), "{n} {p} {width}");
            // A key that an earlier rank sees goes almost all the way around.
            assert_eq!(plan_of(1).most(|rank| rank.hops), u64::from(p - 1));
        }
    }
}

/// Ring Attention, 2310.01889, section 3: a device of `F` FLOP/s and `B` byte/s hides a hop from
/// `c = F / B` tokens on; `6 c` is its shortest sequence.
#[test]
fn the_smallest_block_of_ring_attention() {
    let mha = AttentionShape::new(32, 32, 128).unwrap();
    let gqa = AttentionShape::new(32, 8, 128).unwrap();
    let block = |shape, dtype, visible, (bandwidth, latency)| {
        let machine = Machine { flops: 312e12, bandwidth, latency, memory: 80_000_000_000 };
        smallest_block(shape, dtype, visible, &machine)
    };
    for (bandwidth, c, six) in [(300e9, 1.0e3, 6.2e3), (12.5e9, 25e3, 150e3)] {
        let found = block(mha, DType::Bf16, 1.0, (bandwidth, 0.0));
        // The paper rounds to two digits.
        assert!((found.tokens / c - 1.0).abs() < 0.05, "{found:?}");
        assert!((found.six_blocks / six - 1.0).abs() < 0.01, "{found:?}");
    }
    let plain = block(mha, DType::Bf16, 1.0, (300e9, 0.0)).tokens;
    assert_eq!(block(gqa, DType::Bf16, 1.0, (300e9, 0.0)).tokens, plain / 4.0);
    assert_eq!(block(mha, DType::F32, 1.0, (300e9, 0.0)).tokens, plain * 2.0);
    assert_eq!(block(mha, DType::Bf16, 0.5, (300e9, 0.0)).tokens, plain * 2.0);
    // With latency: at the block found, computing takes just as long as the hop.
    let (shape, latency) = (gqa, 1e-3);
    let c = block(shape, DType::Bf16, 0.5, (300e9, latency)).tokens;
    let compute = 4.0 * 4096.0 * 0.5 * c * c / 312e12;
    let hop = latency + 4.0 * 1024.0 * c / 300e9;
    assert!((compute / hop - 1.0).abs() < 1e-12, "{compute} {hop}");
}

#[test]
fn the_longest_context_fits_and_one_token_more_per_rank_does_not() {
    let shape = AttentionShape::new(4, 2, 8).unwrap();
    for p in 1..=16 {
        for (layers, memory, reserved) in [(1, 100_000, 0), (3, 1_000_000, 54_321), (5, 100, 0)] {
            let found = longest_context((shape, DType::Bf16), layers, p, memory, reserved);
            let needed = |tokens: u64, layers: u64| {
                let plan = plan((LayoutKind::Striped, None), tokens, p, Mask::Full);
                let cost = price(&plan).unwrap();
                let held = |rank: &ringattn_plan::RankCost| {
                    let cached = (layers - 1) * rank.resident_kv_bytes;
                    rank.peak_kv_bytes + cached + rank.queries * working_bytes_per_token(shape)
                };
                reserved + cost.most(held)
            };
            for (tokens, layers) in [(found.one_layer, 1), (found.all_layers, layers)] {
                assert!(tokens == 0 || needed(tokens, layers) <= memory, "{found:?} {p}");
                assert!(needed(tokens + u64::from(p), layers) > memory, "{found:?} {p}");
            }
        }
    }
}

/// Million elements that a rank sends forward, Llama-3-8B heads at 131072 tokens.
#[test]
fn llama_3_8b_ring_elements() {
    let shape = AttentionShape::new(32, 8, 128).unwrap();
    for (p, expected) in [(2, 134.0), (4, 201.0), (8, 235.0), (16, 252.0), (32, 260.0)] {
        let (len, kv_dtype) = (131_072, DType::Bf16);
        let problem = Problem { shape, queries: len, keys: len, mask: Mask::Causal, kv_dtype };
        let layout = Layout::new(LayoutKind::Zigzag, None, len, p).unwrap();
        let cost = price(&Plan::new(problem, layout, Schedule::RingPassKv).unwrap()).unwrap();
        let elements = cost.most(|rank| rank.sent_bytes) as f64 / 2.0;
        assert_eq!((elements / 1e6).round(), expected);
    }
}

/// The same of queries that go round and of their states that come back, which hold `m` and `z` where
/// others send one `lse`: `d + 2` numbers a row and head, not `d + 1`.
#[test]
fn llama_3_8b_pass_q_elements() {
    let shape = AttentionShape::new(32, 8, 128).unwrap();
    for (p, queries, states) in [
        (2, 268.0, 271.0),
        (4, 403.0, 406.0),
        (8, 470.0, 473.0),
        (16, 503.0, 507.0),
        (32, 520.0, 524.0),
    ] {
        let (len, kv_dtype) = (131_072, DType::Bf16);
        let problem = Problem { shape, queries: len, keys: len, mask: Mask::Full, kv_dtype };
        let layout = Layout::new(LayoutKind::Zigzag, None, len, p).unwrap();
        let plan = Plan::new(problem, layout, Schedule::RingPassQ).unwrap();
        let elements = plan.prepare().most_received_bytes() / 4;
        let rows = (len - len / u64::from(p)) * 32;
        assert_eq!(elements, rows * 128 + rows * 130);
        let millions = |numbers: u64| (numbers as f64 / 1e6).round();
        assert_eq!((millions(rows * 128), millions(rows * 129)), (queries, states));
    }
}
