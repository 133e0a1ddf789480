//! Products of packed matrices against float64, and against each other to the bit.

use super::fixed::DIGITS;
use super::*;
use ringattn_core::Elements;

fn number(i: usize) -> f32 {
    ((i * 2_654_435_761) % 1009) as f32 / 505.0 - 1.0
}

#[test]
fn every_shape_agrees_with_float64() {
    for isa in Isa::available() {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for (n, out, cols) in [
                (0, 5, 7),
                (1, 1, 1),
                (1, 100, 321),
                (3, 33, 64),
                (5, 64, 1000),
                (12, 31, 320),
                (29, 96, 576),
                (40, 130, 2),
            ] {
                let w = Elements::from_f32((0..out * cols).map(number).collect(), dtype);
                let x: Vec<f32> = (0..n * cols).map(|i| number(i + 77)).collect();
                let read = |row: usize, to: &mut [f32]| widen(w.view(), row * cols, to);
                let packed = PackedMatrix::pack(isa, (out, cols), dtype, read).unwrap();
                let mut rows = StagedRows::default();
                let staged = rows.stage(&x, cols).unwrap();
                let mut y = vec![0.5; n * (out + 2)];
                for write in [Write::Replace, Write::Add] {
                    let target = Columns { data: &mut y, width: out + 2, first: 1 };
                    let mut workspace = Workspace::default();
                    packed.multiply(0..out, staged, (target, write), &mut workspace).unwrap();
                    for (at, &actual) in y.iter().enumerate() {
                        let (i, j) = (at / (out + 2), at % (out + 2));
                        if j == 0 || j > out {
                            assert_eq!(actual, 0.5);
                            continue;
                        }
                        let dot = |k| {
                            f64::from(x[i * cols + k]) * f64::from(w.view().get((j - 1) * cols + k))
                        };
                        let twice = if write == Write::Add { 2.0 } else { 1.0 };
                        let exact = twice * (0..cols).map(dot).sum::<f64>();
                        // A partial sum never exceeds the sum of magnitudes; each of the
                        // `cols` additions, and the last one, rounds it once.
                        let size: f64 = (0..cols).map(|k| dot(k).abs()).sum();
                        let unit = f64::from(f32::EPSILON) / 2.0;
                        let bound = twice * (cols as f64 + 2.0) * unit * size;
                        assert!((f64::from(actual) - exact).abs() <= bound, "{isa} {dtype}");
                    }
                }
                let mut row = vec![0.0; cols];
                packed.row(out - 1, &mut row).unwrap();
                assert!((0..cols).all(|k| row[k] == w.view().get((out - 1) * cols + k)));
            }
        }
    }
}

/// Codes, scales and offsets of a matrix, by row and column or block.
const CODES: [Codes; 3] =
    [Codes::Bytes, Codes::Nibbles { lowest: 0 }, Codes::Nibbles { lowest: -8 }];

fn code(codes: Codes, row: usize, k: usize) -> i8 {
    let count = if codes == Codes::Bytes { 256 } else { 16 };
    (codes.lowest() + ((row * 31 + k * 7) % count) as i16) as i8
}

fn factor_pair(row: usize, block: usize) -> [f16; 2] {
    [number(row + 3 * block) / 64.0, number(5 * row + block)].map(f16::from_f32)
}

fn quantised(isa: Isa, (rows, cols): (usize, usize), codes: Codes) -> PackedMatrix {
    let packed = PackedMatrix::pack_quantised(isa, (rows, cols), codes, |row, to| {
        to.codes.iter_mut().enumerate().for_each(|(k, to)| *to = code(codes, row, k));
        for block in 0..cols / BLOCK {
            [to.scales[block], to.offsets[block]] = factor_pair(row, block);
        }
    });
    packed.unwrap()
}

fn product(matrix: &PackedMatrix, x: &[f32], y: f32) -> Vec<f32> {
    let mut staged = StagedRows::default();
    let x = staged.stage(x, matrix.cols()).unwrap();
    let mut data = vec![y; x.rows() * matrix.rows()];
    let target = Columns { data: &mut data, width: matrix.rows(), first: 0 };
    let (out, workspace) = (0..matrix.rows(), &mut Workspace::default());
    matrix.multiply(out, x, (target, Write::Add), workspace).unwrap();
    data
}

