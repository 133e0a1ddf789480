//! Dense rows of several tokens: `y = x W^T` with packed weights, as a model's layers multiply.

use super::BenchError;
use super::case::Case;
use super::inputs::Inputs;
use ringattn_core::try_filled;
use ringattn_engine::cpu::Isa;
use ringattn_engine::cpu::dense::{Columns, PackedMatrix, StagedRows, Workspace, Write};
use std::hint::black_box;

/// A row that is ready to run.
pub(super) struct Dense {
    weights: PackedMatrix,
    /// `[tokens, in]`.
    x: Vec<f32>,
    /// `[tokens, out]`.
    y: Vec<f32>,
    staged: StagedRows,
    workspace: Workspace,
}

impl Dense {
    pub(super) fn new(case: &Case, isa: Isa, inputs: &mut Inputs) -> Result<Self, BenchError> {
        let (tokens, width) = (case.tokens as usize, case.query_heads * case.head_dim);
        let wide = case.wide();
        let weights = inputs.weights(isa, (wide, width), case.dtype)?;
        let x = inputs.numbers(tokens * width, 5)?;
        let y = try_filled(tokens * wide, 0.0)?;
        let (staged, workspace) = (StagedRows::default(), Workspace::default());
        Ok(Self { weights, x, y, staged, workspace })
    }

    /// Multiply-adds of a run.
    pub(super) fn products(&self) -> u64 {
        self.x.len() as u64 * self.weights.rows() as u64
    }

    pub(super) fn run(&mut self) -> Result<(), BenchError> {
        let width = self.weights.rows();
        let target = Columns { data: &mut self.y, width, first: 0 };
        let x = self.staged.stage(&self.x, self.weights.cols())?;
        self.weights.multiply(0..width, x, (target, Write::Replace), &mut self.workspace)?;
        black_box(&self.y);
        Ok(())
    }
}
