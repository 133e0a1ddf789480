//! Partial states on their way from rank to rank: `m`, `z`, `y` as f32, in this order.

use crate::{AttentionShape, Log2, Message, MessageError, Partial, Payload};

impl Message for Partial {
    const KIND: &'static str = "partial state";

    /// `4 Hq (d + 2)` bytes per query row.
    fn byte_len(&self) -> u64 {
        4 * (self.m.len() + self.z.len() + self.y.len()) as u64
    }

    fn header(&self) -> Vec<u64> {
        let shape = self.shape();
        [self.rows(), shape.query_heads(), shape.key_heads(), shape.head_dim()]
            .map(|number| number as u64)
            .to_vec()
    }

    fn payload(&self) -> Payload {
        let mut bytes = Vec::with_capacity(self.byte_len() as usize);
        self.m.iter().for_each(|m| bytes.extend_from_slice(&m.0.to_ne_bytes()));
        bytes.extend_from_slice(bytemuck::cast_slice(&self.z));
        bytes.extend_from_slice(bytemuck::cast_slice(&self.y));
        bytes.into()
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let kind = Self::KIND;
        let &[rows, query_heads, key_heads, head_dim] = header else {
            return Err(MessageError::Header { kind, expected: 4, actual: header.len() });
        };
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let shape =
            AttentionShape::new(number(query_heads), number(key_heads), number(head_dim)).map_err(
                |_| MessageError::Field { kind, field: "number of heads", value: query_heads },
            )?;
        let cells = rows.saturating_mul(query_heads);
        let expected = cells.saturating_mul(head_dim.saturating_add(2)).saturating_mul(4);
        let actual = payload.len() as u64;
        if actual != expected {
            return Err(MessageError::Payload { kind, expected, actual });
        }
        let (m, rest) = payload.split_at(4 * cells as usize);
        let (z, y) = rest.split_at(4 * cells as usize);
        let floats = bytemuck::pod_collect_to_vec::<u8, f32>;
        let m = floats(m).into_iter().map(Log2).collect();
        Ok(Self::from_parts((shape, rows as usize), m, floats(z), floats(y)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Partial {
        let shape = AttentionShape::new(4, 2, 3).unwrap();
        let mut state = Partial::identity(shape, 2).unwrap();
        state.m.iter_mut().zip(0_u8..).for_each(|(m, i)| m.0 = f32::from(i));
        state.z.iter_mut().zip(20_u8..).for_each(|(z, i)| *z = f32::from(i));
        state.y.iter_mut().zip(100_u8..).for_each(|(y, i)| *y = f32::from(i));
        state
    }

    #[test]
    fn what_arrives_is_what_was_sent() {
        let shape = AttentionShape::new(4, 2, 3).unwrap();
        for sent in
            [state(), Partial::identity(shape, 1).unwrap(), Partial::identity(shape, 0).unwrap()]
        {
            assert_eq!(sent.byte_len(), sent.rows() as u64 * 4 * 5 * 4);
            let payload = sent.payload().to_vec();
            assert_eq!(payload.len() as u64, sent.byte_len());
            assert_eq!(Partial::from_payload(&sent.header(), payload).unwrap(), sent);
        }
    }

    #[test]
    fn damaged_messages_are_refused() {
        let (header, payload) = (state().header(), state().payload().to_vec());
        for (header, payload, expected) in [
            (&header[..3], &payload[..], "header of 3 fields, expected 4"),
            (&header, &payload[1..], "payload of 159 bytes, header announces 160"),
            (&[2, 5, 2, 3], &payload, "unknown number of heads 5"),
            (&[1 << 62, 4, 2, 3], &payload, "header announces 18446744073709551615"),
        ] {
            let error = Partial::from_payload(header, payload.to_vec()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