#[test]
fn quantised_weights_are_their_widened_selves_to_the_last_bit() {
    for (isa, codes) in Isa::available().into_iter().flat_map(|isa| CODES.map(|c| (isa, c))) {
        for (n, out, cols) in [(2, 100, 320), (3, 33, 64), (29, 64, 32), (2, 131, 992)] {
            let packed = quantised(isa, (out, cols), codes);
            let value = |row: usize, k: usize| {
                let [scale, offset] = factor_pair(row, k / BLOCK).map(f16::to_f32);
                f32::from(code(codes, row, k)) * scale + offset
            };
            let read = |row: usize, to: &mut [f32]| {
                to.iter_mut().enumerate().for_each(|(k, to)| *to = value(row, k));
            };
            let plain = PackedMatrix::pack(isa, (out, cols), DType::F32, read).unwrap();
            let x: Vec<f32> = (0..n * cols).map(|i| number(i + 9)).collect();
            assert_eq!(product(&packed, &x, 0.25), product(&plain, &x, 0.25), "{isa} {codes:?}");
            let (mut row, mut widened) = (vec![0.0; cols], vec![0.0; cols]);
            for index in [0, out / 2, out - 1] {
                packed.row(index, &mut row).unwrap();
                plain.row(index, &mut widened).unwrap();
                assert_eq!(row, widened);
            }
            // Rows are padded to whole panels.
            let bits = if codes == Codes::Bytes { 9 } else { 5 };
            assert!(packed.byte_len() >= (out * cols * bits / 8) as u64);
        }
    }
}

#[test]
fn a_single_row_times_quantised_weights_agrees_with_float64_and_everywhere() {
    for (out, cols) in [(1, 32), (100, 320), (131, 992), (64, 1536)] {
        for (codes, size) in CODES.into_iter().flat_map(|c| [1e-12, 1.0, 1e12].map(|s| (c, s))) {
            // A few elements far above the others, as rows of models have them.
            let far = |k: usize| if k % 97 == 5 { 300.0 } else { 1.0 };
            let x: Vec<f32> = (0..cols).map(|k| number(k + 9) * far(k) * size).collect();
            let products = Isa::available().into_iter().filter(|isa| isa.has_dots());
            let products: Vec<_> = products
                .map(|isa| (isa, product(&quantised(isa, (out, cols), codes), &x, 0.0)))
                .collect();
            // The scalar path rounds products, too.
            let fused = products.iter().filter(|(isa, _)| *isa != Isa::Scalar);
            let mut fused = fused.map(|(_, product)| product);
            let first = fused.next();
            assert!(fused.all(|product| Some(product) == first), "{codes:?}");
            for (isa, row, actual) in products.iter().flat_map(|(isa, product)| {
                product.iter().enumerate().map(move |(row, &y)| (isa, row, y))
            }) {
                let (mut exact, mut bound) = (0.0, 0.0);
                for (block, x) in x.chunks(BLOCK).enumerate() {
                    let [scale, offset] = factor_pair(row, block).map(f16::to_f64);
                    let largest = x.iter().fold(0.0_f64, |most, x| most.max(f64::from(x.abs())));
                    for (k, &x) in (block * BLOCK..).zip(x) {
                        let term = f64::from(code(codes, row, k)) * scale + offset;
                        exact += term * f64::from(x);
                        // `x` loses half a unit at most; about the middle of the codes both terms
                        // are rounded twice for each addition.
                        let middle = (term - offset).abs() + scale.abs() * 128.0 + offset.abs();
                        bound += term.abs() * largest / f64::from(1 << 26);
                        bound += middle * f64::from(x.abs()) * f64::from(f32::EPSILON) / 2.0
                            * (2 * (cols / BLOCK + DIGITS + 4)) as f64;
                    }
                }
                let error = (f64::from(actual) - exact).abs();
                assert!(error <= bound, "{isa} {codes:?} {out} x {cols}: {error:e} {bound:e}");
            }
        }
    }
}

