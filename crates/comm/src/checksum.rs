//! Whether what travels is checked. Knows no transport and no sum.

/// Whether payloads carry a checksum. Envelopes always do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Each payload is checked; a difference ends the run.
    #[default]
    Verified,
    /// The fabric is trusted.
    Off,
}
