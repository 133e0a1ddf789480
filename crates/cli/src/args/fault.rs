//! Faults that a test asks for: `kill@1:0` is rank 1 in its first step.

use ringattn::core::Rank;
use ringattn::fault::{Fault, Misdeed};

/// The fault that `text` names.
pub(crate) fn fault(text: &str) -> Result<Fault, String> {
    let expected =
        || "expected kill, stop, panic, stick, slowN or damage, then @RANK:STEP".to_owned();
    let (name, place) = text.split_once('@').ok_or_else(expected)?;
    let (rank, step) = place.split_once(':').ok_or_else(expected)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| expected());
    let misdeed = match name {
        "kill" => Misdeed::Kill,
        "stop" => Misdeed::Stop,
        "panic" => Misdeed::Panic,
        "stick" => Misdeed::Stick,
        "damage" => Misdeed::Damage,
        other => Misdeed::Slow(number(other.strip_prefix("slow").ok_or_else(expected)?)?),
    };
    Ok(Fault::new(misdeed, Rank(number(rank)?), number(step)?))
}
