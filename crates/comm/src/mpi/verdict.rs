//! Which of several causes ended a run, and which rank says so. Knows no transport and no clock: every
//! rank that knows the same finds the same.
//!
//! One rank reports, by the first of these rules that names one:
//!
//! 1. A rank that says that it reports does, and one that has begun to end the job has.
//! 2. A process that stood still until the others held it for gone (SIGSTOP, a virtual machine that was
//!    put to sleep) leaves the word to the peers that it has not heard since: they have ended the job
//!    without it and said why. The SIGTERM that wakes such a process is only the launcher clearing up after
//!    them. Where the whole job stood still nobody went on without it: every peer is heard again, and this
//!    rule names none.
//! 3. The culprit speaks of what it did.
//! 4. When a stop comes to a rank that hears none of several peers, MPI itself is broken, and all may be
//!    in the same place: rank 0.
//! 5. The lowest rank that is heard and back from the run.
//!
//! By rules 3 and 5 a rank that anybody blames for standing still speaks only if no other can: if it
//! moves again, it comes late to a decision that others may have made without it.

use crate::world::{Cause, Outcome};
use crate::{CommError, RunError};
use ringattn_core::Rank;

/// How much a cause explains; less is more. A rank's own report goes before a stop from outside,
/// which goes before what others notice of a rank.
fn class(cause: &Cause) -> u32 {
    match cause {
        Cause::Called { .. }
        | Cause::Returned { .. }
        | Cause::Panicked { .. }
        | Cause::NotStarted { .. } => 0,
        Cause::World(CommError::Stopped { .. }) => 1,
        Cause::World(CommError::Damaged { .. } | CommError::Memory { .. }) => 2,
        Cause::World(CommError::TimedOut { .. }) => 3,
        Cause::World(CommError::Deadlock { .. }) => 4,
        Cause::World(_) => 5,
    }
}

/// The rank that a cause blames.
pub(super) fn culprit(cause: &Cause) -> Option<Rank> {
    match cause {
        Cause::Called { culprit, .. }
        | Cause::Returned { culprit, .. }
        | Cause::Panicked { culprit, .. }
        | Cause::NotStarted { culprit } => Some(*culprit),
        Cause::World(error) => error.culprit(),
    }
}

/// The weightiest cause; among equal ones the one of the lowest culprit.
pub(super) fn weightiest<'a>(causes: impl IntoIterator<Item = &'a Cause>) -> Option<&'a Cause> {
    causes.into_iter().min_by_key(|cause| (class(cause), culprit(cause), format!("{cause:?}")))
}

/// What a peer can say of how a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It reports, or has reported and begun to end the job.
    Speaking,
    /// It has not been heard since this process stood still until others held it for gone.
    Missed,
    /// It is heard and back from the run.
    Able,
    /// It has told a cause, but is not back from the run, or not heard any more.
    Busy,
    /// It has told no cause.
    Mute,
}

/// The rank that reports a failure with these causes, as `own` sees it; `peers` are all other ranks, in
/// their order.
pub(super) fn speaker(causes: &[Cause], own: Rank, peers: &[(Rank, Presence)]) -> Rank {
    let first = |wanted| peers.iter().find(|(_, found)| *found == wanted).map(|(rank, _)| *rank);
    if let Some(spoken) = first(Presence::Speaking).or_else(|| first(Presence::Missed)) {
        return spoken;
    }
    let able = able(causes, own, peers);
    let (mut own_words, mut in_one_place) = (None, None);
    if let Some(cause) = weightiest(causes) {
        own_words = culprit(cause).filter(|rank| class(cause) == 0 && able.contains(rank));
        let is_stopped = matches!(cause, Cause::World(CommError::Stopped { .. }));
        let hears_nobody = peers.len() > 1 && peers.iter().all(|peer| peer.1 == Presence::Mute);
        in_one_place = (is_stopped && hears_nobody).then_some(Rank(0));
    }
    own_words.or(in_one_place).or(able.first().copied()).unwrap_or(own)
}

/// Who can speak, in rank order: without those that are blamed for standing still, if others can.
fn able(causes: &[Cause], own: Rank, peers: &[(Rank, Presence)]) -> Vec<Rank> {
    let heard = peers.iter().filter(|(_, presence)| *presence == Presence::Able);
    let mut able: Vec<_> = heard.map(|(rank, _)| *rank).chain([own]).collect();
    able.sort();
    let blamed = |cause: &Cause| match cause {
        Cause::World(CommError::TimedOut { culprit, .. }) => Some(*culprit),
        _ => None,
    };
    let blamed: Vec<_> = causes.iter().filter_map(blamed).collect();
    if able.iter().any(|rank| !blamed.contains(rank)) {
        able.retain(|rank| !blamed.contains(rank));
    }
    able
}

