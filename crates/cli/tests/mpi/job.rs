//! One `mpirun` of the command with a time limit: what it printed, how it ended, what it left.

use super::limit::Limit;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Jobs run one at a time: each has more processes than this machine may have cores.
static ONE: Mutex<()> = Mutex::new(());

/// A job under way.
pub(crate) struct Job {
    child: Child,
    output: [JoinHandle<String>; 2],
    begun: Instant,
    /// A text that the command line of each of its processes holds.
    mark: String,
    _turn: MutexGuard<'static, ()>,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// 128 and the signal's number where a signal ended `mpirun`.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
}

impl Job {
    /// Starts so many ranks of the command with each of the arguments, all of which hold `mark`.
    pub(crate) fn start(mark: &str, programs: &[(u32, Vec<String>)]) -> Self {
        let command = |args: &Vec<String>| {
            std::iter::once(env!("CARGO_BIN_EXE_ringattn").to_owned()).chain(args.clone()).collect()
        };
        let programs: Vec<_> =
            programs.iter().map(|(ranks, args)| (*ranks, command(args))).collect();
        Self::start_programs(mark, &programs)
    }

    /// Starts so many ranks of a shell with this script, which holds `mark`.
    pub(crate) fn shell(mark: &str, ranks: u32, script: &str) -> Self {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        Self::start_programs(mark, &[(ranks, command)])
    }

    /// Starts so many ranks of this test program, each in its ignored test `name`, with `mark` as last
    /// argument.
    pub(crate) fn test(mark: &str, ranks: u32, name: &str) -> Self {
        let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        // A further argument is a name of a test as well, which none has.
        let args = ["--exact", "--ignored", name, mark].map(str::to_owned);
        Self::start_programs(mark, &[(ranks, [vec![program], args.to_vec()].concat())])
    }

    fn start_programs(mark: &str, programs: &[(u32, Vec<String>)]) -> Self {
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new("mpirun");
        command
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .args(["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (index, (ranks, program)) in programs.iter().enumerate() {
            if index > 0 {
                command.arg(":");
            }
            command.args(["-n", &ranks.to_string()]).args(program);
        }
        let begun = Instant::now();
        let mut child = command.spawn().expect("mpirun can be started");
        let output = [reading(child.stdout.take()), reading(child.stderr.take())];
        Self { child, output, begun, mark: mark.to_owned(), _turn: turn }
    }

    /// Sends a signal to `mpirun`.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end of the launcher and of every rank, which must come before `limit`.
    pub(crate) fn end(mut self, limit: Duration) -> Ended {
        let mut time = Limit::new(limit.saturating_sub(self.begun.elapsed()));
        let mut in_time = true;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if time.pause() {
                in_time = false;
                let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
            }
        };
        let elapsed = self.begun.elapsed();
        loop {
            let left = processes(&self.mark);
            if left.is_empty() {
                break;
            }
            if time.pause() {
                in_time = false;
                for process in left {
                    let _ = kill_process(process, Signal::KILL);
                }
            }
        }
        let [stdout, stderr] = self.output.map(|output| output.join().unwrap());
        assert!(in_time, "not over after {limit:?}, processes had to be killed:\n{stdout}{stderr}");
        use std::os::unix::process::ExitStatusExt;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ended { code, stdout, stderr, elapsed }
    }
}

impl Ended {
    /// The lines that the command itself says about a failure.
    pub(crate) fn errors(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("error: ")).collect()
    }
}

fn reading(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.unwrap().read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Processes that run and whose command lines hold `mark`, this one left out.
fn processes(mark: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let holds = |pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("X", |(_, rest)| rest);
        let runs = !state.starts_with(['Z', 'X']);
        runs && command.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    let own = std::process::id() as i32;
    pids.filter(|pid| *pid != own).filter(holds).filter_map(Pid::from_raw).collect()
}
