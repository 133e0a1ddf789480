//! What processes write to each other besides payloads, as bytes. Knows no MPI and no state.
//!
//! A *letter* is a row of 64-bit words in little-endian order and some texts, sealed: it opens with
//! [`PROTOCOL`] and closes with the CRC-32 of everything before. A process that finds another seal
//! or protocol does not guess.
//!
//! - An [`Envelope`] announces one message: which run, which ranks, tag and number it has, its kind
//!   and header, and the length and CRC-32 of the payload that follows in pieces.
//! - A [`Notice`] says how a rank stands. It always says everything, so the last one is enough.

use crate::deadline::Standing;
use crate::world::Cause;
use crate::{CommError, Tag};
use ringattn_core::Rank;
use std::time::Duration;
use thiserror::Error;

/// "RINGMPI" and the version of what is written here.
pub(super) const PROTOCOL: u64 = 0x5249_4e47_4d50_4902;

/// The longest text that is written, in bytes; of a longer one, the beginning.
const TEXT: usize = 2048;

/// Bytes that are no letter of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Unreadable {
    /// The bytes changed on their way.
    #[error("a letter with the seal {actual:#x} instead of {expected:#x}")]
    Seal {
        /// What the sender wrote.
        expected: u64,
        /// What the bytes give.
        actual: u64,
    },
    /// The sender speaks another protocol.
    #[error("a letter of protocol {actual:#x}, this is {PROTOCOL:#x}")]
    Protocol {
        /// The sender's.
        actual: u64,
    },
    /// A sealed letter that makes no sense.
    #[error("a letter without sense")]
    Nonsense,
}

/// CRC-32 (ISO-HDLC) of the parts, one after the other.
pub(super) fn checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    parts.into_iter().for_each(|part| hasher.update(part));
    u64::from(hasher.finalize())
}

struct Writer(Vec<u8>);

impl Writer {
    fn new() -> Self {
        let mut writer = Self(Vec::with_capacity(256));
        writer.word(PROTOCOL);
        writer
    }

    fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn words(&mut self, words: &[u64]) {
        self.word(words.len() as u64);
        words.iter().for_each(|&word| self.word(word));
    }