/// The error of `own` in a run that `cause` ended. A stop names the ranks that do not answer: a
/// launcher that loses a process stops the others.
pub(super) fn error_of<T, E>(
    cause: Cause,
    outcome: Outcome<T, E>,
    own: Rank,
    unanswered: &[Rank],
) -> RunError<E> {
    match (cause, outcome) {
        (
            Cause::Called { culprit, .. } | Cause::Returned { culprit, .. },
            Outcome::Failed(error),
        ) if culprit == own => RunError::Rank { culprit, error },
        (Cause::Panicked { culprit, message }, _) => RunError::Panicked { culprit, message },
        (Cause::World(CommError::Stopped { reason }), _) if !unanswered.is_empty() => {
            let ranks: Vec<_> = unanswered.iter().map(|rank| format!("rank {rank}")).collect();
            let reason = format!("{reason}; no answer from {}", ranks.join(", "));
            RunError::World(CommError::Stopped { reason })
        }
        (cause, _) => RunError::World(cause.to_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn stopped() -> Cause {
        Cause::World(CommError::Stopped { reason: "SIGTERM".to_owned() })
    }

    fn timed_out(waiting: u32, culprit: u32) -> Cause {
        let (waiting, culprit) = (Rank(waiting), Rank(culprit));
        Cause::World(CommError::TimedOut { waiting, culprit, timeout: Duration::from_secs(1) })
    }

    fn returned(culprit: u32) -> Cause {
        Cause::Returned { culprit: Rank(culprit), reason: "disk full".to_owned() }
    }

    #[test]
    fn the_weightiest_cause_is_found_in_any_order() {
        let rising = [
            returned(2),
            returned(3),
            stopped(),
            timed_out(0, 1),
            timed_out(3, 1),
            timed_out(0, 2),
            Cause::World(CommError::Deadlock { ranks: vec![Rank(0), Rank(1)] }),
        ];
        for (low, expected) in rising.iter().enumerate() {
            for other in &rising[low..] {
                for pair in [[expected, other], [other, expected]] {
                    assert_eq!(weightiest(pair), Some(expected));
                }
            }
        }
        assert_eq!(weightiest(&[]), None);
    }

    #[test]
    fn one_rank_speaks() {
        use Presence::{Able, Busy, Missed, Mute, Speaking};
        /// The weightiest cause and the others, who decides, what its peers are, in rank order, and who
        /// speaks.
        type Case<'a> = (Cause, &'a [Cause], u32, &'a [Presence], u32);
        let cases: [Case<'_>; 27] = [
            // The culprit, of what it did itself.
            (returned(3), &[], 1, &[Able, Able, Able], 3),
            (returned(3), &[], 1, &[Able, Able, Busy], 0),
            (returned(3), &[], 1, &[Mute, Able, Mute], 1),
            (returned(1), &[], 1, &[Able, Able, Able], 1),
            (returned(1), &[], 1, &[Mute, Mute, Mute], 1),
            // The lowest rank that can.
            (stopped(), &[], 2, &[Able, Able, Able], 0),
            (stopped(), &[], 2, &[Mute, Able, Able], 1),
            (stopped(), &[], 2, &[Mute, Mute, Able], 2),
            (stopped(), &[], 0, &[], 0),
            // Not the one that is blamed for standing still, even if it moves again.
            (timed_out(0, 2), &[], 1, &[Able, Able, Busy], 0),
            (timed_out(1, 0), &[], 1, &[Busy, Able, Able], 1),
            (timed_out(1, 0), &[], 2, &[Able, Able, Able], 1),
            (timed_out(1, 0), &[], 0, &[Able, Able, Able], 1),
            (timed_out(1, 0), &[], 0, &[Busy, Busy, Busy], 0),
            (timed_out(1, 0), &[timed_out(2, 1)], 3, &[Able, Able, Able], 2),
            (stopped(), &[timed_out(1, 0)], 0, &[Able, Able, Able], 1),
            (stopped(), &[timed_out(1, 0)], 2, &[Able, Able, Able], 1),
            (returned(0), &[timed_out(1, 0)], 0, &[Able, Able, Able], 1),
            (returned(0), &[timed_out(1, 0)], 0, &[Busy, Mute, Mute], 0),
            // Who says that it reports does.
            (stopped(), &[], 0, &[Speaking, Busy, Busy], 1),
            (returned(0), &[], 0, &[Able, Speaking, Missed], 2),
            // Who stood still leaves the word to those who did not wait, also if others did as well.
            (stopped(), &[], 0, &[Missed, Missed, Missed], 1),
            (stopped(), &[], 0, &[Missed], 1),
            (returned(0), &[], 0, &[Able, Missed, Able], 2),
            // A stop where nobody hears anybody; with a single peer, that one is gone.
            (stopped(), &[], 2, &[Mute, Mute, Mute], 0),
            (stopped(), &[], 0, &[Mute, Mute, Mute], 0),
            (stopped(), &[], 1, &[Mute], 1),
        ];
        for (cause, others, own, presences, expected) in cases {
            let causes: Vec<_> = others.iter().chain([&cause]).cloned().collect();
            let ranks = (0..).map(Rank).filter(|rank| rank.0 != own);
            let peers: Vec<_> = ranks.zip(presences.iter().copied()).collect();
            let found = speaker(&causes, Rank(own), &peers);
            assert_eq!(found, Rank(expected), "{causes:?}, rank {own} with {presences:?}");
        }
    }

    #[test]
    fn only_the_culprit_gives_its_own_error() {
        let error = |own: u32| {
            error_of(returned(1), Outcome::<(), _>::Failed("typed"), Rank(own), &[]).to_string()
        };
        assert_eq!(error(1), "rank 1: typed");
        assert_eq!(error(0), "rank 1 ended the run: disk full");
    }

    #[test]
    fn a_stop_names_who_does_not_answer() {
        let error =
            error_of(stopped(), Outcome::<(), &str>::Panicked, Rank(0), &[Rank(1), Rank(3)]);
        assert_eq!(error.to_string(), "stopped: SIGTERM; no answer from rank 1, rank 3");
    }
}
