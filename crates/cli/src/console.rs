//! What the program says: results on stdout, everything else on stderr.

use crate::failure::Failure;
use crate::output::OutputError;
use std::any::Any;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process leaves everything but its own failure to another one: with MPI, rank 0 talks.
static OTHERS_TALK: AtomicBool = AtomicBool::new(false);

/// From now on this process says nothing but, where nobody else can, why its job failed.
pub(crate) fn leave_talking_to_others() {
    OTHERS_TALK.store(true, Ordering::Relaxed);
}

/// Whether this process is to talk.
pub(crate) fn talks() -> bool {
    !OTHERS_TALK.load(Ordering::Relaxed)
}

/// Whether notes, warnings and the progress bar are shown. Errors always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chatter {
    Shown,
    Quiet,
}

impl Chatter {
    /// Says something that is good to know.
    pub(crate) fn note(self, text: &str) {
        self.say("note", text);
    }

    /// Says something that may make the result useless.
    pub(crate) fn warning(self, text: &str) {
        self.say("warning", text);
    }

    /// Says a whole text of lines.
    pub(crate) fn text(self, text: &str) {
        if self == Self::Shown && talks() {
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }

    fn say(self, kind: &str, text: &str) {
        if self == Self::Shown && talks() {
            stderr_line(&format!("{kind}: {text}"));
        }
    }
}

/// Writes `text` to stdout. A reader that has left, as in `| head`, has read what it wanted.
///
/// # Errors
/// When stdout cannot be written, for instance because a disk is full.
pub(crate) fn result(text: &str) -> Result<(), OutputError> {
    if !talks() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    stdout_outcome(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Whether anybody reads stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

/// Writes a piece of a text to stdout, at once.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn piece(text: &str) -> Result<Reader, OutputError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(source) => Err(OutputError::Write { file: "stdout".to_owned(), source }),
        Ok(()) => Ok(Reader::There),
    }
}

/// Lets `write` write to stdout until it ends or nobody reads any more.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn stream(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), OutputError> {
    if !talks() {
        return Ok(());
    }
    let mut stdout = BufWriter::new(io::stdout().lock());
    let written = write(&mut stdout).and_then(|()| stdout.flush());
    // What is left in the buffers has no reader or no place; it must not be tried again.
    let _ = stdout.into_parts();
    stdout_outcome(written)
}

/// What a write to stdout means: no error when its reader has left.
fn stdout_outcome(written: io::Result<()>) -> Result<(), OutputError> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(source) => Err(OutputError::Write { file: "stdout".to_owned(), source }),
        Ok(()) => Ok(()),
    }
}

/// Says why there is no result, where that was, and what to do about it.
pub(crate) fn failure(failure: &Failure, place: Option<String>) {
    // A progress bar may stand in the line.
    let clear = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    stderr_line(&format!("{clear}error: {failure}"));
    let hint: Vec<_> = place.into_iter().chain(failure.hint()).collect();
    if !hint.is_empty() {
        stderr_line(&format!("  {}", hint.join("; ")));
    }
}

/// A line on stderr; there is nobody to tell when that fails.
pub(crate) fn stderr_line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Lets a panic, which is a fault of this program, be one line and no backtrace.
pub(crate) fn say_panics_in_one_line() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or(String::new(), |place| format!(" at {place}"));
        let message = message(info.payload()).replace('\n', " ");
        stderr_line(&format!("internal fault{place}: {message}"));
    }));
}

fn message(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| Some(payload.downcast_ref::<String>()?)).unwrap_or("no message")
}
