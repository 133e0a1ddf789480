//! Why there is no page.

use ringattn_core::{MaskError, MergeError, OutOfMemory, ShapeError};
use ringattn_plan::{LayoutError, PlanError, SimulationError, TimelineError};
use thiserror::Error;

/// A file that cannot be drawn, or a fault on the way.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ViewError {
    /// Not JSON, or not of the expected form.
    #[error("expected {expected}: {reason}")]
    Form {
        /// What the file should hold.
        expected: &'static str,
        /// What the parser says.
        reason: String,
    },
    /// JSON of something else.
    #[error(
        "expected a plan (ringattn.plan/1), a report (ringattn.report/1) or a trace \
         (ringattn.trace/1), found {actual}"
    )]
    Schema {
        /// The schema that is named, shortened.
        actual: String,
    },
    /// A field that is read, with a value that cannot be.
    #[error("{field}: expected {expected}, found {actual}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What it may be.
        expected: String,
        /// What it is, shortened.
        actual: String,
    },
    /// More than can be drawn.
    #[error("{what}: {actual} are more than the {limit} that are drawn")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The most that there may be.
        limit: u64,
        /// How many there are.
        actual: u64,
    },
    /// Heads that do not form grouped-query attention.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A mask that cannot be.
    #[error(transparent)]
    Mask(#[from] MaskError),
    /// A layout that cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A plan that cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A machine that cannot be.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// Spans that cannot be.
    #[error("the trace: {0}")]
    Timeline(#[from] TimelineError),
    /// States that do not belong together, which is a fault of this program.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// Memory that could not be had.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// `text` in one line of at most 60 characters.
pub(crate) fn shortened(text: &str) -> String {
    const LIMIT: usize = 60;
    let mut short: String = text.chars().take(LIMIT).flat_map(char::escape_debug).collect();
    if text.chars().nth(LIMIT).is_some() {
        short.push_str("...");
    }
    short
}
