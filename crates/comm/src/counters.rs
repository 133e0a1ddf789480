//! What one rank has sent, received and waited for. Knows no transport.

use std::time::{Duration, Instant};

/// Counted where it happens, for point-to-point messages; collective operations are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages handed to `immediate_send`.
    pub sent_messages: u64,
    /// Their bytes of tensor data, by `Message::byte_len`.
    pub sent_bytes: u64,
    /// Messages that a receive's `wait` gave out.
    pub received_messages: u64,
    /// Their bytes of tensor data, by `Message::byte_len`.
    pub received_bytes: u64,
    /// How long the received messages were under way: from the moment when both sides had posted
    /// until the message was there.
    pub transfer: Duration,
    /// The part of the waits during which the awaited message was under way.
    pub transfer_wait: Duration,
    /// The rest of the waits: the sender had not sent yet, the receiver had not posted yet, or the
    /// message was there and this rank's thread had not been woken.
    pub peer_wait: Duration,
    /// Processor time for checksums of sent and received messages, where the transport has them. It
    /// does not hold up the rank's own thread.
    pub checksum: Duration,
    /// The wait that ended last.
    pub last_wait: Option<Wait>,
}

/// A wait for a message, which has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When it began and ended.
    pub wait: (Instant, Instant),
    /// When the message was under way; `None` of a wait for a message to be matched.
    pub transfer: Option<(Instant, Instant)>,
}

impl Wait {
    /// The part of the wait during which the message was under way; empty if there was none.
    pub fn for_transfer(&self) -> (Instant, Instant) {
        let (begun, ended) = self.wait;
        let (first, last) = self.transfer.unwrap_or((ended, ended));
        let start = begun.max(first).min(ended);
        (start, ended.min(last).max(start))
    }
}

impl Counters {
    /// What was added since `earlier`, an older value of the same rank's counters.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            sent_messages: self.sent_messages.saturating_sub(earlier.sent_messages),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            received_messages: self.received_messages.saturating_sub(earlier.received_messages),
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
            transfer: self.transfer.saturating_sub(earlier.transfer),
            transfer_wait: self.transfer_wait.saturating_sub(earlier.transfer_wait),
            peer_wait: self.peer_wait.saturating_sub(earlier.peer_wait),
            checksum: self.checksum.saturating_sub(earlier.checksum),
            last_wait: self.last_wait,
        }
    }
}
