//! `out_i = sum_j softmax_j(scale * q_i.k_j) v_j` over the slots that row `i` sees, in f64.
//!
//! No blocks, no online softmax, no code shared with the kernel.

use ringattn_core::{AttentionShape, Interval, Slot};

/// What dense attention gives for some query rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// `[rows, Hq, d]`; 0 for rows that see nothing.
    pub out: Vec<f64>,
    /// Natural log of the sum of `exp(logit)`, `[Hq, rows]`; `-inf` for rows that see nothing.
    pub lse: Vec<f64>,
    /// The largest magnitude of a visible logit after scaling; 0 when there is none.
    pub largest_logit: f64,
    /// The largest magnitude of an element of `v`; 0 when there is none.
    pub largest_value: f64,
}

/// Dense attention of `q` `[rows, Hq, d]` over `k` and `v` `[keys, Hk, d]`; row `i` sees
/// `intervals[i]`.
pub fn attention<T: Copy + Into<f64>>(
    (q, k, v): (&[T], &[T], &[T]),
    intervals: &[Interval<Slot>],
    shape: AttentionShape,
    scale: f64,
) -> Dense {
    let (rows, heads, d) = (intervals.len(), shape.query_heads(), shape.head_dim());
    let mut dense = Dense {
        out: vec![0.0; rows * heads * d],
        lse: vec![f64::NEG_INFINITY; heads * rows],
        largest_logit: 0.0,
        largest_value: v.iter().fold(0.0, |max, &x| f64::max(max, x.into().abs())),
    };
    for head in 0..heads {
        for (row, seen) in intervals.iter().enumerate().filter(|(_, seen)| !seen.is_empty()) {
            let query = &q[(row * heads + head) * d..][..d];
            let key_at = |slot: Slot| (slot.index() * shape.key_heads() + head / shape.group()) * d;
            let dot = |slot| -> f64 {
                let key = &k[key_at(slot)..][..d];
                query.iter().zip(key).map(|(&a, &b)| a.into() * b.into()).sum()
            };
            let logits: Vec<f64> = seen.iter().map(|slot| scale * dot(slot)).collect();
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|s| (s - max).exp()).sum();
            dense.lse[head * rows + row] = max + sum.ln();
            let largest = logits.iter().fold(0.0, |max, s| f64::max(max, s.abs()));
            dense.largest_logit = dense.largest_logit.max(largest);
            for (slot, logit) in seen.iter().zip(&logits) {
                let weight = (logit - max).exp() / sum;
                for x in 0..d {
                    let value: f64 = v[key_at(slot) + x].into();
                    dense.out[(row * heads + head) * d + x] += weight * value;
                }
            }
        }
    }
    dense
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_computed_case() {
        let shape = AttentionShape::new(1, 1, 1).unwrap();
        let seen = [Interval::from_len(2), Interval::empty()];
        // Logits ln 1 and ln 3: weights 1/4 and 3/4.
        let k = [0.0, 3.0_f64.ln()];
        let dense = attention((&[1.0, 1.0], &k, &[4.0, 8.0]), &seen, shape, 1.0);
        assert!((dense.out[0] - 7.0).abs() < 1e-12 && dense.out[1] == 0.0);
        assert!((dense.lse[0] - 4.0_f64.ln()).abs() < 1e-12);
        assert_eq!(dense.lse[1], f64::NEG_INFINITY);
    }
}
