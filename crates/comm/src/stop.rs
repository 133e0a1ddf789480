//! Ends a run from outside its ranks, for instance on SIGINT. Knows no transport and no signal.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Something that runs and can be told to stop.
pub(crate) trait Stoppable: Send + Sync {
    /// Ends it at once, if it has not ended.
    fn stop(&self, reason: &str);
}

/// A shared handle that ends the runs it was given to, now and later.
///
/// `stop` takes locks: call it from an ordinary thread that was told of a signal, not from a signal
/// handler.
#[derive(Clone, Default)]
pub struct StopSignal(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    reason: Option<String>,
    runs: Vec<Weak<dyn Stoppable>>,
}

impl StopSignal {
    /// A signal that has not been given.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops every run that holds this signal. The first reason stays.
    pub fn stop(&self, reason: &str) {
        let runs = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.reason.get_or_insert_with(|| reason.to_owned());
            std::mem::take(&mut state.runs)
        };
        runs.iter().filter_map(Weak::upgrade).for_each(|run| run.stop(reason));
    }

    /// Why the signal was given, if it was.
    pub fn reason(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).reason.clone()
    }

    /// Makes the signal reach `run`; at once if it was given before.
    pub(crate) fn attach(&self, run: Weak<dyn Stoppable>) {
        let reason = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.runs.retain(|run| run.strong_count() > 0);
            state.runs.push(run.clone());
            state.reason.clone()
        };
        if let (Some(reason), Some(run)) = (reason, run.upgrade()) {
            run.stop(&reason);
        }
    }
}

impl std::fmt::Debug for StopSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StopSignal").field("reason", &self.reason()).finish_non_exhaustive()
    }
}
