//! Rows become columns, a few rows at a time. Knows no tensor.

use pulp::Simd;

/// Rows that are turned together.
pub(crate) const TURNED: usize = 8;

/// Writes each of `rows`, of the same length, as a column: element `c` of row `r` to `c * line + r`.
#[inline(always)]
pub(crate) fn turn<S: Simd>(_: S, rows: &[&[f32]], to: &mut [f32], line: usize) {
    #[cfg(target_arch = "x86_64")]
    let done = match rows.try_into() {
        // SAFETY: on this architecture sets of so many lanes have AVX.
        Ok(rows) if S::F32_LANES >= TURNED => unsafe { avx::turn(rows, to, line) },
        _ => 0,
    };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    for (column, to) in to.chunks_mut(line).enumerate().skip(done) {
        for (row, to) in rows.iter().zip(to) {
            *to = row[column];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx {
    use super::TURNED;
    use std::arch::x86_64::{
        __m256, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_setzero_ps, _mm256_shuffle_ps,
        _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };

    /// Turns whole squares, and says how many columns those are.
    ///
    /// # Safety
    /// The processor must have AVX.
    #[inline(always)]
    pub(super) unsafe fn turn(rows: &[&[f32]; TURNED], to: &mut [f32], line: usize) -> usize {
        let columns = rows[0].len() / TURNED * TURNED;
        assert!(rows.iter().all(|row| row.len() >= columns) && line >= TURNED);
        assert!(columns == 0 || to.len() >= (columns - 1) * line + TURNED);
        for first in (0..columns).step_by(TURNED) {
            // SAFETY: the caller vouches for AVX; rows are read below `first + TURNED <= columns`, and
            // written are TURNED floats from `column * line` on for a column of those, which lie
            // inside by the asserts.
            unsafe {
                let mut square = [_mm256_setzero_ps(); TURNED];
                for (row, vector) in rows.iter().zip(&mut square) {
                    *vector = _mm256_loadu_ps(row.as_ptr().add(first));
                }
                for (column, vector) in turned(square).into_iter().enumerate() {
                    _mm256_storeu_ps(to.as_mut_ptr().add((first + column) * line), vector);
                }
            }
        }
        columns
    }

    /// The columns of a square: pairs of rows are interleaved, then pairs of pairs, then halves.
    ///
    /// # Safety
    /// The processor must have AVX.
    #[inline(always)]
    unsafe fn turned(rows: [__m256; TURNED]) -> [__m256; TURNED] {
        // SAFETY: the caller vouches for AVX.
        unsafe {
            let mut quads = rows;
            for half in [0, 4] {
                let [a, b, c, d] = [rows[half], rows[half + 1], rows[half + 2], rows[half + 3]];
                let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                quads[half] = _mm256_shuffle_ps::<0x44>(ab, cd);
                quads[half + 1] = _mm256_shuffle_ps::<0xee>(ab, cd);
                let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                quads[half + 2] = _mm256_shuffle_ps::<0x44>(ab, cd);
                quads[half + 3] = _mm256_shuffle_ps::<0xee>(ab, cd);
            }
            let mut columns = rows;
            for column in 0..4 {
                let (upper, lower) = (quads[column], quads[column + 4]);
                columns[column] = _mm256_permute2f128_ps::<0x20>(upper, lower);
                columns[column + 4] = _mm256_permute2f128_ps::<0x31>(upper, lower);
            }
            columns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use pulp::WithSimd;

    struct Turn<'a>(&'a [&'a [f32]], &'a mut [f32], usize);

    impl WithSimd for Turn<'_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            turn(simd, self.0, self.1, self.2);
        }
    }

    #[test]
    fn every_element_finds_its_place_and_nothing_else_changes() {
        for isa in Isa::available() {
            for (rows, columns, line) in [(8, 64, 32), (8, 13, 8), (8, 7, 9), (2, 16, 2), (1, 3, 4)]
            {
                let numbers: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
                let from: Vec<_> = numbers.chunks(columns).collect();
                let mut to = vec![-1.0; (columns - 1) * line + rows];
                isa.run(Turn(&from, &mut to, line)).unwrap();
                for (at, &value) in to.iter().enumerate() {
                    let (column, row) = (at / line, at % line);
                    let expected = if row < rows { from[row][column] } else { -1.0 };
                    assert_eq!(value, expected, "{isa} {rows} {columns} {line} {at}");
                }
            }
        }
    }
}
