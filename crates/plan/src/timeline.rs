//! What every rank did when: the one value in which predicted and measured runs are kept.
//!
//! A timeline is a list of spans on the tracks of the ranks. Times are nanoseconds since the start of
//! the run, on one clock that all ranks share; who records a run aligns the clocks first. Spans on one
//! track never overlap ([`Timeline::check`]). Knows no clock, no file format and not whether it was
//! predicted or measured.

use crate::step::{BlockId, Operand, QueriesId};
use ringattn_core::Rank;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use thiserror::Error;

/// Nanoseconds: a moment since the start of the run, or the length of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// Everything that the ranks of one run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Ranks `p`.
    pub world_size: u32,
    /// In any order; [`Timeline::track`] sorts them.
    pub spans: Vec<Span>,
}

/// One activity of one rank, `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Whose.
    pub rank: Rank,
    /// The attention of the run that it belongs to, from 0.
    pub layer: u32,
    /// The step of the plan, from 0.
    pub step: u32,
    /// What.
    pub activity: Activity,
    /// When it began.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
}

/// What a rank does during a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activity {
    /// Queries attend a block.
    Attend {
        /// Whose queries.
        queries: QueriesId,
        /// The block.
        block: BlockId,
        /// (query, key) pairs, per query head.
        pairs: u64,
        /// `4 * pairs * d` for every query head.
        flops: u64,
    },
    /// A partial state of the peer is merged into the rank's own.
    Merge {
        /// Whose state.
        peer: Rank,
    },
    /// From the posting of a send until the receiver has matched it.
    Send(Transmission),
    /// A message under way to this rank: from the moment when both sides had posted until it was
    /// there.
    Receive(Transmission),
    /// The rank does nothing until the peer or the link has done its part.
    Wait {
        /// What it waits for.
        cause: WaitCause,
        /// The other rank.
        peer: Rank,
    },
}

/// What travels between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transmission {
    /// The block or the queries; `None` for a partial state `(m, z, y)`.
    pub operand: Option<Operand>,
    /// The other rank: the receiver of a send, the sender of a receive.
    pub peer: Rank,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Why a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitCause {
    /// A message that both sides have posted is still under way.
    Transfer,
    /// The peer has not posted its side yet.
    Peer,
}

/// Activities of one rank that exclude each other in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// Attend and merge.
    Compute,
    /// Sends of blocks and queries.
    Send,
    /// Receives of blocks and queries.
    Receive,
    /// Sends of states, which may run beside the others.
    SendState,
    /// Receives of states.
    ReceiveState,
    /// Waits.
    Wait,
}

impl Track {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Compute, Self::Send, Self::Receive, Self::SendState, Self::ReceiveState, Self::Wait];
}

/// Time of one rank by activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTotals {
    /// Attending blocks.
    pub attend: Nanos,
    /// Merging states.
    pub merge: Nanos,
    /// Sends from posting to matching.
    pub send: Nanos,
    /// Messages under way to the rank.
    pub receive: Nanos,
    /// Waiting for messages under way.
    pub transfer_wait: Nanos,
    /// Waiting for peers that had not posted.
    pub peer_wait: Nanos,
}

/// How long one rank waited for another for one reason, all spans together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitEdge {
    /// Who waited.
    pub rank: Rank,
    /// For whom.
    pub peer: Rank,
    /// Why.
    pub cause: WaitCause,
    /// How long.
    pub total: Nanos,
}

/// The sums over the spans of a run, for runs too long to keep every span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// When the last span ends.
    pub end: Nanos,
    /// The time of every rank by activity, entry `u` that of rank `u`.
    pub totals: Vec<RankTotals>,
    waits: BTreeMap<(u32, u32, WaitCause), Nanos>,
}

/// A timeline that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TimelineError {
    /// A rank outside the world.
    #[error("rank {rank} is outside a world of {world_size}")]
    Rank {
        /// As a span names it.
        rank: Rank,
        /// Ranks there are.
        world_size: u32,
    },
    /// A span that ends before it begins.
    #[error("a span of rank {rank} in step {step} begins at {start} and ends at {end}")]
    Backwards {
        /// Whose.
        rank: Rank,
        /// Its step.
        step: u32,
        /// Its begin.
        start: Nanos,
        /// Its end.
        end: Nanos,
    },
    /// Two spans at once on one track.
    #[error(
        "rank {rank}, track {track}: a span of step {step} begins at {start}, one before it ends at \
         {before}"
    )]
    Overlap {
        /// Whose.
        rank: Rank,
        /// Which track.
        track: Track,
        /// The step of the later span.
        step: u32,
        /// Where the later one begins.
        start: Nanos,
        /// Where the earlier one ends.
        before: Nanos,
    },
}