    fn text(&mut self, text: &str) {
        let end = (0..=text.len().min(TEXT)).rev().find(|&end| text.is_char_boundary(end));
        let text = &text[..end.unwrap_or(0)];
        self.word(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn seal(mut self) -> Vec<u8> {
        self.word(checksum([&self.0[..]]));
        self.0
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn open(letter: &'a [u8]) -> Result<Self, Unreadable> {
        let (body, seal) = letter.split_last_chunk::<8>().ok_or(Unreadable::Nonsense)?;
        let (expected, actual) = (u64::from_le_bytes(*seal), checksum([body]));
        if expected != actual {
            return Err(Unreadable::Seal { expected, actual });
        }
        let mut reader = Self(body);
        match reader.word()? {
            PROTOCOL => Ok(reader),
            actual => Err(Unreadable::Protocol { actual }),
        }
    }

    fn word(&mut self) -> Result<u64, Unreadable> {
        let (word, rest) = self.0.split_first_chunk::<8>().ok_or(Unreadable::Nonsense)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    fn size(&mut self) -> Result<usize, Unreadable> {
        usize::try_from(self.word()?).map_err(|_| Unreadable::Nonsense)
    }

    fn rank(&mut self) -> Result<Rank, Unreadable> {
        u32::try_from(self.word()?).map(Rank).map_err(|_| Unreadable::Nonsense)
    }

    fn tag(&mut self) -> Result<Tag, Unreadable> {
        u32::try_from(self.word()?).map(Tag).map_err(|_| Unreadable::Nonsense)
    }

    fn words(&mut self) -> Result<Vec<u64>, Unreadable> {
        let count = self.size()?;
        if count > self.0.len() / 8 {
            return Err(Unreadable::Nonsense);
        }
        (0..count).map(|_| self.word()).collect()
    }

    fn text(&mut self) -> Result<String, Unreadable> {
        let length = self.size()?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Unreadable::Nonsense)?;
        self.0 = rest;
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// The announcement of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) run: u64,
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) tag: Tag,
    /// The message's number among those of this run, source, destination and tag.
    pub(super) sequence: u64,
    pub(super) kind: String,
    pub(super) header: Vec<u64>,
    /// Bytes of the payload.
    pub(super) length: u64,
    /// The payload's checksum, unless checksums are off.
    pub(super) checksum: Option<u64>,
}

impl Envelope {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        let Self { run, from, to, tag, sequence, kind, header, length, checksum } = self;
        writer.word(*run);
        writer.word(u64::from(from.0));
        writer.word(u64::from(to.0));
        writer.word(u64::from(tag.0));
        writer.word(*sequence);
        writer.word(*length);
        writer.words(checksum.as_slice());
        writer.words(header);
        writer.text(kind);
        writer.seal()
    }

    pub(super) fn read(letter: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::open(letter)?;
        Ok(Self {
            run: reader.word()?,
            from: reader.rank()?,
            to: reader.rank()?,
            tag: reader.tag()?,
            sequence: reader.word()?,
            length: reader.word()?,
            checksum: reader.words()?.first().copied(),
            header: reader.words()?,
            kind: reader.text()?,
        })
    }
}

/// How far a rank is with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It works, or has not begun.
    Working,
    /// It has returned a result.
    Left,
    /// The run was ended, and the rank has returned.
    Settled,
    /// It leaves the report to this rank; where that is itself, it offers to report.
    Yielded(Rank),
    /// It reports: every other rank has left that to it, or does not answer.
    Speaking,
    /// It wants to end MPI.
    Finished,
    /// It ends the job with this exit code.
    Ending(u8),
}

impl Stage {
    fn word(self) -> u64 {
        match self {
            Self::Working => 0,
            Self::Left => 1,
            Self::Settled => 2,
            Self::Finished => 3,
            Self::Speaking => 4,
            Self::Ending(code) => 256 + u64::from(code),
            Self::Yielded(rank) => 512 + u64::from(rank.0),
        }
    }

    fn from_word(word: u64) -> Result<Self, Unreadable> {
        match word {
            0 => Ok(Self::Working),
            1 => Ok(Self::Left),
            2 => Ok(Self::Settled),
            3 => Ok(Self::Finished),
            4 => Ok(Self::Speaking),
            256..512 => Ok(Self::Ending((word - 256) as u8)),
            512.. => u32::try_from(word - 512)
                .map(|rank| Self::Yielded(Rank(rank)))
                .map_err(|_| Unreadable::Nonsense),
            _ => Err(Unreadable::Nonsense),
        }
    }
}

/// All that a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// The run that it is in, or was last in.
    pub(super) run: u64,
    pub(super) standing: Standing,
    pub(super) stage: Stage,
    /// What ended that run, as far as the rank knew first.
    pub(super) cause: Option<Cause>,
}

impl Notice {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        let Self { run, standing, stage, cause } = self;
        writer.word(*run);
        writer.word(standing.count);
        writer.words(standing.waiting_for.map(|rank| u64::from(rank.0)).as_slice());
        writer.word(stage.word());
        let (kind, numbers, text) = cause.as_ref().map_or((0, Vec::new(), ""), cause_parts);
        writer.word(kind);
        writer.words(&numbers);
        writer.text(text);
        writer.seal()
    }

    pub(super) fn read(letter: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::open(letter)?;
        let (run, count) = (reader.word()?, reader.word()?);
        let waiting_for = match *reader.words()? {
            [] => None,
            [rank] => Some(Rank(u32::try_from(rank).map_err(|_| Unreadable::Nonsense)?)),
            _ => return Err(Unreadable::Nonsense),
        };
        let stage = Stage::from_word(reader.word()?)?;
        let (kind, numbers, text) = (reader.word()?, reader.words()?, reader.text()?);
        let cause = match kind {
            0 => None,
            _ => Some(cause_of(kind, &numbers, text).ok_or(Unreadable::Nonsense)?),
        };
        Ok(Self { run, standing: Standing { count, waiting_for }, stage, cause })
    }
}

