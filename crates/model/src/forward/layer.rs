//! One decoder layer around its attention: what comes before, and what comes after.

use super::dense::linear;
use super::narrow::{self, Product};
use super::norm::{rms_norm, rms_norm_in_place};
use super::rotary::RotaryTable;
use super::workers::{Scratch, Workers, row_block};
use crate::config::ModelConfig;
use crate::weights::LayerWeights;
use ringattn_core::{Interrupted, OutOfMemory, Progress, try_filled};
use ringattn_engine::cpu::Isa;
use ringattn_engine::cpu::dense::{DenseError, StagedRows, Write};
use ringattn_engine::cpu::pointwise::silu_multiply;
use thiserror::Error;

/// Why the dense part of a layer could not be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DensePassError {
    /// Matrices that do not fit together.
    #[error(transparent)]
    Dense(#[from] DenseError),
    /// No memory for activations.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// Another rank or the user ended the run.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// What all layers of one rank's pass have in common.
pub(crate) struct LayerPass<'a> {
    pub(crate) config: &'a ModelConfig,
    pub(crate) rotary: &'a RotaryTable,
    pub(crate) workers: &'a Workers,
    pub(crate) isa: Isa,
    pub(crate) progress: &'a dyn Progress,
}

/// Q, K, V of a rank's tokens, `[rows, Hq * d]` and twice `[rows, Hk * d]`.
pub(crate) struct Projected {
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
}

/// A block of rows on its way to Q, K and V.
struct Projection<'a> {
    first: usize,
    hidden: &'a [f32],
    q: &'a mut [f32],
    k: &'a mut [f32],
    v: &'a mut [f32],
}

