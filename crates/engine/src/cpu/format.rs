//! How rows travel between processes: four numbers that say what they are, and their elements
//! `[rows, heads, d]` in memory order. Knows not what the rows are for.

use super::SharedRows;
use ringattn_core::{DType, Elements, MessageError, Part, Source, bf16, f16};
use ringattn_kernel::Arrangement;
use std::array;
use std::sync::Arc;

/// The shape and type of some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    rows: u64,
    heads: u64,
    head_dim: u64,
    dtype: DType,
}

impl Format {
    pub(super) fn of(shared: &SharedRows) -> Self {
        let rows = shared.rows();
        let (heads, head_dim) = rows.shape();
        let (heads, head_dim) = (heads as u64, head_dim as u64);
        Self { rows: rows.len() as u64, heads, head_dim, dtype: shared.dtype() }
    }

    /// As the header of a message.
    pub(super) fn words(self) -> [u64; 4] {
        let dtype = match self.dtype {
            DType::F32 => 0,
            DType::Bf16 => 1,
            DType::F16 => 2,
        };
        [self.rows, self.heads, self.head_dim, dtype]
    }

    /// Of the header of a message of this kind.
    pub(super) fn parse(kind: &'static str, header: &[u64]) -> Result<Self, MessageError> {
        let &[rows, heads, head_dim, dtype] = header else {
            return Err(MessageError::Header { kind, expected: 4, actual: header.len() });
        };
        let dtype = match dtype {
            0 => DType::F32,
            1 => DType::Bf16,
            2 => DType::F16,
            value => return Err(MessageError::Field { kind, field: "dtype", value }),
        };
        Ok(Self { rows, heads, head_dim, dtype })
    }

    /// The `N` sets of rows of this format that `payload` holds one after the other, read where they lie
    /// if they lie aligned for their type.
    pub(super) fn parts<const N: usize>(
        self,
        kind: &'static str,
        payload: Vec<u8>,
    ) -> Result<[SharedRows; N], MessageError> {
        let Self { rows, heads, head_dim, dtype } = self;
        let actual = payload.len() as u64;
        let sizes = [rows, heads, head_dim, dtype.size()];
        let expected = sizes.iter().fold(N as u64, |product, &size| product.saturating_mul(size));
        if actual != expected {
            return Err(MessageError::Payload { kind, expected, actual });
        }
        let arrangement =
            Arrangement::token_major(heads as usize, rows as usize, head_dim as usize);
        let (each, whole): (usize, Arc<dyn Source>) = (payload.len() / N, Arc::new(payload));
        Ok(array::from_fn(|index| {
            let range = index * each..(index + 1) * each;
            let in_place = Part::new(Arc::clone(&whole), range.clone())
                .and_then(|part| SharedRows::of_source(Arc::new(part), dtype, arrangement));
            in_place.unwrap_or_else(|| {
                SharedRows::whole(aligned(&whole.bytes()[range], dtype), arrangement)
            })
        }))
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

/// Rows for the tests of what is made of them.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(super) mod samples {
    use super::*;

    /// The listed tokens of `[2 heads, 4 tokens, 2]`, elements counted from `first`.
    pub(in super::super) fn listed(first: u8, tokens: &[usize], dtype: DType) -> SharedRows {
        let values = (first..first + 16).map(f32::from).collect();
        let source: Arc<dyn Source> = Arc::new(Elements::from_f32(values, dtype));
        let arrangement = Arrangement::head_major(2, 4, 2);
        SharedRows::listed(source, dtype, arrangement, Arc::new(tokens.to_vec())).unwrap()
    }

    /// What rows of two heads hold, token by token.
    pub(in super::super) fn values(rows: &SharedRows) -> Vec<f32> {
        let rows = rows.rows();
        let row = |(slot, head)| {
            let row = rows.row(head, slot);
            (0..row.len()).map(move |at| row.get(at))
        };
        (0..rows.len()).flat_map(|slot| [(slot, 0), (slot, 1)]).flat_map(row).collect()
    }
}
