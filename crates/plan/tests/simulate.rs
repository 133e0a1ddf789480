//! The simulation against times that follow by hand, and against the lockstep price.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn_core::{AttentionShape, DType, Mask, Rank, Window};
use ringattn_plan::{
    Activity, Conditions, Layout, LayoutKind, Machine, Nanos, Plan, Problem, Schedule,
    SimulationError, Spike, Summary, Timing, WaitCause, price, simulate, simulate_into,
    spike_response,
};

const KINDS: [LayoutKind; 3] = [LayoutKind::Contiguous, LayoutKind::Striped, LayoutKind::Zigzag];

/// One head of dimension 1: 4 FLOPs a pair and 8 bytes of K and V a token.
fn plan(kind: LayoutKind, len: u64, p: u32, mask: Mask) -> Plan {
    let shape = AttentionShape::new(1, 1, 1).unwrap();
    let problem = Problem { shape, queries: len, keys: len, mask, kv_dtype: DType::F32 };
    Plan::new(problem, Layout::new(kind, None, len, p).unwrap(), Schedule::RingPassKv).unwrap()
}

/// A pair takes `pair` ns, a token's K and V `token` ns under way, a message `latency` ns more.
fn machine(pair: f64, token: f64, latency: f64) -> Machine {
    let (flops, bandwidth) = (4e9 / pair, 8e9 / token);
    Machine { flops, bandwidth, latency: latency * 1e-9, memory: 1 << 30 }
}

fn summary(plan: &Plan, conditions: &Conditions) -> Summary {
    let timeline = simulate(plan, conditions).unwrap();
    timeline.check().unwrap_or_else(|error| panic!("{error}\n{plan}"));
    timeline.summary()
}

#[test]
fn full_masks_take_the_longer_of_computing_and_hop_in_every_step() {
    // 3 ranks of 10 tokens: 100 pairs a step; three steps, two of them with a hop.
    let plan = plan(LayoutKind::Contiguous, 30, 3, Mask::Full);
    for (pair, token, latency, expected) in [
        (1.0, 1.0, 0.0, 300),
        (1.0, 10.0, 0.0, 300),
        (1.0, 10.0, 50.0, 150 + 150 + 100),
        (1.0, 30.0, 0.0, 300 + 300 + 100),
        (0.5, 1.0, 7.0, 150),
    ] {
        let conditions = Conditions::of(machine(pair, token, latency));
        let summary = summary(&plan, &conditions);
        assert_eq!(summary.end, Nanos(expected));
        let lockstep = Timing::new(&price(&plan).unwrap(), &conditions.machine);
        assert!((lockstep.total * 1e9 - expected as f64).abs() < 1e-6);
        let hop = (10.0 * token + latency) as u64;
        for rank in &summary.totals {
            assert_eq!(rank.receive, Nanos(2 * hop));
            assert_eq!(rank.attend, Nanos((300.0 * pair) as u64));
            assert_eq!(rank.attend.0 + rank.transfer_wait.0 + rank.peer_wait.0, expected);
        }
    }
}

#[test]
fn queries_and_states_travel_beside_the_computing() {
    // 4 ranks of 10 tokens: 100 pairs a step, 40 bytes of queries, which is half of K and V, and 120 of
    // states. Queries arrive in the first three steps, states in the last three of five.
    let whole = plan(LayoutKind::Contiguous, 40, 4, Mask::Full);
    let layout = whole.key_layout().clone();
    let plan = Plan::new(whole.problem().clone(), layout, Schedule::RingPassQ).unwrap();
    for (pair, token, expected) in [
        (1.0, 1.0, 4 * 100 + 15),
        (1.0, 4.0, 4 * 100 + 60),
        (1.0, 6.0, 2 * 100 + 120 + 100 + 90),
        (1.0, 8.0, 2 * 100 + 160 + 120 + 120),
        (0.1, 8.0, 2 * 40 + 160 + 120 + 120),
    ] {
        let conditions = Conditions::of(machine(pair, token, 0.0));
        let summary = summary(&plan, &conditions);
        assert_eq!(summary.end, Nanos(expected), "{pair} {token}");
        let lockstep = Timing::new(&price(&plan).unwrap(), &conditions.machine);
        assert!((lockstep.total * 1e9 - expected as f64).abs() < 1e-6);
        for rank in &summary.totals {
            assert_eq!(rank.receive, Nanos((60.0 * token) as u64));
            assert_eq!(rank.attend, Nanos((400.0 * pair) as u64));
        }
    }
}

