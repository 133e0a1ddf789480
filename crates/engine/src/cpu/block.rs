//! The K,V block of the CPU backend: rows of two shared tensors, immutable from its making on.

use super::SharedRows;
use ringattn_core::{DType, Elements, Message, MessageError, Part, Payload, Source, bf16, f16};
use ringattn_kernel::{Arrangement, KeysValues};
use std::ops::Range;
use std::sync::Arc;

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
        let dtype = match self.keys.dtype() {
            DType::F32 => 0,
            DType::Bf16 => 1,
            DType::F16 => 2,
        };
        let keys = self.keys.rows();
        let (heads, head_dim) = keys.shape();
        vec![keys.len() as u64, heads as u64, head_dim as u64, dtype]
    }

    fn payload(&self) -> Payload {
        Payload::new(vec![self.keys.token_major(), self.values.token_major()])
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        let &[rows, heads, head_dim, dtype] = header else {
            return Err(MessageError::Header { kind, expected: 4, actual: header.len() });
        };
        let dtype = match dtype {
            0 => DType::F32,
            1 => DType::Bf16,
            2 => DType::F16,
            value => return Err(MessageError::Field { kind, field: "dtype", value }),
        };
        let actual = payload.len() as u64;
        let sizes = [rows, heads, head_dim, dtype.size()];
        let expected = sizes.iter().fold(2_u64, |product, &size| product.saturating_mul(size));
        if actual != expected {
            return Err(MessageError::Payload { kind, expected, actual });
        }
        let arrangement =
            Arrangement::token_major(heads as usize, rows as usize, head_dim as usize);
        let (half, whole): (usize, Arc<dyn Source>) = (payload.len() / 2, Arc::new(payload));
        let part = |range: Range<usize>| {
            let in_place = Part::new(Arc::clone(&whole), range.clone())
                .and_then(|part| SharedRows::of_source(Arc::new(part), dtype, arrangement));
            in_place.unwrap_or_else(|| {
                SharedRows::whole(aligned(&whole.bytes()[range], dtype), arrangement)
            })
        };
        Ok(Self::new(part(0..half), part(half..2 * half)))
    }
}

/// A copy of the elements, for bytes that are not aligned for their type.
fn aligned(bytes: &[u8], dtype: DType) -> Elements {
    match dtype {
        DType::F32 => Elements::F32(bytemuck::pod_collect_to_vec::<u8, f32>(bytes)),
        DType::Bf16 => Elements::Bf16(bytemuck::pod_collect_to_vec::<u8, bf16>(bytes)),
        DType::F16 => Elements::F16(bytemuck::pod_collect_to_vec::<u8, f16>(bytes)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Tokens 3 and 1 of `[2 heads, 4 tokens, 2]`, elements counted from 0.
    fn block(dtype: DType) -> CpuBlock {
        let rows = |first: u8| {
            let values = (first..first + 16).map(f32::from).collect();
            let source: Arc<dyn Source> = Arc::new(Elements::from_f32(values, dtype));
            let arrangement = Arrangement::head_major(2, 4, 2);
            SharedRows::listed(source, dtype, arrangement, Arc::new(vec![3, 1])).unwrap()
        };
        CpuBlock::new(rows(0), rows(100))
    }

    fn values(rows: &SharedRows) -> Vec<f32> {
        let rows = rows.rows();
        let row = |(slot, head)| {
            let row = rows.row(head, slot);
            (0..row.len()).map(move |at| row.get(at))
        };
        (0..rows.len()).flat_map(|slot| [(slot, 0), (slot, 1)]).flat_map(row).collect()
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