#[test]
fn a_single_row_with_no_number_gives_no_number() {
    for isa in Isa::available().into_iter().filter(|isa| isa.has_dots()) {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1.0; 96];
            x[40] = bad;
            let y = product(&quantised(isa, (33, 96), Codes::Bytes), &x, 0.0);
            assert!(y.iter().all(|y| y.is_nan()), "{isa} {bad}");
        }
    }
}

#[test]
fn rows_and_panels_of_a_call_change_no_bit() {
    let (n, out, cols) = (37, 200, 700);
    let read = |row: usize, to: &mut [f32]| {
        to.iter_mut().enumerate().for_each(|(k, x)| *x = number(row * cols + k));
    };
    let x: Vec<f32> = (0..n * cols).map(|i| number(i + 3)).collect();
    for isa in Isa::available() {
        let packed = PackedMatrix::pack(isa, (out, cols), DType::F32, read).unwrap();
        let mut workspace = Workspace::default();
        let mut product = |rows: Range<usize>, columns: Range<usize>| {
            let mut y = vec![0.0; rows.len() * columns.len()];
            let target = Columns { data: &mut y, width: columns.len(), first: 0 };
            let mut staged = StagedRows::default();
            let x = staged.stage(&x[rows.start * cols..rows.end * cols], cols).unwrap();
            packed.multiply(columns, x, (target, Write::Replace), &mut workspace).unwrap();
            y
        };
        let whole = product(0..n, 0..out);
        for row in 0..n {
            for (from, to) in [(0, 64), (64, 192), (192, out)] {
                let part = product(row..row + 1, from..to);
                assert_eq!(part, whole[row * out + from..row * out + to], "{isa} {row}");
            }
        }
    }
}

#[test]
fn rows_staged_before_leave_no_trace() {
    let mut staged = StagedRows::default();
    for (rows, cols) in [(30, 700), (1, 3), (13, 193), (0, 5), (29, 192)] {
        let x: Vec<f32> = (0..rows * cols).map(number).collect();
        let fresh = StagedRows::default().stage(&x, cols).map(|fresh| {
            let len = pieces(cols).len() * fresh.padded();
            (0..len).map(|row| fresh.piece(0, row, 1)[..1].to_vec()).collect::<Vec<_>>()
        });
        let again = staged.stage(&x, cols).map(|again| {
            let len = pieces(cols).len() * again.padded();
            (0..len).map(|row| again.piece(0, row, 1)[..1].to_vec()).collect::<Vec<_>>()
        });
        assert_eq!(again, fresh, "{rows} x {cols}");
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let isa = Isa::detect();
    let packed = PackedMatrix::pack(isa, (64, 4), DType::F32, |_, to| to.fill(1.0)).unwrap();
    let call = |out: Range<usize>, x: usize, y: usize, width: usize| {
        let (x, mut y) = (vec![0.0; x], vec![0.0; y]);
        let target = Columns { data: &mut y, width, first: 0 };
        let mut staged = StagedRows::default();
        let x = staged.stage(&x, 4)?;
        packed.multiply(out, x, (target, Write::Replace), &mut Workspace::default())
    };
    assert_eq!(call(0..64, 8, 128, 64), Ok(()));
    for (out, x, y, width) in [
        (0..64, 7, 128, 64),
        (0..64, 8, 127, 64),
        (0..64, 8, 126, 63),
        (1..64, 8, 128, 64),
        (0..63, 8, 128, 64),
        (0..96, 8, 192, 96),
    ] {
        assert!(call(out, x, y, width).is_err());
    }
    let mut staged = StagedRows::default();
    let (x, mut y) = (staged.stage(&[0.0; 10], 5).unwrap(), [0.0; 128]);
    let target = Columns { data: &mut y, width: 64, first: 0 };
    let product = packed.multiply(0..64, x, (target, Write::Replace), &mut Workspace::default());
    assert_eq!(product, size("columns of x", 4, 5));
    assert!(packed.row(64, &mut [0.0; 4]).is_err() && packed.row(0, &mut [0.0; 3]).is_err());
}
