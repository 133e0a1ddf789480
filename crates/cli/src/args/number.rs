//! Numbers as people write them: `80G`, `8e10`, `512M`, `16Gi`, plain.

use std::time::Duration;
use thiserror::Error;

/// Why a text is not the number that was asked for.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum NumberError {
    #[error("expected a number such as 4096, 8e10, 80G or 16Gi")]
    NotANumber,
    #[error("expected a whole number that is not negative")]
    NotWhole,
    #[error("expected a whole number from -2^63 to 2^63 - 1")]
    NotInteger,
    #[error("the largest number is 2^64 - 1")]
    TooLarge,
    #[error("expected {least} to {most}{why}")]
    Range { least: u64, most: u64, why: &'static str },
    #[error("expected a finite number above 0")]
    NotPositive,
    #[error("expected a finite number of at least 0")]
    Negative,
    #[error("expected seconds above 0, at most 1e9")]
    Seconds,
    #[error("expected a finite number (in f32)")]
    NotFinite,
}

/// Decimal suffixes and their exponents of 10.
const DECIMAL: [(&str, &str); 6] =
    [("k", "e3"), ("K", "e3"), ("M", "e6"), ("G", "e9"), ("T", "e12"), ("P", "e15")];
/// Binary suffixes and their exponents of 2.
const BINARY: [(&str, i32); 5] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50)];

/// Any number.
pub(crate) fn number(text: &str) -> Result<f64, NumberError> {
    let parse = |text: &str| match text.bytes().all(|byte| b"0123456789.eE+-".contains(&byte)) {
        true => text.parse::<f64>().map_err(|_| NumberError::NotANumber),
        false => Err(NumberError::NotANumber),
    };
    if let Some((digits, power)) =
        BINARY.iter().find_map(|(suffix, power)| Some((text.strip_suffix(suffix)?, *power)))
    {
        return Ok(parse(digits)? * f64::powi(2.0, power));
    }
    // The decimal point moves in the text, so that 1.1G is exactly 1.1e9.
    let decimal = DECIMAL
        .iter()
        .find_map(|(suffix, power)| Some(format!("{}{power}", text.strip_suffix(suffix)?)));
    parse(decimal.as_deref().unwrap_or(text))
}

/// A whole number.
pub(crate) fn count(text: &str) -> Result<u64, NumberError> {
    if let Ok(plain) = text.parse() {
        return Ok(plain);
    }
    let number = number(text)?;
    if number < 0.0 || number.fract() != 0.0 {
        return Err(NumberError::NotWhole);
    }
    // 2^64 itself is the first f64 that does not fit.
    if number >= 18_446_744_073_709_551_616.0 {
        return Err(NumberError::TooLarge);
    }
    Ok(number as u64)
}

/// A whole number of either sign.
pub(crate) fn integer(text: &str) -> Result<i64, NumberError> {
    if let Ok(plain) = text.parse() {
        return Ok(plain);
    }
    let number = number(text)?;
    // -2^63 is the least i64, 2^63 the first f64 beyond the largest.
    let range = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
    if number.fract() != 0.0 || !range.contains(&number) {
        return Err(NumberError::NotInteger);
    }
    Ok(number as i64)
}

/// A whole number from 1 on.
pub(crate) fn at_least_one(text: &str) -> Result<u64, NumberError> {
    within(text, u64::MAX, "")
}

/// Ranks of the local engine.
pub(crate) fn ranks(text: &str) -> Result<u32, NumberError> {
    let limit = u64::from(ringattn::comm::local::MAX_RANKS);
    Ok(within(text, limit, ", the limit of the local engine")? as u32)
}

/// Ranks of a plan that is priced and not run.
pub(crate) fn planned_ranks(text: &str) -> Result<u32, NumberError> {
    let limit = u64::from(ringattn::plan::MAX_PRICED_RANKS);
    Ok(within(text, limit, " ranks that are priced")? as u32)
}

