//! What this process has heard of the others, and what follows from it for the run that it is in.
//! Knows no MPI and reads no clock.
//!
//! A rank that is silent counts as waiting for nobody, whatever it said last: the chain of waits
//! ends at it (see [`crate::deadline`]), so a process that was killed, stopped or cut off while it
//! waited is blamed itself.

use super::wire::{Notice, Stage};
use crate::CommError;
use crate::deadline::Standing;
use crate::world::{Cause, World};
use ringattn_core::Rank;
use std::time::{Duration, Instant};

/// How long after a rank's farewell whoever waits for it gives up: messages that the rank sent
/// before may still be on the way to be matched.
const FAREWELL: Duration = Duration::from_millis(5);

struct Peer {
    notice: Notice,
    heard: Instant,
    departed: Option<Instant>,
}

/// All ranks but this one, as they were when they were last heard.
pub(super) struct Peers {
    own: Rank,
    peers: Vec<Peer>,
    silence: Duration,
}

impl Peers {
    /// Nothing heard yet. A rank that is not heard for `silence` is silent.
    pub(super) fn new(own: Rank, size: u32, silence: Duration, now: Instant) -> Self {
        let peer = || Peer {
            notice: Notice {
                run: 0,
                standing: Standing { count: 0, waiting_for: None },
                stage: Stage::Working,
                cause: None,
            },
            heard: now,
            departed: None,
        };
        Self { own, peers: (0..size).map(|_| peer()).collect(), silence }
    }

    fn others(&self) -> impl Iterator<Item = (Rank, &Peer)> {
        let own = self.own;
        (0..).map(Rank).zip(&self.peers).filter(move |(rank, _)| *rank != own)
    }

    /// A notice has come.
    pub(super) fn hear(&mut self, from: Rank, notice: Notice, now: Instant) {
        if let Some(peer) = self.peers.get_mut(from.index()) {
            peer.notice = notice;
            peer.heard = now;
        }
    }

    /// A new run begins.
    pub(super) fn begin_run(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.departed = None);
    }

    /// Writes into `world` what is known of the peers in run `number`. At the end of a look at all
    /// that has come, so that a farewell is believed only after what was sent before it.
    pub(super) fn apply(&mut self, number: u64, world: &World, now: Instant) {
        let (own, silence) = (self.own, self.silence);
        for (rank, peer) in (0..).map(Rank).zip(&mut self.peers).filter(|(rank, _)| *rank != own) {
            let Notice { standing, cause, .. } = &peer.notice;
            let is_silent = now.saturating_duration_since(peer.heard) > silence;
            let waiting_for = standing.waiting_for.filter(|_| !is_silent);
            world.hear(rank, Standing { waiting_for, ..*standing });
            if peer.notice.run == number
                && let Some(cause) = cause
            {
                world.abort(cause.clone());
            }
            if let Stage::Ending(code) = peer.notice.stage
                && peer.notice.run <= number
            {
                let reason = format!("it ended with exit code {code}");
                world.abort(Cause::Called { culprit: rank, reason });
            }
            if has_left(&peer.notice, number) {
                let since = *peer.departed.get_or_insert(now);
                if now.saturating_duration_since(since) >= FAREWELL && !world.has_left(rank) {
                    world.leave(rank);
                }
            }
        }
    }

    /// The first rank that has not returned a result in run `number`.
    pub(super) fn first_working(&self, number: u64) -> Option<Rank> {
        self.others().find(|(_, peer)| !has_left(&peer.notice, number)).map(|(rank, _)| rank)
    }

    /// What the peers say ended run `number`.
    pub(super) fn causes(&self, number: u64) -> impl Iterator<Item = &Cause> {
        let of_run = move |peer: &Peer| peer.notice.run == number;
        self.others()
            .filter(move |(_, peer)| of_run(peer))
            .filter_map(|(_, peer)| peer.notice.cause.as_ref())
    }

    /// The ranks that have not said why run `number` ended.
    pub(super) fn without_cause(&self, number: u64) -> Vec<Rank> {
        let says = |notice: &Notice| notice.run >= number && notice.cause.is_some();
        self.others().filter(|(_, peer)| !says(&peer.notice)).map(|(rank, _)| rank).collect()
    }

    /// Whether `rank`'s process is there to speak about how run `number` failed: its main thread
    /// has returned.
    pub(super) fn can_speak(&self, rank: Rank, number: u64, now: Instant) -> bool {
        rank == self.own
            || self.peers.get(rank.index()).is_some_and(|peer| {
                let has_settled = peer.notice.run >= number && peer.notice.stage == Stage::Settled;
                let ends = matches!(peer.notice.stage, Stage::Ending(_));
                (has_settled || ends) && !self.is_silent(peer, now)
            })
    }

    /// A peer that has begun to end the job: it has spoken. And the exit code.
    pub(super) fn ending(&self) -> Option<(Rank, u8)> {
        self.others().find_map(|(rank, peer)| match peer.notice.stage {
            Stage::Ending(code) => Some((rank, code)),
            _ => None,
        })
    }

    /// Whether every peer that is heard, apart from `lost` ones, has returned from its failed run.
    pub(super) fn have_all_settled(&self, number: u64, lost: &[Rank], now: Instant) -> bool {
        self.others().all(|(rank, peer)| {
            self.can_speak(rank, number, now) || self.is_silent(peer, now) || lost.contains(&rank)
        })
    }

    /// Whether every peer wants to end MPI.
    pub(super) fn have_all_finished(&self) -> bool {
        self.others().all(|(_, peer)| peer.notice.stage == Stage::Finished)
    }

    /// A peer that ends the job, or has been silent for `timeout`, while this rank has finished.
    pub(super) fn failed(&self, timeout: Duration, now: Instant) -> Option<CommError> {
        let waiting = self.own;
        self.others().find_map(|(culprit, peer)| match peer.notice.stage {
            Stage::Ending(code) => {
                let reason = format!("it ended with exit code {code}");
                Some(CommError::Aborted { culprit, reason })
            }
            Stage::Finished => None,
            _ if now.saturating_duration_since(peer.heard) > timeout.max(self.silence) => {
                Some(CommError::TimedOut { waiting, culprit, timeout })
            }
            _ => None,
        })
    }

    fn is_silent(&self, peer: &Peer, now: Instant) -> bool {
        now.saturating_duration_since(peer.heard) > self.silence
    }
}

/// Whether the author of `notice` has returned a result in run `number`. Only ranks that saw every
/// rank do so go on to another run or to the end.
fn has_left(notice: &Notice, number: u64) -> bool {
    notice.run > number
        || (notice.run == number && notice.stage == Stage::Left)
        || notice.stage == Stage::Finished
}