impl Nanos {
    /// The time from `earlier` to here; 0 when that lies later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The nearest whole nanosecond; 2^64 - 1 for what is beyond it (584 years) or no number.
    pub fn from_seconds(seconds: f64) -> Self {
        if seconds.is_nan() { Self(u64::MAX) } else { Self((seconds * 1e9).round() as u64) }
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Span {
    /// How long it took.
    pub fn duration(&self) -> Nanos {
        self.end.since(self.start)
    }
}

impl Activity {
    /// The track on which it excludes others.
    pub fn track(&self) -> Track {
        match self {
            Self::Attend { .. } | Self::Merge { .. } => Track::Compute,
            Self::Send(Transmission { operand: Some(_), .. }) => Track::Send,
            Self::Send(_) => Track::SendState,
            Self::Receive(Transmission { operand: Some(_), .. }) => Track::Receive,
            Self::Receive(_) => Track::ReceiveState,
            Self::Wait { .. } => Track::Wait,
        }
    }

    /// The other rank that takes part.
    pub fn peer(&self) -> Option<Rank> {
        match self {
            Self::Attend { .. } => None,
            Self::Merge { peer } | Self::Wait { peer, .. } => Some(*peer),
            Self::Send(message) | Self::Receive(message) => Some(message.peer),
        }
    }
}

impl Timeline {
    /// The spans on one track of a rank, in order of time.
    pub fn track(&self, rank: Rank, track: Track) -> Vec<Span> {
        let on_track = |span: &&Span| span.rank == rank && span.activity.track() == track;
        let mut spans: Vec<_> = self.spans.iter().filter(on_track).copied().collect();
        spans.sort_by_key(|span| (span.start, span.end));
        spans
    }

    /// The sums over all spans.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::new(self.world_size);
        self.spans.iter().for_each(|span| summary.add(span));
        summary
    }

    /// Proves that all spans belong to ranks of the world, go forward in time, and do not overlap on
    /// any track.
    ///
    /// # Errors
    /// The first span that does not fit.
    pub fn check(&self) -> Result<(), TimelineError> {
        let mut spans: Vec<_> = self.spans.iter().collect();
        spans.sort_by_key(|span| (span.rank.0, span.activity.track(), span.start, span.end));
        for span in &spans {
            self.check_span(span)?;
        }
        for pair in spans.windows(2) {
            let (earlier, later) = (pair[0], pair[1]);
            let (rank, track) = (later.rank, later.activity.track());
            let together = earlier.rank == rank && earlier.activity.track() == track;
            if together && later.start < earlier.end {
                let (step, start, before) = (later.step, later.start, earlier.end);
                return Err(TimelineError::Overlap { rank, track, step, start, before });
            }
        }
        Ok(())
    }

    fn check_span(&self, span: &Span) -> Result<(), TimelineError> {
        let world_size = self.world_size;
        for rank in [Some(span.rank), span.activity.peer()].into_iter().flatten() {
            if rank.0 >= world_size {
                return Err(TimelineError::Rank { rank, world_size });
            }
        }
        let Span { rank, step, start, end, .. } = *span;
        if end < start {
            return Err(TimelineError::Backwards { rank, step, start, end });
        }
        Ok(())
    }
}

impl Summary {
    /// Of no spans.
    pub fn new(world_size: u32) -> Self {
        let totals = vec![RankTotals::default(); world_size as usize];
        Self { totals, ..Self::default() }
    }

    /// Adds a span. One of a rank outside the world, which [`Timeline::check`] refuses, is left out.
    pub fn add(&mut self, span: &Span) {
        let Some(total) = self.totals.get_mut(span.rank.index()) else { return };
        *total.of(&span.activity) += span.duration();
        self.end = self.end.max(span.end);
        if let Activity::Wait { cause, peer } = span.activity {
            *self.waits.entry((span.rank.0, peer.0, cause)).or_default() += span.duration();
        }
    }