/// Heads or a head dimension.
pub(crate) fn size(text: &str) -> Result<usize, NumberError> {
    Ok(within(text, 1 << 24, "")? as usize)
}

/// A speed.
pub(crate) fn positive(text: &str) -> Result<f64, NumberError> {
    number(text).and_then(|speed| {
        let fine = speed.is_finite() && speed > 0.0;
        if fine { Ok(speed) } else { Err(NumberError::NotPositive) }
    })
}

/// A time that may be 0.
pub(crate) fn not_negative(text: &str) -> Result<f64, NumberError> {
    number(text).and_then(|time| {
        let fine = time.is_finite() && time >= 0.0;
        if fine { Ok(time) } else { Err(NumberError::Negative) }
    })
}

/// Threads of a rank.
pub(crate) fn threads(text: &str) -> Result<usize, NumberError> {
    Ok(within(text, 1024, " threads per rank")? as usize)
}

fn within(text: &str, most: u64, why: &'static str) -> Result<u64, NumberError> {
    let range = NumberError::Range { least: 1, most, why };
    match count(text) {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        Ok(_) | Err(NumberError::NotWhole | NumberError::TooLarge) => Err(range),
        Err(error) => Err(error),
    }
}

/// A span of time in seconds, fractions allowed.
pub(crate) fn seconds(text: &str) -> Result<Duration, NumberError> {
    let seconds = number(text)?;
    if !(seconds > 0.0 && seconds <= 1e9) {
        return Err(NumberError::Seconds);
    }
    // Less than a nanosecond would be none at all.
    Ok(Duration::from_secs_f64(seconds).max(Duration::from_nanos(1)))
}

/// A factor of the logits.
pub(crate) fn scale(text: &str) -> Result<f64, NumberError> {
    let scale = number(text)?;
    if (scale as f32).is_finite() { Ok(scale) } else { Err(NumberError::NotFinite) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_and_exponents_are_exact() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("8e10", 80_000_000_000),
            ("80G", 80_000_000_000),
            ("512M", 512_000_000),
            ("1.1G", 1_100_000_000),
            ("2k", 2000),
            ("16Gi", 16 << 30),
            ("0.5Ki", 512),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(count(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn integers_have_either_sign() {
        for (text, expected) in [
            ("-1", -1),
            ("+2", 2),
            ("-4k", -4000),
            ("80G", 80_000_000_000),
            ("-8e10", -80_000_000_000),
            ("-0.5Ki", -512),
            ("9223372036854775807", i64::MAX),
            ("-8192Pi", i64::MIN),
        ] {
            assert_eq!(integer(text), Ok(expected), "{text}");
        }
        for text in ["1.5", "-1.0001k", "8192Pi", "-8193Pi", "1e19", "99999999999999999999"] {
            assert_eq!(integer(text), Err(NumberError::NotInteger), "{text}");
        }
        for text in ["", "-", "-k", "nan", "--1", "4 k"] {
            assert_eq!(integer(text), Err(NumberError::NotANumber), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "G", "nan", "inf", "infinity", "1e", "0x10", "1 G", "1GB", "1e3G", "--1"] {
            assert_eq!(count(text), Err(NumberError::NotANumber), "{text}");
        }
        for text in ["-1", "1.5", "1.0001k"] {
            assert_eq!(count(text), Err(NumberError::NotWhole), "{text}");
        }
        assert_eq!(count("1e20"), Err(NumberError::TooLarge));
        assert_eq!(seconds("0"), Err(NumberError::Seconds));
        assert_eq!(seconds("1e10"), Err(NumberError::Seconds));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(scale("1e39"), Err(NumberError::NotFinite));
        assert_eq!(scale("-0.5"), Ok(-0.5));
        assert_eq!(ranks("1024"), Ok(1024));
        assert!(ranks("0").is_err() && ranks("1025").is_err() && ranks("1e30").is_err());
    }
}
