//! One `mpirun` with a time limit: where its ranks are, what it printed, how it ended.

use super::limit::Limit;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The first argument of a rank.
pub(crate) const RANK: &str = "--rank";

/// A job under way.
pub(crate) struct Job {
    child: Child,
    output: Vec<JoinHandle<String>>,
    folder: TempDir,
    size: u32,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// 128 and the signal's number where a signal ended `mpirun`.
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl Job {
    pub(crate) fn start(case: &str, size: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mpirun");
        command
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .args(["-n", &size.to_string(), "--oversubscribe", "--bind-to", "none"])
            .args(["--mca", "mpi_yield_when_idle", "1"]);
        if let Ok(transports) = std::env::var("RINGATTN_TEST_BTL") {
            command.args(["--mca", "btl", &transports]);
        }
        command.arg(std::env::current_exe().unwrap()).args([RANK, case]).arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("mpirun can be started");
        let output = vec![reading(child.stdout.take()), reading(child.stderr.take())];
        Self { child, output, folder, size }
    }

    fn pid_file(&self, rank: u32) -> PathBuf {
        self.folder.path().join(format!("{rank}.pid"))
    }

    /// The process of `rank`, once it runs.
    pub(crate) fn process(&self, rank: u32) -> Pid {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let read = fs::read_to_string(self.pid_file(rank)).unwrap_or_default();
            if let Some(pid) = read.strip_suffix('\n').and_then(|text| text.parse().ok()) {
                return Pid::from_raw(pid).unwrap();
            }
            assert!(Instant::now() < end, "rank {rank} did not start");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn launcher(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the end, which must come before `limit`, and that every rank's process is gone.
    pub(crate) fn end(mut self, limit: Duration) -> Result<Ended, String> {
        let ranks: Vec<Pid> = (0..self.size).map(|rank| self.process(rank)).collect();
        let mut time = Limit::new(limit);
        let mut in_time = true;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if time.pause() {
                in_time = false;
                let _ = kill_process(self.launcher(), Signal::KILL);
                for rank in &ranks {
                    let _ = kill_process(*rank, Signal::KILL);
                }
            }
        };
        let left = || ranks.iter().filter(|rank| is_alive(**rank)).count();
        while in_time && left() > 0 {
            if time.pause() {
                in_time = false;
                for rank in &ranks {
                    let _ = kill_process(*rank, Signal::KILL);
                }
            }
        }
        let text: String = self.output.drain(..).map(|reader| reader.join().unwrap()).collect();
        if !in_time {
            return Err(format!("not over after {limit:?}, processes had to be killed:\n{text}"));
        }
        use std::os::unix::process::ExitStatusExt;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(Ended { code, text })
    }
}

fn reading(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.unwrap().read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether a process runs or could run; one that only has not been reaped does not.
fn is_alive(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()));
    state.is_some_and(|rest| !rest.starts_with(['Z', 'X']))
}