#[test]
fn a_slow_rank_holds_up_its_neighbours() {
    let plan = plan(LayoutKind::Contiguous, 20, 2, Mask::Full);
    let slow_ranks = vec![(Rank(1), 3.0)];
    let conditions = Conditions { slow_ranks, ..Conditions::of(machine(1.0, 1.0, 0.0)) };
    let timeline = simulate(&plan, &conditions).unwrap();
    // Rank 1 takes 300 ns for each of its two blocks. Rank 0 needs no more of it after step 0: the
    // exchange of that step began at once.
    assert_eq!(timeline.summary().end, Nanos(600));
    let of_rank_0 = timeline.spans.iter().filter(|span| span.rank == Rank(0));
    assert_eq!(of_rank_0.map(|span| span.end).max(), Some(Nanos(200)));

    // In the next layer rank 0 waits until rank 1 posts again.
    let conditions = Conditions { layers: 2, ..conditions };
    let summary = summary(&plan, &conditions);
    assert_eq!(summary.end, Nanos(1200));
    let edge = summary.waits()[0];
    assert_eq!((edge.rank, edge.peer, edge.cause), (Rank(0), Rank(1), WaitCause::Peer));
    assert_eq!(edge.total, Nanos(600 - 200 - 100));
}

#[test]
fn a_spike_and_a_slow_link_are_waited_for() {
    let plan = plan(LayoutKind::Striped, 30, 3, Mask::Full);
    let plain = Conditions::of(machine(1.0, 1.0, 0.0));
    let spike = Spike { rank: Rank(1), step: 0, seconds: 490e-9 };
    let spiked = summary(&plan, &Conditions { spikes: vec![spike], ..plain.clone() });
    // The hop takes 10 + 490 ns and hides 100 of them.
    assert_eq!(spiked.end, Nanos(300 + 400));
    assert_eq!(spiked.totals[2].transfer_wait, Nanos(400));
    let slow_links = vec![(Rank(1), 20.0)];
    let linked = summary(&plan, &Conditions { slow_links, ..plain });
    assert_eq!(linked.end, Nanos(200 + 200 + 100));
}

/// What computing does not hide of a spike shows at the end: in zigzag every rank is busy and the
/// ring closed, so that all of it does but the half block computed meanwhile; a contiguous ring's last
/// rank computes a whole block meanwhile.
#[test]
fn a_spike_adds_what_computing_does_not_hide() {
    let (n, p) = (16_u64, 8);
    let conditions = Conditions::of(machine(1.0, 1.0, 0.0));
    let added = |kind, spike: u64| {
        let plan = plan(kind, n * u64::from(p), p, Mask::Causal);
        let response = spike_response(&plan, &conditions, &[spike as f64 * 1e-9]).unwrap();
        (response[0].added * 1e9).round() as u64
    };
    // The hop itself takes n of the time in which it is hidden.
    let hidden = [n * n - n, n * (n + 1) / 2 - n, n * n / 2 - n];
    for (kind, hidden) in KINDS.into_iter().zip(hidden) {
        assert_eq!(added(kind, 0), 0);
        assert!(added(kind, hidden / 2) <= n, "{kind}");
        assert_eq!(added(kind, hidden + 1000), 1000, "{kind}");
    }
    let alone = plan(LayoutKind::Zigzag, 8, 1, Mask::Causal);
    assert_eq!(spike_response(&alone, &conditions, &[1.0]).unwrap(), []);
}

