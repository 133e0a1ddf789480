//! Reports, figures and traces as JSON.

use serde::Serialize;
use std::io::{self, Write};

/// Writes `report`; a number that is not finite becomes null.
pub(crate) fn write(file: &mut dyn Write, report: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *file, report).map_err(io::Error::from)?;
    file.write_all(b"\n")
}

/// Writes `value` without line breaks: a trace has many events and no reader who is no program.
pub(crate) fn write_compact(file: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, value).map_err(io::Error::from)?;
    file.write_all(b"\n")
}
