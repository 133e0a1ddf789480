//! Reports and figures as JSON.

use serde::Serialize;
use std::io::{self, Write};

/// Writes `report`; a number that is not finite becomes null.
pub(crate) fn write(file: &mut dyn Write, report: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *file, report).map_err(io::Error::from)?;
    file.write_all(b"\n")
}
