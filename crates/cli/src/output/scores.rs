//! Scores, one JSON object per line.

use ringattn::model::TokenScore;
use serde::Serialize;
use std::io::{self, Write};

/// A line. A log-probability that is not finite becomes null.
#[derive(Serialize)]
struct Line {
    index: u64,
    token: u32,
    logprob: f64,
}

/// Writes all `scores` in order.
pub(crate) fn write(file: &mut dyn Write, scores: &[TokenScore]) -> io::Result<()> {
    for &TokenScore { position, token, logprob } in scores {
        let line = Line { index: position.0, token, logprob };
        serde_json::to_writer(&mut *file, &line).map_err(io::Error::from)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringattn::core::Position;

    #[test]
    fn a_line_per_score() {
        let scores =
            [-1.5, f64::NAN].map(|logprob| TokenScore { position: Position(1), token: 7, logprob });
        let mut text = Vec::new();
        write(&mut text, &scores).unwrap();
        let expected = "{\"index\":1,\"token\":7,\"logprob\":-1.5}\n\
                        {\"index\":1,\"token\":7,\"logprob\":null}\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
