//! What can travel from one rank to another.

use crate::Source;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// A value that one rank hands to another.
///
/// A communicator inside one process moves the value itself and never calls the conversions; one
/// between processes sends `header` and `payload` and rebuilds the value from them. Neither way needs
/// a copy: a payload is sent from where its parts lie, and the buffer it arrives in is given away.
pub trait Message: Send + Sized + 'static {
    /// What kind of message this is, for diagnostics.
    const KIND: &'static str;

    /// The bytes of tensor data that the message refers to. Counters count these.
    fn byte_len(&self) -> u64;

    /// What [`Message::from_payload`] needs besides the payload, as plain numbers.
    fn header(&self) -> Vec<u64>;

    /// The tensor data, in the memory order of the machine.
    fn payload(&self) -> Payload;

    /// Rebuilds the message.
    ///
    /// # Errors
    /// When header and payload do not fit together.
    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError>;
}

/// The bytes of a message, in parts that it keeps alive.
#[derive(Clone, Default)]
pub struct Payload(Vec<Arc<dyn Source>>);

impl Payload {
    /// These parts, one after the other.
    pub fn new(parts: Vec<Arc<dyn Source>>) -> Self {
        Self(parts)
    }

    /// The parts' bytes in order; at every call the same bytes at the same place.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|part| part.bytes())
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them in one buffer.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.parts().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(vec![Arc::new(bytes)])
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes in {} parts)", self.len(), self.0.len())
    }
}

/// A received message that cannot be what it claims to be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The header has another number of fields.
    #[error("{kind} message: header of {actual} fields, expected {expected}")]
    Header {
        /// The message's kind.
        kind: &'static str,
        /// Fields that the kind has.
        expected: usize,
        /// Fields that arrived.
        actual: usize,
    },
    /// A header field holds a value that the kind does not know.
    #[error("{kind} message: unknown {field} {value}")]
    Field {
        /// The message's kind.
        kind: &'static str,
        /// The field's name.
        field: &'static str,
        /// What arrived.
        value: u64,
    },
    /// The payload has another length than the header announces.
    #[error("{kind} message: payload of {actual} bytes, header announces {expected}")]
    Payload {
        /// The message's kind.
        kind: &'static str,
        /// Bytes announced.
        expected: u64,
        /// Bytes that arrived.
        actual: u64,
    },
}
