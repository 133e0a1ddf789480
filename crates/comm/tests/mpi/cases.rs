//! The cases: what is started, what is done to it, how it must end.

use crate::launch::{Ended, Job};
use crate::ranks::REPORT;
use rustix::process::{Signal, kill_process};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the driver does to a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blow {
    None,
    /// A signal to a rank's process.
    Rank(u32, Signal),
    /// A signal to `mpirun`.
    Launcher(Signal),
    /// All ranks stand still for `PAUSE`.
    Pause,
    /// The same, and a signal to all of them before they go on.
    PauseThen(Signal),
}

/// More than the ranks' timeout.
const PAUSE: Duration = Duration::from_secs(3);

/// What the report of a failure says; empty where our processes report nothing.
#[derive(Clone, Copy)]
struct Expected {
    codes: &'static [i32],
    report: &'static str,
    /// Seconds from the blow or, without one, from the start until no process is left.
    bound: u64,
}

pub(crate) struct Case {
    name: String,
    size: u32,
    blow: Blow,
    expected: Expected,
}

impl Case {
    pub(crate) fn title(&self) -> String {
        let blow = match self.blow {
            Blow::None => String::new(),
            Blow::Rank(rank, signal) => format!(", {} to rank {rank}", name_of(signal)),
            Blow::Launcher(signal) => format!(", {} to mpirun", name_of(signal)),
            Blow::Pause => ", paused".to_owned(),
            Blow::PauseThen(signal) => format!(", paused, then {}", name_of(signal)),
        };
        format!("{}, {} ranks{blow}", self.name, self.size)
    }

    pub(crate) fn is_heavy(&self) -> bool {
        ["heavy", "throughput", "overlap"].contains(&self.name.as_str())
    }

    pub(crate) fn check(&self) -> Result<String, String> {
        let job = Job::start(&self.name, self.size);
        if self.blow != Blow::None {
            for rank in 0..self.size {
                job.process(rank);
            }
            sleep(Duration::from_millis(500));
        }
        self.strike(&job);
        let begun = Instant::now();
        let ended = job.end(Duration::from_secs(self.expected.bound))?;
        let after = begun.elapsed().as_secs_f64();
        self.judge(&ended).map_err(|why| format!("{why}, code {}:\n{}", ended.code, ended.text))?;
        let told = |line: &&str| {
            line.starts_with("NOTE ") || line.starts_with(REPORT) || line.contains("bytes in")
        };
        let notes: String =
            ended.text.lines().filter(told).map(|line| format!("\n    {line}")).collect();
        Ok(format!(", code {}, {after:.1} s after{notes}", ended.code))
    }

    fn strike(&self, job: &Job) {
        let all = |signal| {
            (0..self.size).for_each(|rank| kill_process(job.process(rank), signal).unwrap());
        };
        match self.blow {
            Blow::None => {}
            Blow::Rank(rank, signal) => kill_process(job.process(rank), signal).unwrap(),
            Blow::Launcher(signal) => kill_process(job.launcher(), signal).unwrap(),
            Blow::Pause | Blow::PauseThen(_) => {
                all(Signal::STOP);
                sleep(PAUSE);
                if let Blow::PauseThen(signal) = self.blow {
                    all(signal);
                }
                all(Signal::CONT);
            }
        }
    }

    fn judge(&self, ended: &Ended) -> Result<(), String> {
        let Expected { codes, report, .. } = self.expected;
        if !codes.contains(&ended.code) {
            return Err(format!("expected one of {codes:?}"));
        }
        let reports: Vec<_> = ended.text.lines().filter(|line| line.contains(REPORT)).collect();
        let is_right = match (report, &reports[..]) {
            ("", []) => true,
            ("?", [] | [_]) => true,
            (report, [only]) => only.contains(report),
            _ => false,
        };
        if is_right { Ok(()) } else { Err(format!("expected one report with {report:?}")) }
    }
}

fn name_of(signal: Signal) -> &'static str {
    match signal {
        Signal::KILL => "SIGKILL",
        Signal::STOP => "SIGSTOP",
        Signal::INT => "SIGINT",
        Signal::TERM => "SIGTERM",
        _ => "a signal",
    }
}

fn case(name: impl Into<String>, size: u32, blow: Blow, expected: Expected) -> Case {
    Case { name: name.into(), size, blow, expected }
}

