//! What ranks tell each other beside attention: projections of new tokens, rows of the residual stream,
//! and the next token.

use ringattn_core::{Elements, Message, MessageError, Payload};
use std::sync::Arc;

/// Q, K, V of new tokens, `[rows, Hq * d]` and twice `[rows, Hk * d]`; a clone is a second handle.
#[derive(Clone, Debug)]
pub(super) struct Projections {
    pub(super) q: Arc<Elements>,
    pub(super) k: Arc<Vec<f32>>,
    pub(super) v: Arc<Vec<f32>>,
}

impl Message for Projections {
    const KIND: &'static str = "projections";

    fn byte_len(&self) -> u64 {
        (self.q.bytes().len() + 4 * (self.k.len() + self.v.len())) as u64
    }

    fn header(&self) -> Vec<u64> {
        vec![self.q.view().len() as u64, self.k.len() as u64, self.v.len() as u64]
    }

    fn payload(&self) -> Payload {
        let parts = [self.q.bytes(), bytemuck::cast_slice(&self.k), bytemuck::cast_slice(&self.v)];
        parts.concat().into()
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        let &[q, k, v] = header else {
            return Err(MessageError::Header { kind, expected: 3, actual: header.len() });
        };
        let floats = floats(kind, q.saturating_add(k).saturating_add(v), &payload)?;
        let (q, rest) = floats.split_at(q as usize);
        let (k, v) = rest.split_at(k as usize);
        let q = Arc::new(Elements::F32(q.to_vec()));
        Ok(Self { q, k: Arc::new(k.to_vec()), v: Arc::new(v.to_vec()) })
    }
}

/// Rows of the residual stream, `[rows, H]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HiddenRows(pub(super) Vec<f32>);

impl Message for HiddenRows {
    const KIND: &'static str = "hidden rows";

    fn byte_len(&self) -> u64 {
        4 * self.0.len() as u64
    }

    fn header(&self) -> Vec<u64> {
        vec![self.0.len() as u64]
    }

    fn payload(&self) -> Payload {
        bytemuck::cast_slice::<f32, u8>(&self.0).to_vec().into()
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        let &[len] = header else {
            return Err(MessageError::Header { kind, expected: 1, actual: header.len() });
        };
        Ok(Self(floats(kind, len, &payload)?))
    }
}

/// Whether ranks go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// With this token.
    Token(u32),
    /// No further.
    End,
}

impl Message for Next {
    const KIND: &'static str = "next token";

    fn byte_len(&self) -> u64 {
        0
    }

    fn header(&self) -> Vec<u64> {
        match *self {
            Self::Token(token) => vec![u64::from(token)],
            Self::End => vec![u64::MAX],
        }
    }

    fn payload(&self) -> Payload {
        Payload::default()
    }

    fn from_payload(header: &[u64], _: Vec<u8>) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        match *header {
            [u64::MAX] => Ok(Self::End),
            [token] => u32::try_from(token).map(Self::Token).map_err(|_| MessageError::Field {
                kind,
                field: "token",
                value: token,
            }),
            _ => Err(MessageError::Header { kind, expected: 1, actual: header.len() }),
        }
    }
}

/// `len` floats.
fn floats(kind: &'static str, len: u64, payload: &[u8]) -> Result<Vec<f32>, MessageError> {
    let (expected, actual) = (len.saturating_mul(4), payload.len() as u64);
    if expected != actual {
        return Err(MessageError::Payload { kind, expected, actual });
    }
    Ok(bytemuck::pod_collect_to_vec(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_is_what_was_sent() {
        let sent = Projections {
            q: Arc::new(Elements::F32(vec![1.0, 2.0, 3.0, 4.0])),
            k: Arc::new(vec![5.0, 6.0]),
            v: Arc::new(vec![7.0, 8.0]),
        };
        let arrived = Projections::from_payload(&sent.header(), sent.payload().to_vec()).unwrap();
        assert_eq!((&arrived.q, &arrived.k, &arrived.v), (&sent.q, &sent.k, &sent.v));
        assert_eq!(sent.byte_len(), 32);
        assert!(Projections::from_payload(&[4, 2, u64::MAX], sent.payload().to_vec()).is_err());
        let rows = HiddenRows(vec![0.5, -1.0]);
        assert_eq!(
            HiddenRows::from_payload(&rows.header(), rows.payload().to_vec()),
            Ok(rows.clone())
        );
        assert!(HiddenRows::from_payload(&[3], rows.payload().to_vec()).is_err());
        for next in [Next::Token(0), Next::Token(u32::MAX), Next::End] {
            assert_eq!(Next::from_payload(&next.header(), next.payload().to_vec()), Ok(next));
        }
        assert!(
            Next::from_payload(&[1 << 40], Vec::new()).is_err()
                && Next::from_payload(&[], Vec::new()).is_err()
        );
    }
}
