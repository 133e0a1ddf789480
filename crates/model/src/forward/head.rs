//! The vocabulary head: log-probabilities of given next tokens, without keeping any logits.
//!
//! `ln p(t) = logit_t - ln sum_v exp(logit_v)`. The vocabulary is walked in panels; the sum over the
//! panels is an online log-sum-exp in f64.

use super::layer::DensePassError;
use super::narrow::{self, Product};
use super::norm::rms_norm;
use super::workers::{Scratch, Workers, row_block};
use crate::config::ModelConfig;
use crate::weights::Weights;
use ringattn_core::{Progress, try_filled};
use ringattn_engine::cpu::Isa;
use ringattn_engine::cpu::dense::{Columns, Write};
use ringattn_engine::cpu::pointwise::log_sum_exp;

/// Vocabulary entries whose logits exist at once for a block of rows.
const PANEL: usize = 2048;

/// A row's next token and the log-probability that it gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) token: u32,
    pub(crate) logprob: f64,
}

/// The final norm and the head over a rank's rows.
pub(crate) struct Head<'a> {
    pub(crate) config: &'a ModelConfig,
    pub(crate) weights: &'a Weights,
    pub(crate) workers: &'a Workers,
    pub(crate) isa: Isa,
    pub(crate) progress: &'a dyn Progress,
}

/// `max`, `sum exp(logit - max)` and the target's logit of one row, over the panels so far.
#[derive(Clone, Copy)]
struct Running {
    max: f64,
    sum: f64,
    target: f64,
}

impl Running {
    const NOTHING: Self = Self { max: f64::NEG_INFINITY, sum: 0.0, target: f64::NAN };

    fn log_sum(self) -> f64 {
        self.max + self.sum.ln()
    }

    fn add(&mut self, (max, sum): (f32, f32)) {
        let (max, sum) = (f64::from(max), f64::from(sum));
        let top = if max > self.max { max } else { self.max };
        let weight = |m: f64| if m == f64::NEG_INFINITY { 0.0 } else { (m - top).exp() };
        self.sum = self.sum * weight(self.max) + sum * weight(max);
        self.max = top;
    }
}

/// `ln p(token)` of a row of logits, NaN where there is no such token.
pub(crate) fn logprob(isa: Isa, logits: &[f32], token: u32) -> f64 {
    let mut row = Running::NOTHING;
    logits.chunks(PANEL).for_each(|part| row.add(log_sum_exp(isa, part)));
    logits.get(token as usize).map_or(f64::NAN, |&own| f64::from(own) - row.log_sum())
}

impl Head<'_> {
    /// Fills in the log-probabilities; row `i` of `hidden` `[rows, H]` predicts `targets[i]`.
    pub(crate) fn score(
        &self,
        hidden: &[f32],
        targets: &mut [Target],
    ) -> Result<(), DensePassError> {
        let width = self.config.hidden_size;
        let block = row_block(hidden.len() / width);
        let blocks = hidden.chunks(block * width).zip(targets.chunks_mut(block)).collect();
        self.workers
            .each(blocks, |(hidden, targets), scratch| self.score_block(hidden, targets, scratch))
    }

    /// All logits of few rows, `[rows, vocabulary]`.
    pub(crate) fn logits(&self, hidden: &[f32]) -> Result<Vec<f32>, DensePassError> {
        let rows = hidden.len() / self.config.hidden_size;
        let head = self.weights.head.as_ref().unwrap_or(&self.weights.embedding);
        let mut logits = try_filled(rows * head.rows(), 0.0)?;
        self.workers.with_scratch(|scratch| {
            let normed = Scratch::sized(&mut scratch.normed, hidden.len());
            rms_norm(hidden, &self.weights.final_norm, self.config.rms_norm_eps, normed);
            let staged = scratch.staged.stage(normed, self.config.hidden_size)?;
            let (matrix, bias) = (head, None);
            let product = Product { matrix, bias, y: &mut logits, write: Write::Replace };
            narrow::multiply(staged, &mut [product], self.workers, self.progress)
        })?;
        Ok(logits)
    }

    fn score_block(
        &self,
        hidden: &[f32],
        targets: &mut [Target],
        scratch: &mut Scratch,
    ) -> Result<(), DensePassError> {
        let head = self.weights.head.as_ref().unwrap_or(&self.weights.embedding);
        let normed = Scratch::sized(&mut scratch.normed, hidden.len());
        rms_norm(hidden, &self.weights.final_norm, self.config.rms_norm_eps, normed);
        let staged = scratch.staged.stage(normed, self.config.hidden_size)?;
        let mut rows = vec![Running::NOTHING; targets.len()];
        for first in (0..head.rows()).step_by(PANEL) {
            let range = first..(first + PANEL).min(head.rows());
            let len = range.len();
            let logits = Scratch::sized(&mut scratch.wide, targets.len() * len);
            let y = Columns { data: &mut *logits, width: len, first: 0 };
            head.multiply(range.clone(), staged, (y, Write::Replace), &mut scratch.dense)?;
            for ((row, target), logits) in
                rows.iter_mut().zip(&*targets).zip(logits.chunks_exact(len))
            {
                row.add(log_sum_exp(self.isa, logits));
                let token = target.token as usize;
                if range.contains(&token) {
                    row.target = f64::from(logits[token - first]);
                }
            }
            self.progress.advance()?;
        }
        for (target, row) in targets.iter_mut().zip(rows) {
            target.logprob = row.target - row.log_sum();
        }
        Ok(())
    }
}
