//! What one rank found, on its way to where the output is put together.

use super::AttendOutput;
use crate::report::RankRecord;
use ringattn_core::{Elements, Message, MessageError, Part, Payload, Source};
use ringattn_plan::Plan;
use std::sync::Arc;

/// The rows of one rank.
pub(super) struct AttendedShard {
    pub(super) record: RankRecord,
    /// `[Hq, rows]` natural log-sum-exps.
    lse: Arc<dyn Source>,
    /// `[Hq, rows, d]`; empty when the rows are in the output already.
    out: Arc<dyn Source>,
}

impl AttendedShard {
    pub(super) fn new(record: RankRecord, lse: Vec<f32>, out: Vec<f32>) -> Self {
        Self { record, lse: Arc::new(Elements::F32(lse)), out: Arc::new(Elements::F32(out)) }
    }

    /// Puts the rows of these `tokens` where they belong.
    pub(super) fn put_into(&self, output: &mut AttendOutput, tokens: &[usize], plan: &Plan) {
        let (shape, total) = (plan.problem().shape, plan.problem().queries as usize);
        scatter(self.lse.bytes(), &mut output.lse, (total, 1), tokens);
        debug_assert!(self.lse.bytes().len() == 4 * tokens.len() * shape.query_heads());
        scatter(self.out.bytes(), &mut output.out, (total, shape.head_dim()), tokens);
    }
}

/// Copies rows `[heads, rows, width]` to `[heads, total, width]`, each to its token.
fn scatter(bytes: &[u8], target: &mut [f32], (total, width): (usize, usize), tokens: &[usize]) {
    let rows = bytes.chunks_exact(4 * width);
    let places = target.chunks_exact_mut((total * width).max(1));
    let places = places.flat_map(|head| {
        let mut rest = (0, head);
        tokens.iter().map(move |&token| {
            let (_, tail) = std::mem::take(&mut rest.1).split_at_mut((token - rest.0) * width);
            let (row, tail) = tail.split_at_mut(width);
            rest = (token + 1, tail);
            row
        })
    });
    for (row, place) in rows.zip(places) {
        for (&value, place) in row.as_chunks::<4>().0.iter().zip(place) {
            *place = f32::from_ne_bytes(value);
        }
    }
}

/// Record, log-sum-exps and rows in the payload, the bytes of the first two in the header.
impl Message for AttendedShard {
    const KIND: &'static str = "attended rows";

    fn byte_len(&self) -> u64 {
        (self.lse.bytes().len() + self.out.bytes().len()) as u64
    }

    fn header(&self) -> Vec<u64> {
        vec![self.record.to_bytes().len() as u64, self.lse.bytes().len() as u64]
    }

    fn payload(&self) -> Payload {
        let record = Arc::new(self.record.to_bytes());
        Payload::new(vec![record, Arc::clone(&self.lse), Arc::clone(&self.out)])
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        let &[record, lse] = header else {
            return Err(MessageError::Header { kind, expected: 2, actual: header.len() });
        };
        let actual = payload.len() as u64;
        let damaged = MessageError::Payload { kind, expected: record.saturating_add(lse), actual };
        let (record, lse, end) = (record as usize, lse as usize, payload.len());
        let words = payload.get(..record).and_then(RankRecord::from_bytes);
        let found = words.ok_or_else(|| damaged.clone())?;
        let whole: Arc<dyn Source> = Arc::new(payload);
        let part = |range| {
            Part::new(Arc::clone(&whole), range).map(Arc::new).ok_or_else(|| damaged.clone())
        };
        let rows = record.saturating_add(lse);
        Ok(Self { record: found, lse: part(record..rows)?, out: part(rows..end)? })
    }
}
