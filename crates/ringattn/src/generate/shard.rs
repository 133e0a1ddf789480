//! What one rank of a generation brings home.

use crate::report::RankRecord;
use ringattn_core::{Message, MessageError, Payload};
use ringattn_model::{Finish, RankGeneration, TokenScore};
use ringattn_plan::{Expectation, Layout};
use std::time::Duration;

/// The counts of a rank, and on rank 0 the text.
pub(super) struct GeneratedShard {
    /// Prompt and decoding together.
    pub(super) record: RankRecord,
    /// Decoding alone.
    pub(super) decode: RankRecord,
    /// Bytes of keys and values of all layers in the end.
    pub(super) cache_bytes: u64,
    /// What rank 0 tells of; `None` of a rank in another process.
    pub(super) story: Option<Story>,
}

/// The text, and how it came about.
pub(super) struct Story {
    pub(super) layout: Layout,
    pub(super) prefill_time: Duration,
    pub(super) first_token_time: Option<Duration>,
    pub(super) decode_time: Duration,
    pub(super) decode_steps: usize,
    pub(super) generated: Vec<TokenScore>,
    pub(super) finish: Finish,
}

impl GeneratedShard {
    /// What `rank` has done, whose record has its times and no counts yet.
    pub(super) fn new(rank: RankGeneration, record: RankRecord) -> Self {
        let all = match rank.decode_steps {
            0 => rank.prefill,
            _ => rank.prefill.then(rank.decode),
        };
        let decode = RankRecord { measured: rank.decode.measured, ..RankRecord::default() };
        let story = Story {
            layout: rank.layout,
            prefill_time: rank.prefill_time,
            first_token_time: rank.first_token_time,
            decode_time: rank.decode_time,
            decode_steps: rank.decode_steps,
            generated: rank.generated,
            finish: rank.finish,
        };
        Self {
            record: RankRecord { measured: all.measured, expected: all.expected, ..record },
            decode,
            cache_bytes: rank.cache_bytes,
            story: Some(story),
        }
    }

    /// What decoding counted.
    pub(super) fn decoded(&self) -> &Expectation {
        &self.decode.measured.counts
    }
}

/// Both records in the payload, the bytes of the first and those of the cache in the header.
impl Message for GeneratedShard {
    const KIND: &'static str = "counts of a generation";

    fn byte_len(&self) -> u64 {
        0
    }

    fn header(&self) -> Vec<u64> {
        vec![self.record.to_bytes().len() as u64, self.cache_bytes]
    }

    fn payload(&self) -> Payload {
        [self.record.to_bytes(), self.decode.to_bytes()].concat().into()
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        let &[expected, cache_bytes] = header else {
            return Err(MessageError::Header { kind, expected: 2, actual: header.len() });
        };
        let actual = payload.len() as u64;
        let parts = payload.split_at_checked(usize::try_from(expected).unwrap_or(usize::MAX));
        let records = parts.and_then(|(record, decode)| {
            Some((RankRecord::from_bytes(record)?, RankRecord::from_bytes(decode)?))
        });
        let (record, decode) = records.ok_or(MessageError::Payload { kind, expected, actual })?;
        Ok(Self { record, decode, cache_bytes, story: None })
    }
}
