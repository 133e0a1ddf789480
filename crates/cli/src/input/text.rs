//! A document as text.

use super::InputError;
use super::mapped::MappedFile;

/// The file's text.
pub(crate) fn read(file: &MappedFile) -> Result<&str, InputError> {
    std::str::from_utf8(file.bytes())
        .map_err(|error| InputError::NotUtf8 { file: file.name(), offset: error.valid_up_to() })
}