#[test]
fn noise_follows_the_seed() {
    let plan = plan(LayoutKind::Zigzag, 64, 4, Mask::Causal);
    let with = |seed| {
        let conditions =
            Conditions { jitter: 1e-6, seed, ..Conditions::of(machine(1.0, 1.0, 0.0)) };
        simulate(&plan, &conditions).unwrap()
    };
    assert_eq!(with(7), with(7));
    assert_ne!(with(7), with(8));
}

/// Ranks that need not wait for all others after every step are never slower than those that do.
#[test]
fn nothing_takes_longer_than_in_lockstep() {
    let window = Mask::Window(Window { left: 9, right: 0 });
    let ahead = Mask::Window(Window { left: 4, right: 5 });
    for p in 1..=16 {
        for len in [0, 1, 40, 97, 160] {
            for kind in KINDS {
                for mask in [Mask::Full, Mask::Causal, window.clone(), ahead.clone()] {
                    for (pair, token, latency) in
                        [(1.0, 1.0, 1.0), (1.0, 8.0, 0.0), (2.0, 5.0, 90.0)]
                    {
                        let plan = plan(kind, len, p, mask.clone());
                        let machine = machine(pair, token, latency);
                        let lockstep = Timing::new(&price(&plan).unwrap(), &machine).total;
                        let summary = summary(&plan, &Conditions::of(machine));
                        // Every span is rounded to a nanosecond.
                        let slack = 2.0 * f64::from(p);
                        let end = summary.end.0 as f64;
                        assert!(end <= lockstep * 1e9 + slack, "{end} {lockstep}\n{plan}");
                        let busiest = summary.totals.iter().map(|total| total.attend.0).max();
                        assert!(summary.end.0 >= busiest.unwrap());
                    }
                }
            }
        }
    }
}

#[test]
fn a_thousand_ranks_are_simulated_and_more_are_refused() {
    let conditions = Conditions::of(machine(1.0, 1.0, 10.0));
    let thousand = plan(LayoutKind::Zigzag, 1 << 20, 1024, Mask::Causal);
    let (mut end, mut pairs) = (Nanos(0), 0);
    simulate_into(&thousand, &conditions, &mut |span| {
        end = end.max(span.end);
        if let Activity::Attend { pairs: here, .. } = span.activity {
            pairs += u128::from(here);
        }
    })
    .unwrap();
    assert_eq!(pairs, (1 << 19) * ((1 << 20) + 1));
    assert!(end > Nanos(0));
    let more = plan(LayoutKind::Zigzag, 1 << 20, 1025, Mask::Causal);
    let error = simulate(&more, &conditions).unwrap_err();
    assert_eq!(error, SimulationError::TooLarge { ranks: 1025, layers: 1 });
}

#[test]
fn conditions_that_cannot_be_are_refused() {
    let plan = plan(LayoutKind::Striped, 8, 2, Mask::Full);
    let plain = || Conditions::of(machine(1.0, 1.0, 0.0));
    let refused = |conditions| simulate(&plan, &conditions).unwrap_err();
    let outside = SimulationError::Rank { rank: Rank(2), world_size: 2 };
    assert_eq!(refused(Conditions { slow_ranks: vec![(Rank(2), 2.0)], ..plain() }), outside);
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let slow_ranks = vec![(Rank(0), factor)];
        let error = refused(Conditions { slow_ranks, ..plain() });
        assert!(matches!(error, SimulationError::Number { .. }), "{error}");
    }
    let error = refused(Conditions { jitter: -1.0, ..plain() });
    assert!(matches!(error, SimulationError::Number { what: "the jitter", .. }), "{error}");
    let mut still = plain();
    still.machine.flops = 0.0;
    assert!(matches!(refused(still), SimulationError::Machine(_)));
}
