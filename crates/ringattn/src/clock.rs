//! One clock for the ranks of a run.
//!
//! A rank asks rank 0 what time it is there, several times, and believes the answer that came fastest:
//! `offset = theirs - (asked + answered) / 2`, off by half that round trip at most (Cristian, 1989).

use ringattn_comm::{CommError, Communicator, ReceiveRequest, SendRequest, Tag};
use ringattn_core::{Message, MessageError, Payload, Rank};
use ringattn_plan::{Nanos, Span};
use std::time::Instant;

/// The tag of questions and answers.
const CLOCK: Tag = Tag(3);
/// Questions of each rank.
const ROUNDS: u32 = 8;

/// What has to be added to this rank's times, counted from `epoch`, to get those of rank 0. Every rank
/// calls it.
pub(crate) fn offset<C: Communicator>(comm: &C, epoch: Instant) -> Result<i64, CommError> {
    let root = Rank(0);
    if comm.rank() != root {
        return ask(comm, epoch);
    }
    for peer in (1..comm.size()).map(Rank) {
        for _ in 0..ROUNDS {
            comm.immediate_receive::<Time>(peer, CLOCK)?.wait()?;
            comm.immediate_send(Time(since(epoch)), peer, CLOCK)?.wait()?;
        }
    }
    Ok(0)
}

fn ask<C: Communicator>(comm: &C, epoch: Instant) -> Result<i64, CommError> {
    let (mut fastest, mut offset) = (i64::MAX, 0);
    for _ in 0..ROUNDS {
        let answer = comm.immediate_receive::<Time>(Rank(0), CLOCK)?;
        let asked = since(epoch);
        comm.immediate_send(Time(asked), Rank(0), CLOCK)?.wait()?;
        let Time(theirs) = answer.wait()?;
        let round_trip = since(epoch) - asked;
        if round_trip < fastest {
            (fastest, offset) = (round_trip, theirs - asked - round_trip / 2);
        }
    }
    Ok(offset)
}

/// Nanoseconds since `epoch`.
fn since(epoch: Instant) -> i64 {
    i64::try_from(epoch.elapsed().as_nanos()).unwrap_or(i64::MAX)
}

/// Moves spans to the clock of rank 0; nothing happens before its epoch.
pub(crate) fn align(spans: &mut [Span], offset: i64) {
    let moved = |time: Nanos| Nanos(time.0.saturating_add_signed(offset));
    for span in spans {
        (span.start, span.end) = (moved(span.start), moved(span.end));
    }
}

/// Nanoseconds on the sender's clock.
struct Time(i64);

impl Message for Time {
    const KIND: &'static str = "time";

    fn byte_len(&self) -> u64 {
        0
    }

    fn header(&self) -> Vec<u64> {
        vec![self.0.cast_unsigned()]
    }

    fn payload(&self) -> Payload {
        Payload::default()
    }

    fn from_payload(header: &[u64], _: Vec<u8>) -> Result<Self, MessageError> {
        match *header {
            [time] => Ok(Self(time.cast_signed())),
            _ => {
                let (kind, expected, actual) = (Self::KIND, 1, header.len());
                Err(MessageError::Header { kind, expected, actual })
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use ringattn_comm::local;
    use std::time::Duration;

    #[test]
    fn clocks_that_differ_are_brought_together() {
        let now = Instant::now();
        let behind = Duration::from_millis(250);
        let offsets = local::run(3, local::DEFAULT_TIMEOUT, |comm| {
            // Rank 1 began to count a quarter of a second later than the others.
            let epoch = if comm.rank() == Rank(1) { now + behind } else { now };
            std::thread::sleep(2 * behind);
            offset(&comm, epoch)
        });
        let offsets = offsets.unwrap();
        assert_eq!(offsets[0], 0);
        // Threads of one process answer within milliseconds, even when many wait for a core.
        let near = |offset: i64, expected: i64| (offset - expected).abs() < 50_000_000;
        assert!(near(offsets[1], 250_000_000) && near(offsets[2], 0), "{offsets:?}");
    }
}
