//! One message on its way out or in, as the link thread sees it: an envelope, then a payload in
//! pieces. Knows no peer's state.
//!
//! Payloads of the same two ranks and the same tag travel one after the other, in the order of
//! their envelopes, so that pieces need no numbers: MPI keeps the order (MPI 4.1, 3.5).

use super::desk::{Key, Packet, Spent};
use super::landing::{Parcel, Slot};
use super::library::{Arrival, Channel, Inbound, Library, LibraryError, Mode, Outbound, Stream};
use super::wire::{Envelope, NUMBER, PAYLOAD, SEAL, Unreadable, checksum};
use crate::world::World;
use crate::{Checksum, CommError, Tag};
use ringattn_core::{Payload, Rank, try_reserved};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What a transfer works for: a run and the rank in it.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) number: u64,
    pub(super) rank: Rank,
    pub(super) world: Arc<World>,
    pub(super) checksum: Arc<Spent>,
}

impl Context {
    /// The envelope of `packet`, the message `sequence` of its key.
    pub(super) fn announce(
        &self,
        (to, tag): Key,
        sequence: u64,
        packet: &Packet,
        checksum: Checksum,
    ) -> Envelope {
        let Packet { kind, header, payload } = packet;
        Envelope {
            run: self.number,
            from: self.rank,
            to,
            tag,
            sequence,
            kind: (*kind).to_owned(),
            header: header.clone(),
            length: payload.len() as u64,
            checksum: match checksum {
                Checksum::Verified => Some(self.timed_checksum(payload.parts())),
                Checksum::Off => None,
            },
        }
    }

    fn timed_checksum<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
        let begun = Instant::now();
        let sum = checksum(parts);
        self.checksum.add(begun.elapsed());
        sum
    }
}

/// Whether a transfer may post pieces: only the first of its key that has pieces left may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    Later,
}

/// A message on its way out.
pub(super) struct Sending {
    pub(super) key: Key,
    context: Context,
    envelope: Outbound,
    payload: Outbound,
    matched: Arc<AtomicBool>,
}

impl Sending {
    /// Sends the envelope of `packet`.
    pub(super) fn start(
        library: &Library,
        context: Context,
        envelope: Envelope,
        payload: Payload,
        (piece, matched): (usize, Arc<AtomicBool>),
    ) -> Result<Self, LibraryError> {
        let (peer, tag) = (envelope.to, envelope.tag.0);
        let channel = |stream| Channel { stream, peer, tag };
        let letter = envelope.write();
        Ok(Self {
            key: (envelope.to, envelope.tag),
            context,
            envelope: Outbound::whole(
                library,
                letter.into(),
                channel(Stream::Envelopes),
                Mode::Synchronous,
            )?,
            payload: Outbound::new(payload, channel(Stream::Payloads), piece),
            matched,
        })
    }

    /// Goes on; gives whether the next message of the same key may post pieces.
    pub(super) fn progress(&mut self, library: &Library, turn: Turn) -> Result<Turn, LibraryError> {
        let Context { world, rank, .. } = &self.context;
        if !self.envelope.is_done() {
            self.envelope.progress(library)?;
            if self.envelope.is_done() {
                world.count(*rank);
            }
        }
        if turn == Turn::Now {
            let done = self.payload.progress(library)?;
            (0..done.pieces).for_each(|_| world.count(*rank));
        }
        // As MPI_Issend: matched, and the bytes are no longer needed here. A rank that went on before would
        // hold one block more than the plan says.
        if self.is_done() && !self.matched.swap(true, Ordering::AcqRel) {
            world.count(*rank);
            world.wake(*rank);
        }
        Ok(if self.payload.is_posted() { turn } else { Turn::Later })
    }

    pub(super) fn is_done(&self) -> bool {
        self.envelope.is_done() && self.payload.is_done()
    }

    /// Whether its payload is under way.
    pub(super) fn is_matched(&self) -> bool {
        self.envelope.is_done()
    }
}

/// How far an arriving message is.
enum State {
    Envelope(Inbound),
    Payload { envelope: Envelope, payload: Inbound },
    Done,
}

/// What a step of an arriving message led to.
pub(super) enum Step {
    /// It goes on.
    Pending,
    /// The envelope was another run's: the receive is to be posted again.
    Stale(Arc<dyn Slot>),
    /// It is not what was sent, or there is no memory for it.
    Failed(CommError),
}

/// A message on its way in.
pub(super) struct Receiving {
    pub(super) key: Key,
    context: Context,
    /// `None` for a message that nobody wants.
    landing: Option<Arc<dyn Slot>>,
    begun: Instant,
    state: State,
}

