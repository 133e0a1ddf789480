//! Which of several causes ended a run. Knows no transport: every rank that knows the same causes
//! finds the same.

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
pub(super) fn weightiest(causes: impl IntoIterator<Item = Cause>) -> Option<Cause> {
    causes.into_iter().min_by_key(|cause| (class(cause), culprit(cause), format!("{cause:?}")))
}

/// The rank that reports a failure: the culprit where it speaks of itself, else the first that can.
pub(super) fn speaker(
    cause: &Cause,
    size: u32,
    own: Rank,
    can_speak: impl Fn(Rank) -> bool,
) -> Rank {
    let own_words = if class(cause) == 0 { culprit(cause) } else { None };
    own_words
        .filter(|rank| can_speak(*rank))
        .or_else(|| (0..size).map(Rank).find(|rank| can_speak(*rank)))
        .unwrap_or(own)
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
                    assert_eq!(weightiest(pair.map(Clone::clone)).as_ref(), Some(expected));
                }
            }
        }
        assert_eq!(weightiest([]), None);
    }

    #[test]
    fn the_culprit_speaks_if_it_can() {
        let own = Rank(1);
        let cases = [
            (returned(3), vec![0, 1, 2, 3], 3),
            (returned(3), vec![1, 2], 1),
            (timed_out(0, 2), vec![0, 1, 2], 0),
            (timed_out(1, 0), vec![1, 2], 1),
            (returned(3), vec![], 1),
        ];
        for (cause, speakers, expected) in cases {
            let can = |rank: Rank| speakers.contains(&rank.0);
            assert_eq!(speaker(&cause, 4, own, can), Rank(expected), "{cause:?}");
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