fn well(bound: u64) -> Expected {
    Expected { codes: &[0], report: "", bound }
}

fn fails(codes: &'static [i32], report: &'static str, bound: u64) -> Expected {
    Expected { codes, report, bound }
}

/// Codes of a launcher that ended the job by itself.
const LAUNCHER: &[i32] = &[1, 9, 130, 134, 137, 143];

pub(crate) fn all() -> Vec<Case> {
    let none = Blow::None;
    let mut cases: Vec<Case> = (1..=4).map(|size| case("suite", size, none, well(60))).collect();
    cases.extend([
        case("sizes", 3, none, well(20)),
        case("stale", 3, none, well(20)),
        case("slow 1", 4, none, well(20)),
        case("errors 0", 3, none, fails(&[9], "rank 0: the disk is full", 4)),
        case("errors 2", 3, none, fails(&[9], "rank 2: the disk is full", 4)),
        case("panics 0", 3, none, fails(&[4], "rank 0 panicked: index 9", 4)),
        case("panics 1", 4, none, fails(&[4], "rank 1 panicked: index 9", 4)),
        // The report of the panic takes longer than the ranks' timeout, or as long as the peers wait for it.
        case("mourns 1 5000", 3, none, fails(&[4], "rank 1 panicked: index 9", 4)),
        case("mourns 2 500", 4, none, fails(&[4], "rank 2 panicked: index 9", 4)),
        case("aborts 0", 3, none, fails(&[4], "rank 0 ended the run: digests differ", 4)),
        case("aborts 2", 4, none, fails(&[4], "rank 2 ended the run: digests differ", 4)),
        case("leaves 0", 2, none, fails(&[4], "rank 0 has ended, but rank 1", 4)),
        case("leaves 1", 2, none, fails(&[4], "rank 1 has ended, but rank 0", 4)),
        case("outside 1", 3, none, fails(&[7], "", 4)),
        case("outside 0", 2, none, fails(&[7], "", 4)),
        case("exits 1", 3, none, fails(LAUNCHER, "?", 6)),
        case("stuck 0", 3, none, fails(&[5], "rank 0 made no progress for 2s", 10)),
        case("stuck 2", 4, none, fails(&[5], "rank 2 made no progress for 2s", 10)),
        case(
            "damaged 1",
            2,
            none,
            fails(&[6], "message 1 from rank 0 to rank 1 (tag 1) was damaged", 5),
        ),
        case(
            "damaged 0",
            3,
            none,
            fails(&[6], "message 1 from rank 2 to rank 0 (tag 1) was damaged", 5),
        ),
    ]);
    for (name, size, rank) in [("ring", 4, 0), ("ring", 3, 2), ("waits", 2, 1)] {
        cases.push(case(name, size, Blow::Rank(rank, Signal::KILL), fails(&[137], "?", 4)));
    }
    for (rank, report) in
        [(0, "rank 0 made no progress for 2s"), (2, "rank 2 made no progress for 2s")]
    {
        cases.push(case("ring", 4, Blow::Rank(rank, Signal::STOP), fails(&[5], report, 9)));
    }
    let late = "rank 2 made no progress for 2s";
    cases.push(case("late 2", 4, Blow::Rank(2, Signal::STOP), fails(&[5], late, 9)));
    cases.push(case("rounds", 4, Blow::Pause, well(60)));
    cases.push(case("late 0", 4, Blow::Pause, well(20)));
    let stopped = "stopped: SIGTERM (host";
    cases.push(case("ring", 4, Blow::PauseThen(Signal::TERM), fails(&[143], stopped, 5)));
    cases.push(case("ring", 1, Blow::PauseThen(Signal::TERM), fails(&[143], stopped, 5)));
    cases.push(case("ring", 3, Blow::Rank(1, Signal::TERM), fails(&[143], stopped, 5)));
    for signal in [Signal::INT, Signal::TERM] {
        cases.push(case("ring", 4, Blow::Launcher(signal), fails(LAUNCHER, "stopped: SIG", 6)));
    }
    cases.push(case("ring", 3, Blow::Launcher(Signal::KILL), fails(&[137], "?", 6)));
    cases.push(case("throughput", 2, none, well(60)));
    cases.push(case("throughput", 4, none, well(60)));
    cases.push(case("overlap", 2, none, well(60)));
    cases.push(case("heavy", 2, none, well(120)));
    cases
}
