//! The messages of the suite: bytes, and words as another kind.

use ringattn_core::{Message, MessageError, Part, Payload, Rank, Source};
use std::sync::Arc;

/// A message of bytes, shared and immutable like a block that is still read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block(Arc<Vec<u8>>);

impl Block {
    /// A message of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A message that says who sent it and as which of its messages.
    pub(super) fn signed(rank: Rank, number: u32) -> Self {
        Self::new([rank.0.to_le_bytes(), number.to_le_bytes()].concat())
    }
}

impl Message for Block {
    const KIND: &'static str = "suite block";

    fn byte_len(&self) -> u64 {
        self.0.len() as u64
    }

    fn header(&self) -> Vec<u64> {
        vec![self.byte_len()]
    }

    /// In three parts, none of which ends where a transport would cut.
    fn payload(&self) -> Payload {
        let (len, third) = (self.0.len(), self.0.len() / 3);
        let ranges = [0..third, third..2 * third, 2 * third..len];
        let part = |range| Part::new(Arc::clone(&self.0) as Arc<dyn Source>, range);
        Payload::new(ranges.into_iter().filter_map(part).map(|part| Arc::new(part) as _).collect())
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        let [expected] = *header else {
            return Err(MessageError::Header { kind, expected: 1, actual: header.len() });
        };
        let actual = payload.len() as u64;
        if actual != expected {
            return Err(MessageError::Payload { kind, expected, actual });
        }
        Ok(Self::new(payload))
    }
}

/// A message of another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Message for Word {
    const KIND: &'static str = "suite word";

    fn byte_len(&self) -> u64 {
        8
    }

    fn header(&self) -> Vec<u64> {
        vec![self.0]
    }

    fn payload(&self) -> Payload {
        Payload::default()
    }

    fn from_payload(header: &[u64], _: Vec<u8>) -> Result<Self, MessageError> {
        match *header {
            [word] => Ok(Self(word)),
            _ => {
                let (expected, actual) = (1, header.len());
                Err(MessageError::Header { kind: Self::KIND, expected, actual })
            }
        }
    }
}
