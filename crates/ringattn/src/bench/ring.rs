//! Ring rows: one attention over all ranks, as a caller of this crate runs it.

use super::BenchError;
use super::case::Case;
use super::inputs::Inputs;
use crate::attend::{AttendInput, attend};
use crate::error::Error;
use crate::options::{Meter, RunOptions};
use crate::tensor::Tensor;
use ringattn_core::{DType, Mask};
use std::hint::black_box;
use std::sync::Arc;

/// A row that is ready to run.
pub(super) struct Ring {
    input: AttendInput,
    options: RunOptions,
}

impl Ring {
    pub(super) fn new(case: &Case, run: &RunOptions, inputs: &mut Inputs) -> Result<Self, Error> {
        let kv_dtype = case.dtype.plain()?;
        let mut tensor = |heads: usize, dtype, seed| {
            let shape = (heads, case.tokens as usize, case.head_dim);
            let elements = inputs.elements(shape.0 * shape.1 * shape.2, dtype, seed);
            Ok::<_, Error>(Tensor::new(elements.map_err(BenchError::from)?, shape)?)
        };
        let input = AttendInput {
            queries: tensor(case.query_heads, DType::F32, 1)?,
            keys: tensor(case.kv_heads, kv_dtype, 2)?,
            values: tensor(case.kv_heads, kv_dtype, 3)?,
            mask: Mask::Causal,
            positions: None,
            softmax_scale: None,
            kv_dtype: None,
        };
        let options = RunOptions {
            ranks: case.ranks,
            threads: Some(case.threads),
            meter: Arc::new(Meter::default()),
            ..run.clone()
        };
        Ok(Self { input, options })
    }

    /// (query, key) pairs of a head.
    pub(super) fn pairs(&self) -> u64 {
        let tokens = self.input.queries.tokens();
        tokens * (tokens + 1) / 2
    }

    pub(super) fn run(&self) -> Result<(), Error> {
        black_box(attend(&self.input, &self.options)?);
        Ok(())
    }
}
