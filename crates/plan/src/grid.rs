//! The plan as text: a headline and the `p x p` grid of who attends which block when.
//!
//! A number is the block that the rank attends in that step, a number in parentheses one that only
//! passes through, a dot a step without a block. Of states, `=5` is one exchanged with rank 5, `>5` one
//! that goes to it and `<5` one that comes from it.

use crate::plan::{Plan, Schedule};
use crate::step::{Cargo, Step, Transfer};
use std::fmt;

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RingPassKv => "ring-pass-kv",
            Self::Gather => "gather",
            Self::Tree => "tree",
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = self.problem();
        let tokens = if problem.queries == problem.keys {
            format!("{} tokens", problem.keys)
        } else {
            format!("{} queries over {} keys", problem.queries, problem.keys)
        };
        writeln!(
            f,
            "{}, {}, {tokens} on {} ranks, mask {}",
            self.schedule(),
            self.key_layout(),
            self.world_size(),
            problem.mask
        )?;
        let last = self.world_size().saturating_sub(1).to_string().len();
        let width = last + 2;
        let prepared = self.prepare();
        write!(f, "{:>1$} |", "rank", last.max(4))?;
        for step in 0..prepared.step_count() {
            write!(f, " {step:>width$}")?;
        }
        writeln!(f)?;
        for rank in self.key_layout().ranks() {
            write!(f, "{:>1$} |", rank.0, last.max(4))?;
            for step in prepared.steps(rank) {
                write!(f, " {:>width$}", cell(&step))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn cell(step: &Step) -> String {
    let state = |transfer: Option<Transfer>| match transfer {
        Some(Transfer { cargo: Cargo::State(_), peer }) => Some(peer),
        _ => None,
    };
    match (step.attend, step.send, state(step.receive)) {
        (Some(block), ..) => block.to_string(),
        (None, Some(Transfer { cargo: Cargo::Block(block), .. }), _) => format!("({block})"),
        (None, Some(Transfer { peer, .. }), None) => format!(">{peer}"),
        (None, Some(Transfer { peer, .. }), Some(_)) => format!("={peer}"),
        (None, None, Some(peer)) => format!("<{peer}"),
        (None, None, None) => ".".to_owned(),
    }
}
