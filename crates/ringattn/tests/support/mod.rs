//! What several tests share.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

pub mod decoding;
