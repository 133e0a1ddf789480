//! Query rows on their way from rank to rank: a handle within a process, their elements between processes.

use super::SharedRows;
use super::format::Format;
use ringattn_core::{Message, MessageError, Payload};

impl Message for SharedRows {
    const KIND: &'static str = "queries";

    fn byte_len(&self) -> u64 {
        Self::byte_len(self)
    }

    fn header(&self) -> Vec<u64> {
        Format::of(self).words().to_vec()
    }

    fn payload(&self) -> Payload {
        Payload::new(vec![self.token_major()])
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let [rows] = Format::parse(Self::KIND, header)?.parts(Self::KIND, payload)?;
        Ok(rows)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::cpu::format::samples::{listed, values};
    use ringattn_core::DType;

    #[test]
    fn what_arrives_is_what_was_sent() {
        let (two, none): (&[usize], &[usize]) = (&[3, 1], &[]);
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for (tokens, expected) in
                [(two, &[6.0, 7.0, 14.0, 15.0, 2.0, 3.0, 10.0, 11.0][..]), (none, &[])]
            {
                let sent = listed(0, tokens, dtype);
                let bytes = tokens.len() as u64 * 4 * dtype.size();
                assert_eq!((values(&sent), sent.byte_len()), (expected.to_vec(), bytes));
                let (header, payload) = (sent.header(), sent.payload().to_vec());
                let arrived = SharedRows::from_payload(&header, payload).unwrap();
                assert_eq!((values(&arrived), arrived.dtype()), (expected.to_vec(), dtype));
                assert_eq!((arrived.byte_len(), arrived.header()), (bytes, sent.header()));
            }
        }
    }

    #[test]
    fn damaged_messages_are_refused() {
        let sent = listed(0, &[3, 1], DType::F32);
        let (header, payload) = (sent.header(), sent.payload().to_vec());
        let cases: [(Vec<u64>, &[u8], &str); 4] = [
            (header[1..].to_vec(), &payload, "header of 3 fields, expected 4"),
            (vec![2, 2, 2, 9], &payload, "queries message: unknown dtype 9"),
            (header.clone(), &payload[1..], "payload of 31 bytes, header announces 32"),
            (vec![1 << 40, 1 << 40, 1, 0], &payload, "header announces 18446744073709551615"),
        ];
        for (header, payload, expected) in cases {
            let error = SharedRows::from_payload(&header, payload.to_vec()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
