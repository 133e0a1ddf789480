//! What ranks hold of each other while they generate, known before they do: the plans of the extensions, made
//! as the decoder makes them, and counted. Knows no tokens and no weights.

use super::decoder::{DensePlacement, Placement};
use super::extension::{Extension, newest, prompt_segment};
use crate::config::ModelConfig;
use ringattn_core::DType;
use ringattn_plan::{Expectation, Layout, LayoutKind, PlanError, expect};

/// Most bytes that a rank holds of what visits it, in any attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visitors {
    /// Keys and values of other ranks, those in use and those arriving.
    pub kv_bytes: u64,
    /// Queries of other ranks, the same.
    pub query_bytes: u64,
    /// Partial states: those of visitors, those that leave and those that come.
    pub state_bytes: u64,
}

impl Visitors {
    fn add(&mut self, counts: &Expectation) {
        self.kv_bytes = self.kv_bytes.max(counts.peak_kv_bytes - counts.resident_kv_bytes);
        self.query_bytes = self.query_bytes.max(counts.peak_query_bytes);
        self.state_bytes = self.state_bytes.max(counts.peak_state_bytes);
    }

    /// All of them.
    pub fn bytes(&self) -> u64 {
        self.kv_bytes.saturating_add(self.query_bytes).saturating_add(self.state_bytes)
    }
}

/// What visits each rank while `pieces` of a prompt, so many tokens each, are put behind a cache of this
/// layout and type, and dense layers are computed where `dense` says. A piece of one token is a step of
/// decoding as well.
///
/// # Errors
/// When a piece cannot be laid out or planned.
pub fn visitors(
    config: &ModelConfig,
    dtype: DType,
    mut layout: Layout,
    (dealt, dense): ((LayoutKind, Option<u64>), DensePlacement),
    pieces: impl IntoIterator<Item = u64>,
) -> Result<Vec<Visitors>, PlanError> {
    let mut ranks = vec![Visitors::default(); layout.world_size() as usize];
    for len in pieces {
        let Some(segment) = prompt_segment(&layout, len, dealt)? else { continue };
        layout.append(segment)?;
        let (new, placement) = (newest(&layout, len)?, Placement::Prompt(dealt.0, dealt.1));
        let extension =
            Extension::new((config, dtype), (&new, &layout), (placement, dense.tree()))?;
        for prepared in extension.prepare() {
            for (rank, visitors) in layout.ranks().zip(&mut ranks) {
                visitors.add(&expect(&prepared, rank));
            }
        }
    }
    Ok(ranks)
}
