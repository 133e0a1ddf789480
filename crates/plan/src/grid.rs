//! The plan as text: a headline and the `p x p` grid of who attends which block when.
//!
//! A number is the block that the rank's queries attend in that step, a number in parentheses one that
//! only passes through, a dot a step in which nothing is computed or moved. `q5` are the queries of rank 5 that
//! attend the rank's own block, in parentheses likewise. Of states, `=5` is one exchanged with rank 5, `>5`
//! one that goes to it and `<5` one that comes from it; they are not shown beside what is attended.

use crate::plan::{Plan, Schedule};
use crate::step::{Attend, Cargo, Operand, QueriesId, Step, Transfers};
use ringattn_core::Rank;
use std::fmt;

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RingPassKv => "ring-pass-kv",
            Self::RingPassQ => "ring-pass-q",
            Self::Gather => "gather",
            Self::Tree => "tree",
            Self::TreeReduce => "tree-reduce",
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
        // States to one rank and from another stand in one cell.
        let peers = if self.schedule() == Schedule::RingPassQ { 2 } else { 1 };
        let width = peers * last + 2;
        let prepared = self.prepare();
        write!(f, "{:>1$} |", "rank", last.max(4))?;
        for step in 0..prepared.step_count() {
            write!(f, " {step:>width$}")?;
        }
        writeln!(f)?;
        for rank in self.key_layout().ranks() {
            write!(f, "{:>1$} |", rank.0, last.max(4))?;
            for step in prepared.steps(rank) {
                write!(f, " {:>width$}", cell((rank, self.own_queries(rank)), &step))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn cell((rank, own): (Rank, QueriesId), step: &Step) -> String {
    let operand = |transfers: &Transfers| transfers.iter().find_map(|t| t.cargo.operand());
    let state = |transfers: &Transfers| {
        let mut states = transfers.iter().filter(|t| matches!(t.cargo, Cargo::State(..)));
        states.next().map(|transfer| transfer.peer)
    };
    let passing = operand(&step.send).map(|operand| match operand {
        Operand::Block(block) => format!("({block})"),
        Operand::Queries(queries) => format!("(q{queries})"),
    });
    match (step.attend, passing, state(&step.send), state(&step.receive)) {
        (Some(Attend { queries, block }), ..) if block.0 == rank && queries != own => {
            format!("q{queries}")
        }
        (Some(Attend { block, .. }), ..) => block.to_string(),
        (None, Some(passing), ..) => passing,
        (None, None, Some(to), Some(from)) if to == from => format!("={to}"),
        (None, None, to, from) => {
            let sign = |sign, peer: Option<Rank>| peer.map(|peer| format!("{sign}{peer}"));
            let parts: String = [sign('>', to), sign('<', from)].into_iter().flatten().collect();
            if parts.is_empty() { ".".to_owned() } else { parts }
        }
    }
}
