//! What this process has heard of the others, and what follows from it for the run that it is in.
//! Knows no MPI and reads no clock.
//!
//! A rank that is silent counts as waiting for nobody, whatever it said last: the chain of waits
//! ends at it (see [`crate::deadline`]), so a process that was killed, stopped or cut off while it
//! waited is blamed itself. Silence is counted in listened time (see [`super::clock`]): whoever stood
//! still itself calls nobody silent for it.

use super::clock::Clock;
use super::verdict::Presence;
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
    /// When it was heard last, in listened time.
    heard: Duration,
    /// The longest time that this process stood still at once since it heard the peer. What it heard
    /// right afterwards was said before, and is no sign that the peer is still there.
    missed: Duration,
    departed: Option<Duration>,
}

/// All ranks but this one, as they were when they were last heard.
pub(super) struct Peers {
    own: Rank,
    peers: Vec<Peer>,
    silence: Duration,
    clock: Clock,
}

impl Peers {
    /// Nothing heard yet. A rank that is not heard for `silence` is silent.
    pub(super) fn new(own: Rank, size: u32, silence: Duration, now: Instant) -> Self {
        let clock = Clock::new(now);
        let peer = || Peer {
            notice: Notice {
                run: 0,
                standing: Standing { count: 0, waiting_for: None },
                stage: Stage::Working,
                cause: None,
            },
            heard: clock.listened(),
            missed: Duration::ZERO,
            departed: None,
        };
        Self { own, peers: (0..size).map(|_| peer()).collect(), silence, clock }
    }

    fn others(&self) -> impl Iterator<Item = (Rank, &Peer)> {
        let own = self.own;
        (0..).map(Rank).zip(&self.peers).filter(move |(rank, _)| *rank != own)
    }

    /// The time in which this process listened.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The link thread begins a look at what has come.
    pub(super) fn begin_look(&mut self, now: Instant) {
        self.clock.begin_look(now);
        self.note_gap();
    }

    /// Time goes on, also without a look.
    pub(super) fn go_on(&mut self, now: Instant) {
        self.clock.go_on(now);
        self.note_gap();
    }

    fn note_gap(&mut self) {
        let gap = self.clock.gap();
        self.peers.iter_mut().for_each(|peer| peer.missed = peer.missed.max(gap));
    }

    /// A notice has come.
    pub(super) fn hear(&mut self, from: Rank, notice: Notice, now: Instant) {
        self.go_on(now);
        if let Some(peer) = self.peers.get_mut(from.index()) {
            peer.notice = notice;
            peer.heard = self.clock.listened();
            peer.missed = self.clock.gap();
        }
    }

