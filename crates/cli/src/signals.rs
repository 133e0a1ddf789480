//! SIGINT and SIGTERM: the first ends the run, or is left to the command to heed; the second ends the
//! process.

use crate::console;
use crate::failure::Failure;
use crate::output::Staging;
use ringattn::Job;
use ringattn::comm::StopSignal;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::fmt;
use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// How long the command may take to end by itself after the first signal.
const GRACE: Duration = Duration::from_millis(1200);

/// A signal that ends the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    /// The signal that another process names as the reason of a stop.
    pub(crate) fn of_reason(reason: Option<&str>) -> Self {
        let terminates = reason.is_some_and(|reason| reason.starts_with("SIGTERM"));
        if terminates { Self::Terminate } else { Self::Interrupt }
    }

    /// 128 and the signal's number.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}

/// What the first signal does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Deferral {
    /// It ends the run.
    #[default]
    None,
    /// The command asks for it.
    Asked,
    /// The command asks in another process of the job, which the launcher tells as well; if the run then
    /// does not end, the signal was meant for this one.
    Elsewhere,
}

/// How long a process lets another one end the run after a signal to both.
const PATIENCE: Duration = Duration::from_secs(3);

/// The watch over signals, and what it has seen.
#[derive(Clone)]
pub(crate) struct Interrupts {
    /// Ends a run when a signal comes.
    pub(crate) stop: StopSignal,
    first: Arc<OnceLock<Signal>>,
    /// Who looks for the first signal.
    deferral: Arc<Mutex<Deferral>>,
    staging: Staging,
    /// The MPI job that this process is in.
    job: Arc<OnceLock<Job>>,
    /// Whether the process is ending by another way.
    ends: Arc<AtomicBool>,
}

impl Interrupts {
    /// Starts to watch. Unfinished outputs in `staging` are removed when the process has to end.
    pub(crate) fn watch(staging: &Staging) -> Result<Self, Failure> {
        let failed = |what| move |source: io::Error| Failure::System { what, source };
        // A file size limit is then an error of the write, like a full disk.
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))
            .map_err(failed("the watch over signals"))?;
        let mut signals =
            Signals::new([SIGINT, SIGTERM]).map_err(failed("the watch over signals"))?;
        let interrupts = Self {
            stop: StopSignal::new(),
            first: Arc::default(),
            staging: staging.clone(),
            job: Arc::default(),
            ends: Arc::default(),
            deferral: Arc::default(),
        };
        let watched = interrupts.clone();
        let listen = move || {
            for signal in signals.forever() {
                let signal = if signal == SIGTERM { Signal::Terminate } else { Signal::Interrupt };
                watched.receive(signal);
            }
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(listen)
            .map_err(failed("the watch over signals"))?;
        Ok(interrupts)
    }

    fn receive(&self, signal: Signal) {
        if self.first.set(signal).is_err() {
            self.leave();
        }
        let late = self.clone();
        match *self.deferral.lock().unwrap_or_else(PoisonError::into_inner) {
            Deferral::None => self.stop.stop(&signal.to_string()),
            Deferral::Asked => return,
            Deferral::Elsewhere => {
                let stop_late = move || {
                    thread::sleep(PATIENCE);
                    late.stop.stop(&signal.to_string());
                };
                if thread::Builder::new().spawn(stop_late).is_err() {
                    self.leave();
                }
                return;
            }
        }
        // What does not look at the stop signal (loading, tokenizing, writing) is left behind.
        let leave_late = move || {
            thread::sleep(GRACE);
            late.leave();
        };
        if thread::Builder::new().spawn(leave_late).is_err() {
            self.leave();
        }
    }

    /// Takes note of the job that this process has joined.
    #[cfg(feature = "mpi")]
    pub(crate) fn join(&self, job: &Job) {
        let _ = self.job.set(job.clone());
    }

    /// The job that this process has joined.
    pub(crate) fn job(&self) -> Option<&Job> {
        self.job.get()
    }

    /// From now on another thread ends the process.
    pub(crate) fn leave_the_end_to_others(&self) {
        self.ends.store(true, Ordering::Release);
    }

    /// From now on the first signal ends nothing by itself: the command asks whether it [`came`].
    ///
    /// [`came`]: Self::came
    pub(crate) fn defer(&self, deferral: Deferral) {
        *self.deferral.lock().unwrap_or_else(PoisonError::into_inner) = deferral;
    }

    /// Whether a signal has come.
    pub(crate) fn came(&self) -> bool {
        self.first.get().is_some()
    }

    /// Ends the process at once.
    fn leave(&self) -> ! {
        while self.ends.load(Ordering::Acquire) {
            thread::park();
        }
        let signal = self.first.get().copied().unwrap_or(Signal::Interrupt);
        self.exit(&Failure::Stopped { signal, reason: signal.to_string() })
    }

    /// Ends the process with this failure, without waiting for anything.
    pub(crate) fn exit(&self, failure: &Failure) -> ! {
        self.staging.discard_all();
        if console::talks() {
            console::failure(failure, None);
        }
        process::exit(i32::from(failure.exit_code()))
    }

    /// An error when a signal has come.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.first.get() {
            Some(&signal) => Err(Failure::Stopped { signal, reason: signal.to_string() }),
            None => Ok(()),
        }
    }

    /// The failure that `error` is: a stopped run was stopped by the signal. In a job the reason also names
    /// ranks that do not answer.
    pub(crate) fn failure(&self, error: ringattn::Error) -> Failure {
        match (error.kind(), self.first.get()) {
            (ringattn::ErrorKind::Stopped, Some(&signal)) => {
                let reason = error.stop_reason().unwrap_or_default();
                let reason = if reason.is_empty() { signal.to_string() } else { reason.to_owned() };
                Failure::Stopped { signal, reason }
            }
            _ => Failure::Run(error),
        }
    }
}
