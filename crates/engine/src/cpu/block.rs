//! The K,V block of the CPU backend: rows of two shared tensors, immutable from its making on.

use super::SharedRows;
use super::format::Format;
use ringattn_core::{Message, MessageError, Payload};
use ringattn_kernel::KeysValues;

/// A K,V block; a clone is a second handle to the same memory.
///
/// Keys and values have as many rows, of as many heads, in the same type.
#[derive(Clone, Debug)]
pub struct CpuBlock {
    keys: SharedRows,
    values: SharedRows,
}

impl CpuBlock {
    /// A block of these rows.
    pub fn new(keys: SharedRows, values: SharedRows) -> Self {
        Self { keys, values }
    }

    pub(super) fn view(&self) -> KeysValues<'_> {
        KeysValues { keys: self.keys.rows(), values: self.values.rows() }
    }
}

impl Message for CpuBlock {
    const KIND: &'static str = "K,V block";

    fn byte_len(&self) -> u64 {
        self.keys.byte_len() + self.values.byte_len()
    }

    fn header(&self) -> Vec<u64> {
        Format::of(&self.keys).words().to_vec()
    }

    fn payload(&self) -> Payload {
        Payload::new(vec![self.keys.token_major(), self.values.token_major()])
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let format = Format::parse(Self::KIND, header)?;
        let [keys, values] = format.parts(Self::KIND, payload)?;
        Ok(Self::new(keys, values))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::cpu::format::samples::{listed, values};
    use ringattn_core::DType;

    /// Tokens 3 and 1 of keys and of values.
    fn block(dtype: DType) -> CpuBlock {
        CpuBlock::new(listed(0, &[3, 1], dtype), listed(100, &[3, 1], dtype))
    }

    #[test]
    fn what_arrives_is_what_was_referred_to() {
        let keys = [6.0, 7.0, 14.0, 15.0, 2.0, 3.0, 10.0, 11.0];
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let sent = block(dtype);
            assert_eq!(values(&sent.keys), keys);
            assert_eq!(sent.byte_len(), 16 * dtype.size());
            let payload = sent.payload().to_vec();
            assert_eq!(payload.len() as u64, sent.byte_len());
            let arrived = CpuBlock::from_payload(&sent.header(), payload).unwrap();
            assert_eq!(arrived.keys.dtype(), dtype);
            assert_eq!(values(&arrived.keys), keys);
            assert_eq!(values(&arrived.values), keys.map(|key| key + 100.0));
            assert_eq!((arrived.byte_len(), arrived.header()), (sent.byte_len(), sent.header()));
        }
    }

    #[test]
    fn damaged_messages_are_refused() {
        let (header, payload) = (block(DType::F32).header(), block(DType::F32).payload().to_vec());
        let refused = |header: &[u64], payload: &[u8]| {
            CpuBlock::from_payload(header, payload.to_vec()).err().unwrap().to_string()
        };
        let cases: [(Vec<u64>, &[u8], &str); 5] = [
            (header[..3].to_vec(), &payload, "header of 3 fields, expected 4"),
            (vec![2, 2, 2, 3], &payload, "unknown dtype 3"),
            (vec![2, 2, 3, 0], &payload, "payload of 64 bytes, header announces 96"),
            (vec![2, 2, 2, 0], &payload[1..], "payload of 63 bytes, header announces 64"),
            (vec![1 << 40, 1 << 40, 1, 0], &payload, "header announces 18446744073709551615"),
        ];
        for (header, payload, expected) in cases {
            let message = refused(&header, payload);
            assert!(message.contains(expected), "{message}");
        }
    }
}
