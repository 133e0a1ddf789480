//! Ranks that fail on purpose, for tests of what the others do then. Only with the feature
//! `fault-injection`.

use ringattn_core::{Progress, Rank};
use rustix::process::{Signal, getpid, kill_process};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misdeed {
    /// Its process is killed.
    Kill,
    /// Its process is stopped.
    Stop,
    /// It panics.
    Panic,
    /// It computes no more, while its process lives.
    Stick,
    /// From then on it takes this many times as long.
    Slow(u32),
    /// A block of that step is damaged on its way to it.
    Damage,
}

/// A rank that fails, in the step after it has attended so many blocks.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What it does.
    pub misdeed: Misdeed,
    /// Who.
    pub rank: Rank,
    /// After how many blocks.
    pub step: u32,
    attended: Arc<AtomicU32>,
    since: Arc<Mutex<Option<Instant>>>,
}

impl Fault {
    /// That `rank` does `misdeed` in `step`.
    pub fn new(misdeed: Misdeed, rank: Rank, step: u32) -> Self {
        Self { misdeed, rank, step, attended: Arc::default(), since: Arc::default() }
    }

    /// `rank`, which counts its `progress`, has attended one more block.
    pub(crate) fn attended(&self, rank: Rank, progress: &dyn Progress) {
        if rank != self.rank {
            return;
        }
        let step = self.attended.fetch_add(1, Ordering::Relaxed);
        let strikes = step == self.step;
        match self.misdeed {
            Misdeed::Kill if strikes => self.signal(Signal::KILL),
            Misdeed::Stop if strikes => self.signal(Signal::STOP),
            #[allow(clippy::panic, reason = "on purpose")]
            Misdeed::Panic if strikes => panic!("a fault in step {step}"),
            Misdeed::Stick if strikes => loop {
                thread::park();
            },
            Misdeed::Slow(factor) => self.dawdle(factor, progress),
            _ => {}
        }
    }

    fn signal(&self, signal: Signal) {
        // A process may signal itself.
        let _ = kill_process(getpid(), signal);
        thread::sleep(Duration::from_secs(60));
    }

    /// Takes the time since the block before several times more, and moves meanwhile.
    fn dawdle(&self, factor: u32, progress: &dyn Progress) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let end = since.map(|since| Instant::now() + since.elapsed() * factor.saturating_sub(1));
        while end.is_some_and(|end| Instant::now() < end) && progress.advance().is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
        *since = Some(Instant::now());
    }
}