    /// Who waited for whom, the longest first.
    pub fn waits(&self) -> Vec<WaitEdge> {
        let edge = |(&(rank, peer, cause), &total): (&(u32, u32, WaitCause), &Nanos)| WaitEdge {
            rank: Rank(rank),
            peer: Rank(peer),
            cause,
            total,
        };
        let mut edges: Vec<_> = self.waits.iter().map(edge).collect();
        edges.sort_by_key(|edge| std::cmp::Reverse(edge.total));
        edges
    }
}

impl RankTotals {
    fn of(&mut self, activity: &Activity) -> &mut Nanos {
        match activity {
            Activity::Attend { .. } => &mut self.attend,
            Activity::Merge { .. } => &mut self.merge,
            Activity::Send(_) => &mut self.send,
            Activity::Receive(_) => &mut self.receive,
            Activity::Wait { cause: WaitCause::Transfer, .. } => &mut self.transfer_wait,
            Activity::Wait { cause: WaitCause::Peer, .. } => &mut self.peer_wait,
        }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::SendState => "send states",
            Self::ReceiveState => "receive states",
            Self::Wait => "wait",
        })
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transfer => "transfer",
            Self::Peer => "peer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(rank: u32, activity: Activity, (start, end): (u64, u64)) -> Span {
        let (start, end) = (Nanos(start), Nanos(end));
        Span { rank: Rank(rank), layer: 0, step: 0, activity, start, end }
    }

    const ATTEND: Activity = Activity::Attend {
        queries: QueriesId(Rank(0)),
        block: BlockId(Rank(0)),
        pairs: 1,
        flops: 8,
    };

    fn wait(peer: u32) -> Activity {
        Activity::Wait { cause: WaitCause::Peer, peer: Rank(peer) }
    }

    #[test]
    fn only_spans_of_one_track_exclude_each_other() {
        let check = |spans: &[Span]| Timeline { world_size: 2, spans: spans.to_vec() }.check();
        let attend = |times| span(0, ATTEND, times);
        assert_eq!(check(&[attend((5, 9)), attend((0, 5))]), Ok(()));
        assert_eq!(check(&[attend((0, 5)), span(1, ATTEND, (0, 5))]), Ok(()));
        assert_eq!(check(&[attend((0, 5)), span(0, wait(1), (3, 6))]), Ok(()));
        let overlap = check(&[attend((4, 9)), attend((0, 5))]);
        assert!(matches!(overlap, Err(TimelineError::Overlap { before: Nanos(5), .. })));
        let merge = Activity::Merge { peer: Rank(1) };
        assert!(check(&[attend((0, 5)), span(0, merge, (4, 6))]).is_err());
        let message = |operand| Transmission { operand, peer: Rank(1), bytes: 1 };
        let (queries, state) = (message(Some(Operand::Queries(QueriesId(Rank(1))))), message(None));
        let both =
            [span(0, Activity::Send(queries), (0, 5)), span(0, Activity::Send(state), (4, 6))];
        assert_eq!(check(&both), Ok(()));
        assert!(matches!(check(&[attend((5, 4))]), Err(TimelineError::Backwards { .. })));
        let outside = TimelineError::Rank { rank: Rank(2), world_size: 2 };
        assert_eq!(check(&[span(2, ATTEND, (0, 1))]), Err(outside));
        assert_eq!(check(&[span(0, wait(2), (0, 1))]), Err(outside));
    }

    #[test]
    fn waits_add_up_by_rank_and_by_edge() {
        let spans = vec![
            span(0, wait(1), (0, 3)),
            span(0, wait(1), (5, 6)),
            span(1, wait(0), (0, 9)),
            span(1, ATTEND, (9, 11)),
        ];
        let timeline = Timeline { world_size: 2, spans };
        let Summary { totals, end, .. } = timeline.summary();
        assert_eq!((totals[0].peer_wait, totals[1].peer_wait), (Nanos(4), Nanos(9)));
        assert_eq!((totals[1].attend, end), (Nanos(2), Nanos(11)));
        let edges: Vec<_> =
            timeline.summary().waits().iter().map(|e| (e.rank.0, e.peer.0, e.total.0)).collect();
        assert_eq!(edges, [(1, 0, 9), (0, 1, 4)]);
    }
}
