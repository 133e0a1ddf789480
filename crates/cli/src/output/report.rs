//! The report as a JSON file.

use super::{OutputError, Staged};
use ringattn::Report;
use serde::Serialize;
use std::io;

/// Writes `report`; a number that is not finite becomes null.
pub(crate) fn write<R: Serialize>(
    file: &mut Staged,
    report: &Report<R>,
) -> Result<(), OutputError> {
    file.write(|file| {
        serde_json::to_writer_pretty(&mut *file, report).map_err(io::Error::from)?;
        file.write_all(b"\n")
    })
}
