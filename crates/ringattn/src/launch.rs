//! Starting the ranks of a run.

use crate::options::RunOptions;
use ringattn_comm::RunError;
use ringattn_comm::local::{Launch, LocalCommunicator};
use std::fmt;
use std::time::Duration;

/// How long ranks may take to end once the run has failed.
const GRACE: Duration = Duration::from_secs(5);

/// Runs `rank_main` on every rank and collects the results in rank order.
pub(crate) fn launch<T: Send, E: fmt::Display + Send>(
    options: &RunOptions,
    rank_main: impl Fn(LocalCommunicator) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RunError<E>> {
    let launch = Launch::new(options.ranks).timeout(options.timeout).stop_signal(&options.stop);
    match &options.on_stuck {
        Some(hook) => launch.on_stuck(GRACE, |cause, ranks| hook(cause, ranks)).run(rank_main),
        None => launch.run(rank_main),
    }
}
