//! Dense rows of one token, the shape of decoding: one row times the weights of layer after layer, which
//! lie in main memory.
//!
//! A run reads every packed weight once. A layer is four products, each of the matrices that meet the same
//! input, one below the other: Q, K and V; the output projection; gate and up; down. Threads share out the
//! out features of a product, as a decoder's do. All layers hold the same numbers, each in memory of its
//! own, which is several times what the last caches hold.

use super::BenchError;
use super::case::Case;
use super::inputs::Inputs;
use ringattn_core::try_filled;
use ringattn_engine::cpu::dense::{
    Columns, PANEL_STEP, PackedMatrix, StagedRows, Workspace, Write,
};
use ringattn_engine::cpu::{BusyTime, Isa, KernelError, Pinning, Team};
use std::hint::black_box;
use std::sync::Arc;

/// Pieces of a product for each thread, as many as a decoder makes.
const PIECES: usize = 3;

/// The packed products of a layer, in the order of their use.
pub(super) type Layer = [PackedMatrix; 4];

/// A row that is ready to run.
pub(super) struct Narrow {
    team: Team,
    layers: Vec<Arc<Layer>>,
    /// As long as the longest input.
    x: Vec<f32>,
    /// As long as the longest product.
    y: Vec<f32>,
    staged: StagedRows,
    /// One for each piece of a product.
    workspaces: Vec<Workspace>,
}

impl Narrow {
    pub(super) fn new(case: &Case, isa: Isa, inputs: &mut Inputs) -> Result<Self, BenchError> {
        let layers = inputs.layers(case, isa)?;
        let longest = |of: fn(&PackedMatrix) -> usize| {
            layers.iter().flat_map(|layer| layer.iter().map(of)).max().unwrap_or_default()
        };
        let x = inputs.numbers(longest(PackedMatrix::cols), 5)?;
        let y = try_filled(longest(PackedMatrix::rows), 0.0)?;
        let team = Team::new(case.threads, Pinning::Free).map_err(KernelError::from)?;
        let workspaces = (0..PIECES * case.threads).map(|_| Workspace::default()).collect();
        Ok(Self { team, layers, x, y, staged: StagedRows::default(), workspaces })
    }

    /// Bytes of packed weights that a run reads.
    pub(super) fn bytes(&self) -> u64 {
        self.layers.iter().flat_map(|layer| layer.iter()).map(PackedMatrix::byte_len).sum()
    }

    pub(super) fn run(&mut self) -> Result<(), BenchError> {
        for matrix in self.layers.iter().flat_map(|layer| layer.iter()) {
            let x = self.staged.stage(&self.x[..matrix.cols()], matrix.cols())?;
            let panels = matrix.rows().div_ceil(PANEL_STEP);
            let len = panels.div_ceil(self.workspaces.len()) * PANEL_STEP;
            let pieces = self.y[..matrix.rows()].chunks_mut(len).zip(&mut self.workspaces);
            let pieces = pieces.enumerate().collect();
            self.team.each(pieces, &BusyTime::default(), |(index, (data, workspace))| {
                let (first, width) = (index * len, data.len());
                let target = (Columns { data, width, first: 0 }, Write::Replace);
                matrix.multiply(first..first + width, x, target, workspace)
            })?;
        }
        black_box(&self.y);
        Ok(())
    }
}

/// The sizes `(out, in)` of a layer's products for the model that `case` stands for.
pub(super) fn shapes(case: &Case) -> [(usize, usize); 4] {
    let (width, kv_width) = (case.query_heads * case.head_dim, case.kv_heads * case.head_dim);
    let wide = case.wide();
    [(width + 2 * kv_width, width), (width, width), (2 * wide, width), (width, wide)]
}

#[cfg(test)]
mod tests {
    use super::super::BenchSize;
    use super::super::case::cases;
    use super::*;
    use crate::bench::Stored;

    #[test]
    fn a_run_reads_more_than_the_caches_hold() {
        for size in [BenchSize::Quick, BenchSize::Full] {
            let mut rows = cases(size, 2, 1).into_iter().filter(Case::reads_weights);
            // That of codes of 4 bits has the most copies.
            let case = rows.find(|case| case.dtype.to_string() == "q4").unwrap();
            let mut inputs = Inputs::new(size);
            let row = Narrow::new(&case, Isa::detect(), &mut inputs).unwrap();
            assert!(row.bytes() >= 128 << 20, "{} bytes", row.bytes());
            // The next row of these weights shares them.
            let other = Narrow::new(&Case { threads: 2, ..case }, Isa::detect(), &mut inputs);
            assert!(Arc::ptr_eq(&row.layers[0], &other.unwrap().layers[0]));
        }
    }

    #[test]
    fn a_layer_holds_the_weights_of_the_model() {
        for case in cases(BenchSize::Smallest, 2, 1).into_iter().filter(Case::reads_weights) {
            let row = Narrow::new(&case, Isa::detect(), &mut Inputs::new(BenchSize::Smallest));
            // Q, K, V and O; gate, up and down of SmolLM2-135M.
            let weights = 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536;
            // Eighths of a byte: of codes, and the two factors of a block of 32.
            let eighths = match case.dtype {
                Stored::Plain(dtype) => 8 * dtype.size(),
                Stored::Quantised(_) if case.dtype.to_string() == "q8" => 9,
                Stored::Quantised(_) => 5,
            };
            assert_eq!(row.unwrap().bytes(), weights * eighths / 8, "{case}");
        }
    }

    #[test]
    fn threads_change_no_bit_of_the_product() {
        for case in cases(BenchSize::Smallest, 1, 1).into_iter().filter(Case::reads_weights) {
            let [one, three] = [1, 3].map(|threads| {
                let mut inputs = Inputs::new(BenchSize::Smallest);
                let case = Case { threads, ..case.clone() };
                let mut row = Narrow::new(&case, Isa::detect(), &mut inputs).unwrap();
                row.run().unwrap();
                row.y
            });
            assert!(one == three && one.iter().all(|y| y.abs() > 0.0), "{case}");
        }
    }
}