impl Receiving {
    /// Starts to receive a message's envelope, for the receive of `landing`.
    pub(super) fn start(
        arrival: Arrival,
        context: Context,
        landing: Option<Arc<dyn Slot>>,
    ) -> Result<Self, LibraryError> {
        let key = (arrival.from, Tag(arrival.tag));
        let state = State::Envelope(arrival.receive()?);
        Ok(Self { key, context, landing, begun: Instant::now(), state })
    }

    pub(super) fn world(&self) -> &World {
        &self.context.world
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Goes on; gives whether the next message of the same key may post pieces. `expected` is the
    /// sequence number that the key's next envelope of this run must have.
    pub(super) fn progress(
        &mut self,
        library: &Library,
        turn: Turn,
        (piece, expected): (usize, &mut u64),
    ) -> Result<(Turn, Step), LibraryError> {
        let mut step = Step::Pending;
        if let State::Envelope(inbound) = &mut self.state {
            inbound.progress(library)?;
            // Envelopes are read in their order: the sequence numbers are.
            if !inbound.is_done() || turn == Turn::Later {
                return Ok((Turn::Later, step));
            }
            step = match self.open(piece, expected) {
                Ok(step) => step,
                Err(error) => {
                    self.state = State::Done;
                    Step::Failed(error)
                }
            };
        }
        let State::Payload { envelope, payload } = &mut self.state else { return Ok((turn, step)) };
        if turn == Turn::Now {
            let done = payload.progress(library)?;
            (0..done.pieces).for_each(|_| self.context.world.count(self.context.rank));
        }
        let next = if payload.is_posted() { turn } else { Turn::Later };
        if payload.is_done() {
            let envelope = envelope.clone();
            if let Err(error) = self.finish(envelope) {
                step = Step::Failed(error);
            }
        }
        Ok((next, step))
    }

    fn damaged(&self, sequence: u64, what: &'static str, values: (u64, u64)) -> CommError {
        let ((from, tag), (expected, actual)) = (self.key, values);
        CommError::Damaged { from, to: self.context.rank, tag, sequence, what, expected, actual }
    }

    /// Reads the envelope, which has come, and gets room for the payload.
    fn open(&mut self, piece: usize, expected: &mut u64) -> Result<Step, CommError> {
        let State::Envelope(inbound) = std::mem::replace(&mut self.state, State::Done) else {
            return Ok(Step::Pending);
        };
        let rank = self.context.rank;
        let envelope = Envelope::read(inbound.arrived()).map_err(|error| match error {
            Unreadable::Seal { expected: seal, actual } => {
                self.damaged(*expected, SEAL, (seal, actual))
            }
            other => {
                CommError::Transport { rank, reason: format!("rank {} sent {other}", self.key.0) }
            }
        })?;
        let is_stale = envelope.run != self.context.number;
        let landing = if is_stale { self.landing.take() } else { None };
        if !is_stale {
            if envelope.sequence != *expected {
                return Err(self.damaged(*expected, NUMBER, (*expected, envelope.sequence)));
            }
            *expected += 1;
        }
        let (peer, tag) = (self.key.0, self.key.1.0);
        let memory = |_| CommError::Memory { rank, from: peer, bytes: envelope.length };
        let length = usize::try_from(envelope.length).map_err(|_| memory(()))?;
        let buffer = try_reserved(length).map_err(|_| memory(()))?;
        let channel = Channel { stream: Stream::Payloads, peer, tag };
        let payload = Inbound::new(buffer, length, channel, piece);
        self.state = State::Payload { envelope, payload };
        Ok(landing.map_or(Step::Pending, Step::Stale))
    }

    /// Checks the payload, which has come, and hands it over.
    fn finish(&mut self, envelope: Envelope) -> Result<(), CommError> {
        let State::Payload { payload, .. } = std::mem::replace(&mut self.state, State::Done) else {
            return Ok(());
        };
        let payload = payload.into_bytes();
        let Some(landing) = self.landing.take() else { return Ok(()) };
        if let Some(expected) = envelope.checksum {
            let actual = self.context.timed_checksum([&payload[..]]);
            if actual != expected {
                return Err(self.damaged(envelope.sequence, PAYLOAD, (expected, actual)));
            }
        }
        let Envelope { kind, header, .. } = envelope;
        landing.land(Parcel { kind, header, payload, begun: self.begun });
        self.context.world.count(self.context.rank);
        self.context.world.wake(self.context.rank);
        Ok(())
    }
}
