//! A bar on stderr that shows how far a run is, with the time left and, where it has tokens, tokens/s.

use crate::console::{self, Chatter};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringattn::Meter;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(200);
/// Steps of the bar.
const STEPS: u64 = 1000;

/// A bar that lives as long as this value; none when stderr is not a terminal.
pub(crate) struct Progress {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows how far `meter` is in a run, which may be one over so many `tokens`.
    pub(crate) fn show(meter: &Arc<Meter>, tokens: Option<u64>, chatter: Chatter) -> Self {
        if chatter == Chatter::Quiet || !console::talks() || !std::io::stderr().is_terminal() {
            return Self { running: None };
        }
        let (end, ended) = mpsc::channel();
        let meter = Arc::clone(meter);
        let draw = move || {
            let bar = bar();
            let start = Instant::now();
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let (done, total) = meter.read();
                if total > 0 {
                    let fraction = (done as f64 / total as f64).min(1.0);
                    bar.set_position((fraction * STEPS as f64) as u64);
                    bar.set_message(rate(fraction, tokens, start.elapsed()));
                }
            }
            bar.finish_and_clear();
        };
        // A run without a bar is better than none.
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(draw).ok();
        Self { running: thread.map(|thread| (end, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("[{bar:40}] {percent:>3} % {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Time left, and the speed, when a `fraction` of the run took `elapsed`.
fn rate(fraction: f64, tokens: Option<u64>, elapsed: Duration) -> String {
    if fraction <= 0.0 {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64();
    let left = (seconds * (1.0 - fraction) / fraction).max(0.0).round() as u64;
    let left = format!("{}:{:02} left", left / 60, left % 60);
    match tokens {
        Some(tokens) => format!("{:.0} tokens/s, {left}", tokens as f64 * fraction / seconds),
        None => left,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_and_time_left_follow_from_the_fraction() {
        assert_eq!(rate(0.0, Some(100), Duration::from_secs(1)), "");
        assert_eq!(rate(0.25, Some(1000), Duration::from_secs(50)), "5 tokens/s, 2:30 left");
        assert_eq!(rate(1.0, None, Duration::from_secs(50)), "0:00 left");
    }
}
