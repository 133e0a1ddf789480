//! Rotary position embedding by global position (RoPE, 2104.09864), pairs `(i, i + d/2)`.
//!
//! `x_i' = x_i cos(t f_i) - x_j sin(t f_i)`, `x_j' = x_j cos(t f_i) + x_i sin(t f_i)` with `j = i + d/2`
//! at position `t`. Frequencies and angles `t f_i` are rounded to f32, as in the training and reference
//! code of these models: angles exact to f64 move log-probabilities by 3e-4 after 2048 tokens.

use ringattn_core::{OutOfMemory, Position, try_reserved};

/// Cosines and sines of a rank's positions.
pub(crate) struct RotaryTable {
    /// Pairs of one head, `d / 2`.
    half: usize,
    /// `[rows, d/2]` pairs of (cosine, sine).
    turns: Vec<(f32, f32)>,
}

impl RotaryTable {
    /// The table for these positions, `rows` of them.
    pub(crate) fn new(
        positions: impl Iterator<Item = Position>,
        rows: usize,
        inverse_frequencies: &[f64],
    ) -> Result<Self, OutOfMemory> {
        let turn = |position: Position, frequency: &f64| {
            let angle = (position.0 as f64 * f64::from(*frequency as f32)) as f32;
            let (sine, cosine) = f64::from(angle).sin_cos();
            (cosine as f32, sine as f32)
        };
        let half = inverse_frequencies.len();
        let mut turns = try_reserved(rows.saturating_mul(half))?;
        for position in positions {
            turns.extend(inverse_frequencies.iter().map(|f| turn(position, f)));
        }
        Ok(Self { half, turns })
    }

    /// Turns every head of rows `first ..` in `x`, `[rows, width]` with heads of `d` elements.
    pub(crate) fn apply(&self, first: usize, x: &mut [f32], width: usize) {
        for (row, x) in (first..).zip(x.chunks_exact_mut(width)) {
            let turns = &self.turns[row * self.half..(row + 1) * self.half];
            for head in x.chunks_exact_mut(2 * self.half) {
                let (low, high) = head.split_at_mut(self.half);
                for ((a, b), &(cosine, sine)) in low.iter_mut().zip(high).zip(turns) {
                    (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_by_the_global_position() {
        let table =
            RotaryTable::new([Position(0), Position(3)].into_iter(), 2, &[1.0, 0.5]).unwrap();
        let mut x = [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0];
        table.apply(0, &mut x, 4);
        assert_eq!(x[..4], [1.0, 2.0, 3.0, 4.0]);
        let (s, c) = 3.0_f64.sin_cos();
        assert!((f64::from(x[4]) - (c - 3.0 * s)).abs() < 1e-6);
        assert!((f64::from(x[6]) - (3.0 * c + s)).abs() < 1e-6);
        let (s, c) = 1.5_f64.sin_cos();
        assert!((f64::from(x[5]) - (2.0 * c - 4.0 * s)).abs() < 1e-6);
    }
}