    /// A new run begins.
    pub(super) fn begin_run(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.departed = None);
    }

    /// Writes into `world` what is known of the peers in run `number`. At the end of a look at all
    /// that has come, so that a farewell is believed only after what was sent before it.
    pub(super) fn apply(&mut self, number: u64, world: &World) {
        let Self { own, silence, clock, peers } = self;
        for (rank, peer) in (0..).map(Rank).zip(peers).filter(|(rank, _)| rank != own) {
            let Notice { standing, cause, .. } = &peer.notice;
            let is_silent = clock.listened() - peer.heard > *silence;
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
                let since = *peer.departed.get_or_insert(clock.listened());
                if clock.listened() - since >= FAREWELL && !world.has_left(rank) {
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
        let says = |peer: &Peer| says_cause(&peer.notice, number);
        self.others().filter(|(_, peer)| !says(peer)).map(|(rank, _)| rank).collect()
    }

    /// What the others can say of how run `number` failed.
    pub(super) fn presences(&self, number: u64) -> Vec<(Rank, Presence)> {
        let presence = |peer: &Peer| match &peer.notice {
            Notice { stage: Stage::Speaking | Stage::Ending(_), .. } => Presence::Speaking,
            _ if peer.missed > self.silence => Presence::Missed,
            _ if self.has_settled(peer, number) => Presence::Able,
            notice if says_cause(notice, number) => Presence::Busy,
            _ => Presence::Mute,
        };
        self.others().map(|(rank, peer)| (rank, presence(peer))).collect()
    }

    /// Whether `peer`'s process is there to speak about how run `number` failed: its main thread
    /// has returned.
    fn has_settled(&self, peer: &Peer, number: u64) -> bool {
        let has_settled = match peer.notice.stage {
            Stage::Settled | Stage::Yielded(_) | Stage::Speaking => peer.notice.run >= number,
            Stage::Ending(_) => true,
            Stage::Working | Stage::Left | Stage::Finished => false,
        };
        has_settled && !self.is_silent(peer)
    }

    /// A peer that reports how run `number` failed, or has reported.
    pub(super) fn speaking(&self, number: u64) -> Option<Rank> {
        self.others().find_map(|(rank, peer)| match peer.notice.stage {
            Stage::Speaking if peer.notice.run >= number => Some(rank),
            Stage::Ending(_) => Some(rank),
            _ => None,
        })
    }

    /// The lowest peer that offers to report how run `number` failed, and is heard.
    pub(super) fn offering(&self, number: u64) -> Option<Rank> {
        let offers = |rank, peer: &Peer| {
            peer.notice.stage == Stage::Yielded(rank) && self.has_settled(peer, number)
        };
        self.others().find(|(rank, peer)| offers(*rank, peer)).map(|(rank, _)| rank)
    }

    /// Whether every peer that is heard and has returned from its failed run leaves the report to this rank.
    pub(super) fn have_all_yielded(&self, number: u64) -> bool {
        self.others().all(|(_, peer)| {
            peer.notice.stage == Stage::Yielded(self.own) || !self.has_settled(peer, number)
        })
    }

    /// A peer that has begun to end the job, and the exit code.
    pub(super) fn ending(&self) -> Option<(Rank, u8)> {
        self.others().find_map(|(rank, peer)| match peer.notice.stage {
            Stage::Ending(code) => Some((rank, code)),
            _ => None,
        })
    }

    /// Whether every peer that is heard, apart from `lost` ones, has returned from its failed run.
    pub(super) fn have_all_settled(&self, number: u64, lost: &[Rank]) -> bool {
        self.others().all(|(rank, peer)| {
            self.has_settled(peer, number) || self.is_silent(peer) || lost.contains(&rank)
        })
    }

    /// Whether a peer has not been heard since this process stood still until others held it for gone.
    pub(super) fn has_missed_any(&self) -> bool {
        self.others().any(|(_, peer)| peer.missed > self.silence)
    }

    /// Whether every peer wants to end MPI.
    pub(super) fn have_all_finished(&self) -> bool {
        self.others().all(|(_, peer)| peer.notice.stage == Stage::Finished)
    }

    /// Why the job cannot end well, while this rank has finished after run `number`: a peer ends it
    /// or has failed, or has been silent for `timeout`.
    pub(super) fn failed(&self, number: u64, timeout: Duration) -> Option<Cause> {
        let waiting = self.own;
        self.others().find_map(|(culprit, peer)| match peer.notice.stage {
            Stage::Ending(code) => {
                let reason = format!("it ended with exit code {code}");
                Some(Cause::Called { culprit, reason })
            }
            Stage::Finished => None,
            _ if says_cause(&peer.notice, number) => peer.notice.cause.clone(),
            _ if self.clock.listened() - peer.heard > timeout.max(self.silence) => {
                Some(Cause::World(CommError::TimedOut { waiting, culprit, timeout }))
            }
            _ => None,
        })
    }

    fn is_silent(&self, peer: &Peer) -> bool {
        self.clock.listened() - peer.heard > self.silence
    }
}

/// Whether `notice` says why run `number`, or a later one, ended.
fn says_cause(notice: &Notice, number: u64) -> bool {
    notice.run >= number && notice.cause.is_some()
}

/// Whether the author of `notice` has returned a result in run `number`. Only ranks that saw every
/// rank do so go on to another run or to the end.
fn has_left(notice: &Notice, number: u64) -> bool {
    notice.run > number
        || (notice.run == number && notice.stage == Stage::Left)
        || notice.stage == Stage::Finished
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SILENCE: Duration = Duration::from_millis(1000);

    fn stopped() -> Cause {
        Cause::World(CommError::Stopped { reason: "SIGTERM".to_owned() })
    }

    fn notice(stage: Stage, cause: Option<Cause>) -> Notice {
        let standing = Standing { count: 0, waiting_for: None };
        Notice { run: 1, standing, stage, cause }
    }

    /// Rank 0 of two, and what happens to it: looks so many milliseconds apart, in the last of which
    /// rank 1 is heard or not.
    fn after(events: &[(&[u32], Option<Notice>)]) -> Peers {
        let mut now = Instant::now();
        let mut peers = Peers::new(Rank(0), 2, SILENCE, now);
        for (gaps, notice) in events {
            for gap in *gaps {
                now += *gap * MS;
                peers.begin_look(now);
            }
            if let Some(notice) = notice {
                peers.hear(Rank(1), notice.clone(), now);
            }
        }
        peers
    }

    #[test]
    fn only_what_is_said_after_standing_still_is_a_sign_of_life() {
        let works = || Some(notice(Stage::Working, None));
        let settled = || Some(notice(Stage::Settled, Some(stopped())));
        let ending = || Some(notice(Stage::Ending(5), Some(stopped())));
        let yielded = || Some(notice(Stage::Yielded(Rank(1)), Some(stopped())));
        let speaking = || Some(notice(Stage::Speaking, Some(stopped())));
        let hidden = || Some(notice(Stage::Working, Some(stopped())));
        let silence: &[u32] = &[90; 12];
        let cases = [
            (vec![(&[1][..], works())], Presence::Mute),
            (vec![(&[1], hidden())], Presence::Busy),
            (vec![(&[1], settled())], Presence::Able),
            (vec![(&[900], settled())], Presence::Able),
            (vec![(&[1], settled()), (silence, None)], Presence::Busy),
            // A process that stood still does not call others silent.
            (vec![(&[1], settled()), (&[900, 1], None)], Presence::Able),
            (vec![(&[1], settled()), (&[5000, 1, 1], None)], Presence::Missed),
            // What was told to it in the meantime says nothing of now, except of the end.
            (vec![(&[1], works()), (&[5000], settled())], Presence::Missed),
            (vec![(&[1], works()), (&[5000], settled()), (&[1, 1], None)], Presence::Missed),
            (vec![(&[1], works()), (&[5000], ending())], Presence::Speaking),
            (vec![(&[1], works()), (&[5000], speaking())], Presence::Speaking),
            (vec![(&[1], yielded())], Presence::Able),
            (vec![(&[1], works()), (&[5000], works()), (&[250], settled())], Presence::Able),
            (vec![(&[5000], None), (&[1], settled())], Presence::Able),
        ];
        for (events, expected) in cases {
            let peers = after(&events);
            assert_eq!(peers.presences(1), [(Rank(1), expected)], "{events:?}");
            let has_missed =
                matches!(expected, Presence::Missed) || (expected == Presence::Speaking);
            assert_eq!(peers.has_missed_any(), has_missed, "{events:?}");
        }
    }

    #[test]
    fn a_pause_of_the_whole_job_fails_nobody_who_has_finished() {
        let works = || Some(notice(Stage::Left, None));
        let timeout = 2 * SILENCE;
        let timed_out = CommError::TimedOut { waiting: Rank(0), culprit: Rank(1), timeout };
        let cases = [
            (vec![(&[1][..], works()), (&[60_000, 1], None)], None),
            (vec![(&[1], works()), (&[90; 23], None)], Some(Cause::World(timed_out))),
            (vec![(&[1], Some(notice(Stage::Finished, None))), (&[90; 23], None)], None),
            (vec![(&[1], Some(notice(Stage::Settled, Some(stopped()))))], Some(stopped())),
        ];
        for (events, expected) in cases {
            assert_eq!(after(&events).failed(1, timeout), expected, "{events:?}");
        }
    }
}