/// A cause as a number for its kind, numbers and a text.
fn cause_parts(cause: &Cause) -> (u64, Vec<u64>, &str) {
    let of = |rank: &Rank| u64::from(rank.0);
    match cause {
        Cause::Called { culprit, reason } => (1, vec![of(culprit)], reason),
        Cause::Returned { culprit, reason } => (2, vec![of(culprit)], reason),
        Cause::Panicked { culprit, message } => (3, vec![of(culprit)], message),
        Cause::NotStarted { culprit } => (4, vec![of(culprit)], ""),
        Cause::World(CommError::Stopped { reason }) => (5, Vec::new(), reason),
        Cause::World(CommError::TimedOut { waiting, culprit, timeout }) => {
            let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            (6, vec![of(waiting), of(culprit), nanoseconds], "")
        }
        Cause::World(CommError::Deadlock { ranks }) => (7, ranks.iter().map(of).collect(), ""),
        Cause::World(CommError::Damaged { from, to, tag, sequence, what, expected, actual }) => {
            let numbers = vec![of(from), of(to), u64::from(tag.0), *sequence, *expected, *actual];
            (8, numbers, what)
        }
        Cause::World(CommError::Memory { rank, from, bytes }) => {
            (9, vec![of(rank), of(from), *bytes], "")
        }
        Cause::World(CommError::Transport { rank, reason }) => (10, vec![of(rank)], reason),
        // The others are one rank's own business and end no run.
        Cause::World(error) => {
            let culprit = error.culprit().as_ref().map_or(u64::from(u32::MAX), of);
            (1, vec![culprit], "an operation failed")
        }
    }
}

fn cause_of(kind: u64, numbers: &[u64], text: String) -> Option<Cause> {
    let rank = |index: usize| Some(Rank(u32::try_from(*numbers.get(index)?).ok()?));
    let error = match kind {
        1 => return Some(Cause::Called { culprit: rank(0)?, reason: text }),
        2 => return Some(Cause::Returned { culprit: rank(0)?, reason: text }),
        3 => return Some(Cause::Panicked { culprit: rank(0)?, message: text }),
        4 => return Some(Cause::NotStarted { culprit: rank(0)? }),
        5 => CommError::Stopped { reason: text },
        6 => CommError::TimedOut {
            waiting: rank(0)?,
            culprit: rank(1)?,
            timeout: Duration::from_nanos(*numbers.get(2)?),
        },
        7 => {
            CommError::Deadlock { ranks: (0..numbers.len()).map(rank).collect::<Option<Vec<_>>>()? }
        }
        8 => CommError::Damaged {
            from: rank(0)?,
            to: rank(1)?,
            tag: Tag(u32::try_from(*numbers.get(2)?).ok()?),
            sequence: *numbers.get(3)?,
            what: DAMAGED.into_iter().find(|known| *known == text)?,
            expected: *numbers.get(4)?,
            actual: *numbers.get(5)?,
        },
        9 => CommError::Memory { rank: rank(0)?, from: rank(1)?, bytes: *numbers.get(2)? },
        10 => CommError::Transport { rank: rank(0)?, reason: text },
        _ => return None,
    };
    Some(Cause::World(error))
}

