//! What can travel from one rank to another.

use thiserror::Error;

/// A value that one rank hands to another.
///
/// A communicator inside one process moves the value itself and never calls the conversions; one
/// between processes sends `header` and `payload` and rebuilds the value from them.
pub trait Message: Send + Sized + 'static {
    /// What kind of message this is, for diagnostics.
    const KIND: &'static str;

    /// The bytes of tensor data that the message refers to. Counters count these.
    fn byte_len(&self) -> u64;

    /// What [`Message::from_bytes`] needs besides the payload, as plain numbers.
    fn header(&self) -> Vec<u64>;

    /// The tensor data, in the memory order of the machine.
    fn to_bytes(&self) -> Vec<u8>;

    /// Rebuilds the message.
    ///
    /// # Errors
    /// When header and payload do not fit together.
    fn from_bytes(header: &[u64], payload: &[u8]) -> Result<Self, MessageError>;
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