impl LayerPass<'_> {
    /// RMSNorm, Q, K, V, their norms per head, and RoPE, of `hidden` `[rows, H]`.
    pub(crate) fn project(
        &self,
        layer: &LayerWeights,
        hidden: &[f32],
    ) -> Result<Projected, DensePassError> {
        let (shape, width) = (self.config.attention, self.config.hidden_size);
        let rows = hidden.len() / width;
        let mut out = Projected {
            q: try_filled(rows * shape.query_width(), 0.0)?,
            k: try_filled(rows * shape.key_width(), 0.0)?,
            v: try_filled(rows * shape.key_width(), 0.0)?,
        };
        if rows <= narrow::ROWS {
            self.project_few(layer, hidden, &mut out)?;
            return Ok(out);
        }
        let block = row_block(rows);
        let blocks = hidden
            .chunks(block * width)
            .zip(out.q.chunks_mut(block * shape.query_width()))
            .zip(out.k.chunks_mut(block * shape.key_width()))
            .zip(out.v.chunks_mut(block * shape.key_width()))
            .enumerate()
            .map(|(index, (((hidden, q), k), v))| Projection {
                first: index * block,
                hidden,
                q,
                k,
                v,
            })
            .collect();
        self.workers.each(blocks, |block, scratch| self.project_block(layer, block, scratch))?;
        Ok(out)
    }

    fn project_block(
        &self,
        layer: &LayerWeights,
        block: Projection<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), DensePassError> {
        let eps = self.config.rms_norm_eps;
        let normed = Scratch::sized(&mut scratch.normed, block.hidden.len());
        rms_norm(block.hidden, &layer.attention_norm, eps, normed);
        let staged = scratch.staged.stage(normed, self.config.hidden_size)?;
        for (linear_layer, target) in
            [(&layer.q, &mut *block.q), (&layer.k, &mut *block.k), (&layer.v, &mut *block.v)]
        {
            linear(
                linear_layer,
                staged,
                (target, Write::Replace),
                (&mut scratch.dense, self.progress),
            )?;
        }
        self.turn(layer, block.first, (block.q, block.k));
        Ok(())
    }

    /// [`LayerPass::project`] of few rows.
    fn project_few(
        &self,
        layer: &LayerWeights,
        hidden: &[f32],
        out: &mut Projected,
    ) -> Result<(), DensePassError> {
        self.workers.with_scratch(|scratch| {
            let normed = Scratch::sized(&mut scratch.normed, hidden.len());
            rms_norm(hidden, &layer.attention_norm, self.config.rms_norm_eps, normed);
            let staged = scratch.staged.stage(normed, self.config.hidden_size)?;
            let write = Write::Replace;
            let mut products = [
                Product::of(&layer.q, &mut out.q, write),
                Product::of(&layer.k, &mut out.k, write),
                Product::of(&layer.v, &mut out.v, write),
            ];
            narrow::multiply(staged, &mut products, self.workers, self.progress)
        })?;
        self.turn(layer, 0, (&mut out.q, &mut out.k));
        Ok(())
    }

    /// The norms per head and RoPE, of rows `first ..`.
    fn turn(&self, layer: &LayerWeights, first: usize, (q, k): (&mut [f32], &mut [f32])) {
        for (norm, target) in [(&layer.q_norm, &mut *q), (&layer.k_norm, &mut *k)] {
            if let Some(norm) = norm {
                rms_norm_in_place(target, norm, self.config.rms_norm_eps);
            }
        }
        self.rotary.apply(first, q, self.config.attention.query_width());
        self.rotary.apply(first, k, self.config.attention.key_width());
    }

    /// Output projection and SwiGLU feed-forward, both added to `hidden` `[rows, H]`; `attention` is
    /// `[rows, Hq * d]`.
    pub(crate) fn feed_forward(
        &self,
        layer: &LayerWeights,
        attention: &[f32],
        hidden: &mut [f32],
    ) -> Result<(), DensePassError> {
        let width = self.config.hidden_size;
        if hidden.len() / width <= narrow::ROWS {
            return self.feed_forward_few(layer, attention, hidden);
        }
        let block = row_block(hidden.len() / width);
        let blocks = hidden
            .chunks_mut(block * width)
            .zip(attention.chunks(block * self.config.attention.query_width()))
            .collect();
        self.workers.each(blocks, |(hidden, attention), scratch| {
            self.feed_forward_block(layer, attention, hidden, scratch)
        })
    }

    fn feed_forward_block(
        &self,
        layer: &LayerWeights,
        attention: &[f32],
        hidden: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), DensePassError> {
        let (dense, progress) = (&mut scratch.dense, self.progress);
        let (width, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let attended = scratch.staged.stage(attention, self.config.attention.query_width())?;
        linear(&layer.o, attended, (hidden, Write::Add), (&mut *dense, progress))?;
        let normed = Scratch::sized(&mut scratch.normed, hidden.len());
        rms_norm(hidden, &layer.feed_forward_norm, self.config.rms_norm_eps, normed);
        let wide = hidden.len() / width * inner;
        let gate = Scratch::sized(&mut scratch.wide, wide);
        let up = Scratch::sized(&mut scratch.up, wide);
        let staged = scratch.staged.stage(normed, width)?;
        linear(&layer.gate, staged, (gate, Write::Replace), (&mut *dense, progress))?;
        linear(&layer.up, staged, (up, Write::Replace), (&mut *dense, progress))?;
        silu_multiply(self.isa, gate, up);
        let staged = scratch.staged.stage(gate, inner)?;
        linear(&layer.down, staged, (hidden, Write::Add), (&mut *dense, progress))?;
        Ok(())
    }

    /// [`LayerPass::feed_forward`] of few rows.
    fn feed_forward_few(
        &self,
        layer: &LayerWeights,
        attention: &[f32],
        hidden: &mut [f32],
    ) -> Result<(), DensePassError> {
        let (width, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let multiply = |staged: &StagedRows, products: &mut [Product<'_>]| {
            narrow::multiply(staged, products, self.workers, self.progress)
        };
        self.workers.with_scratch(|scratch| {
            let attended = scratch.staged.stage(attention, self.config.attention.query_width())?;
            let add = Write::Add;
            multiply(attended, &mut [Product::of(&layer.o, hidden, add)])?;
            let normed = Scratch::sized(&mut scratch.normed, hidden.len());
            rms_norm(hidden, &layer.feed_forward_norm, self.config.rms_norm_eps, normed);
            let staged = scratch.staged.stage(normed, width)?;
            let wide = hidden.len() / width * inner;
            let gate = Scratch::sized(&mut scratch.wide, wide);
            let up = Scratch::sized(&mut scratch.up, wide);
            let write = Write::Replace;
            let mut products = [
                Product::of(&layer.gate, &mut *gate, write),
                Product::of(&layer.up, &mut *up, write),
            ];
            multiply(staged, &mut products)?;
            silu_multiply(self.isa, gate, up);
            let staged = scratch.staged.stage(gate, inner)?;
            multiply(staged, &mut [Product::of(&layer.down, hidden, add)])
        })
    }
}