/// What may be found to differ between a message as sent and as received.
pub(super) const DAMAGED: [&str; 3] = [SEAL, NUMBER, PAYLOAD];
pub(super) const SEAL: &str = "seal of the envelope";
pub(super) const NUMBER: &str = "number";
pub(super) const PAYLOAD: &str = "checksum of the payload";

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(checksum: Option<u64>, header: Vec<u64>) -> Envelope {
        Envelope {
            run: 7,
            from: Rank(1),
            to: Rank(2),
            tag: Tag(3),
            sequence: 1 << 40,
            kind: "key block".to_owned(),
            header,
            length: 5 << 31,
            checksum,
        }
    }

    fn causes() -> Vec<Option<Cause>> {
        let reason = || "größer".to_owned();
        let (a, b) = (Rank(3), Rank(0));
        let damaged = |what| CommError::Damaged {
            from: a,
            to: b,
            tag: Tag(9),
            sequence: 8,
            what,
            expected: 1,
            actual: 2,
        };
        let world = [
            CommError::Stopped { reason: reason() },
            CommError::TimedOut { waiting: a, culprit: b, timeout: Duration::from_millis(1500) },
            CommError::Deadlock { ranks: vec![a, b, Rank(2)] },
            damaged(SEAL),
            damaged(NUMBER),
            damaged(PAYLOAD),
            CommError::Memory { rank: a, from: b, bytes: u64::MAX },
            CommError::Transport { rank: a, reason: reason() },
        ];
        let own = [
            None,
            Some(Cause::Called { culprit: a, reason: reason() }),
            Some(Cause::Returned { culprit: a, reason: reason() }),
            Some(Cause::Panicked { culprit: a, message: reason() }),
            Some(Cause::NotStarted { culprit: a }),
        ];
        own.into_iter().chain(world.map(|error| Some(Cause::World(error)))).collect()
    }

    #[test]
    fn envelopes_are_read_as_written() {
        for checksum in [None, Some(0), Some(u64::from(u32::MAX))] {
            for header in [vec![], vec![1], vec![u64::MAX; 40]] {
                let written = envelope(checksum, header);
                assert_eq!(Envelope::read(&written.write()), Ok(written));
            }
        }
    }

    #[test]
    fn notices_are_read_as_written() {
        let stages = [
            Stage::Working,
            Stage::Left,
            Stage::Settled,
            Stage::Yielded(Rank(0)),
            Stage::Yielded(Rank(u32::MAX)),
            Stage::Speaking,
            Stage::Finished,
            Stage::Ending(255),
        ];
        for cause in causes() {
            for (stage, waiting_for) in
                stages.into_iter().zip([None, Some(Rank(0))].into_iter().cycle())
            {
                let standing = Standing { count: 1 << 60, waiting_for };
                let written = Notice { run: 1, standing, stage, cause: cause.clone() };
                assert_eq!(Notice::read(&written.write()), Ok(written));
            }
        }
    }

    #[test]
    fn every_damaged_bit_and_every_missing_byte_is_noticed() {
        let letter = envelope(Some(1), vec![1, 2]).write();
        for bit in 0..letter.len() * 8 {
            let mut damaged = letter.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Envelope::read(&damaged), Err(Unreadable::Seal { .. })), "bit {bit}");
        }
        for length in 0..letter.len() {
            assert!(Envelope::read(&letter[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn another_protocol_and_nonsense_are_refused() {
        let mut other = Writer(Vec::new());
        other.word(PROTOCOL + 1);
        assert_eq!(Notice::read(&other.seal()), Err(Unreadable::Protocol { actual: PROTOCOL + 1 }));
        let mut claims = Writer::new();
        (0..6).for_each(|_| claims.word(0));
        claims.words(&[]);
        claims.word(u64::MAX);
        assert_eq!(Envelope::read(&claims.seal()), Err(Unreadable::Nonsense));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let reason = "ß".repeat(TEXT);
        let cause = Some(Cause::Called { culprit: Rank(0), reason });
        let standing = Standing { count: 0, waiting_for: None };
        let written = Notice { run: 0, standing, stage: Stage::Working, cause }.write();
        let Ok(Notice { cause: Some(Cause::Called { reason, .. }), .. }) = Notice::read(&written)
        else {
            unreachable!("it was written so");
        };
        assert_eq!(reason, "ß".repeat(TEXT / 2));
    }
}
