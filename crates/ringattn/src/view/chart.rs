//! A timeline as bars on the tracks of the ranks, with the sums that stand beside it.

use super::quantity::nanoseconds;
use ringattn_core::Rank;
use ringattn_plan::{Activity, Operand, RankTotals, Span, Summary, Timeline, Track, WaitCause};
use serde::Serialize;

/// One timeline, drawn from 0 to `end`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Chart {
    /// Where the numbers come from: `predicted` or `measured`.
    pub(crate) kind: &'static str,
    /// What it shows.
    pub(crate) title: String,
    /// The whole length, in nanoseconds.
    pub(crate) end: u64,
    /// The same as text.
    pub(crate) end_text: String,
    /// Round moments to mark on the axis.
    pub(crate) ticks: Vec<Tick>,
    /// A lane per rank.
    pub(crate) lanes: Vec<Lane>,
    /// Who works and who waits, in a sentence.
    pub(crate) words: String,
}

/// A mark on the axis.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tick {
    /// Nanoseconds.
    pub(crate) at: u64,
    /// As text.
    pub(crate) text: String,
}

/// The bars of one rank.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lane {
    /// In order of track and time.
    pub(crate) bars: Vec<Bar>,
    /// Sums over the bars, as text: compute, transfer, transfer wait, peer wait.
    pub(crate) totals: Totals,
}

/// Time of one rank by activity.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Totals {
    /// Attending and merging.
    pub(crate) compute: Shown,
    /// Messages under way to the rank.
    pub(crate) transfer: Shown,
    /// Waiting for messages under way.
    pub(crate) transfer_wait: Shown,
    /// Waiting for peers that had not sent.
    pub(crate) peer_wait: Shown,
}

/// Nanoseconds with their text.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shown {
    /// Nanoseconds.
    pub(crate) ns: u64,
    /// Three digits and a unit.
    pub(crate) text: String,
}

/// One span.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    /// `compute`, `transfer` or `wait`.
    pub(crate) track: &'static str,
    /// `attend`, `merge`, `receive`, `transfer-wait` or `peer-wait`.
    pub(crate) kind: &'static str,
    /// The step.
    pub(crate) step: u32,
    /// Start in nanoseconds.
    pub(crate) start: u64,
    /// End in nanoseconds.
    pub(crate) end: u64,
    /// The block, where there is one.
    pub(crate) block: Option<u32>,
    /// What it is, with its length.
    pub(crate) words: String,
}

impl Chart {
    /// The spans of one layer.
    pub(crate) fn new(kind: &'static str, title: String, timeline: &Timeline) -> Self {
        let Summary { end, totals, .. } = timeline.summary();
        let end = end.0;
        let lanes: Vec<_> = (0..timeline.world_size)
            .zip(&totals)
            .map(|(rank, totals)| lane(timeline, Rank(rank), totals))
            .collect();
        let words = words(kind, end, &totals);
        Self { kind, title, end, end_text: nanoseconds(end), ticks: ticks(end), lanes, words }
    }
}

impl Shown {
    pub(crate) fn new(ns: u64) -> Self {
        Self { ns, text: nanoseconds(ns) }
    }
}

fn lane(timeline: &Timeline, rank: Rank, totals: &RankTotals) -> Lane {
    // A send is the receiver's transfer seen from the other side; drawing both would say it twice.
    let tracks = [Track::Compute, Track::Receive, Track::ReceiveState, Track::Wait];
    let bars = tracks.into_iter().flat_map(|track| timeline.track(rank, track));
    let compute = totals.attend.0.saturating_add(totals.merge.0);
    Lane {
        bars: bars.map(|span| bar(&span)).collect(),
        totals: Totals {
            compute: Shown::new(compute),
            transfer: Shown::new(totals.receive.0),
            transfer_wait: Shown::new(totals.transfer_wait.0),
            peer_wait: Shown::new(totals.peer_wait.0),
        },
    }
}

fn bar(span: &Span) -> Bar {
    let (kind, block, what) = match span.activity {
        Activity::Attend { block, .. } => {
            ("attend", Some(block.0.0), format!("attends block {block}"))
        }
        Activity::Merge { peer } => ("merge", None, format!("merges the state of rank {peer}")),
        Activity::Send(message) | Activity::Receive(message) => {
            let block = message.operand.and_then(Operand::block).map(|block| block.0.0);
            let what = message.operand.map_or("a state".to_owned(), |operand| operand.to_string());
            ("receive", block, format!("{what} from rank {}", message.peer))
        }
        Activity::Wait { cause: WaitCause::Transfer, peer } => {
            ("transfer-wait", None, format!("waits for a transfer from rank {peer}"))
        }
        Activity::Wait { cause: WaitCause::Peer, peer } => {
            ("peer-wait", None, format!("waits for rank {peer}"))
        }
    };
    let track = match span.activity.track() {
        Track::Compute => "compute",
        Track::Send | Track::Receive | Track::SendState | Track::ReceiveState => "transfer",
        Track::Wait => "wait",
    };
    let (step, start, end) = (span.step, span.start.0, span.end.0);
    let words =
        format!("rank {}, step {step}: {what}, {}", span.rank, nanoseconds(span.duration().0));
    Bar { track, kind, step, start, end, block, words }
}

fn words(kind: &str, end: u64, totals: &[RankTotals]) -> String {
    let ranks = totals.len().max(1) as f64;
    let share = |time: fn(&RankTotals) -> u64| {
        let sum: f64 = totals.iter().map(|total| time(total) as f64).sum();
        super::quantity::percent(sum, ranks * end as f64)
    };
    format!(
        "{} {}: of the ranks' time {} is computing, {} waiting for transfers and {} waiting for peers.",
        if kind == "measured" { "Measured" } else { "Predicted" },
        nanoseconds(end),
        share(|total| total.attend.0.saturating_add(total.merge.0)),
        share(|total| total.transfer_wait.0),
        share(|total| total.peer_wait.0),
    )
}

/// At most six round moments.
fn ticks(end: u64) -> Vec<Tick> {
    const MOST: u64 = 5;
    let mut step = 1_u64;
    // 1, 2, 5, 10, 20, ...
    for factor in [2, 5, 10].into_iter().cycle() {
        if end / step <= MOST {
            break;
        }
        let decade = 10_u64.pow(step.ilog10());
        step = decade.saturating_mul(factor);
    }
    (0..=end / step).map(|tick| tick * step).map(|at| Tick { at, text: nanoseconds(at) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        let at = |end| ticks(end).iter().map(|tick| tick.at).collect::<Vec<_>>();
        assert_eq!(at(0), [0]);
        assert_eq!(at(7), [0, 2, 4, 6]);
        assert_eq!(at(104_857), [0, 20_000, 40_000, 60_000, 80_000, 100_000]);
        assert!(ticks(u64::MAX).len() <= 6);
    }
}
