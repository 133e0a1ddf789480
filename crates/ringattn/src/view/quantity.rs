//! Numbers as a person reads them: bytes, counts, times, shares. Four digits are the most that is shown of
//! anything but small whole numbers.

/// Bytes in binary units: `16 KiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A count: whole below a million, then `8.39 M`.
pub(crate) fn count(count: u64) -> String {
    if count < 1_000_000 {
        return grouped(count);
    }
    scaled(count as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// A time: `13.1 us` with the proper sign for micro.
pub(crate) fn nanoseconds(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000_000_000 => scaled(nanoseconds as f64, 1000.0, &["ns", "µs", "ms"]),
        _ => format!("{} s", significant(nanoseconds as f64 / 1e9)),
    }
}

/// A rate in decimal units: `10 GFLOP/s`.
pub(crate) fn rate(value: f64, unit: &str) -> String {
    let text = scaled(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"]);
    let space = if text.ends_with(|c: char| c.is_ascii_digit()) { " " } else { "" };
    format!("{text}{space}{unit}")
}

/// A part of a whole in percent, one decimal where there is one; all of nothing is 100 %.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { 100.0 * part / whole } else { 100.0 };
    let text = format!("{share:.1}");
    format!("{} %", text.strip_suffix(".0").unwrap_or(&text))
}

/// `1 token`, `4 tokens`.
pub(crate) fn of(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// `0`, `0 and 3`, `0, 1 and 3`.
pub(crate) fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A number of the reduction: signed, four decimals.
pub(crate) fn decimal(value: f64) -> String {
    let text = format!("{value:.4}");
    if text.starts_with('-') { text.replacen('-', "\u{2212}", 1) } else { text }
}

/// Digits in groups of three, divided by a thin space that does not break.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digits.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    // From 999.95 on, one decimal would round up to the next unit.
    while value >= step * 0.99995 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / step, next);
    }
    format!("{} {unit}", significant(value)).trim_end().to_owned()
}

/// Three digits, without zeros at the end.
fn significant(value: f64) -> String {
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (text, expected) in [
            (bytes(0), "0 B"),
            (bytes(1023), "1023 B"),
            (bytes(16384), "16 KiB"),
            (bytes(1_500_000), "1.43 MiB"),
            (bytes(u64::MAX), "16 EiB"),
            (count(999_999), "999\u{202f}999"),
            (count(1234), "1234"),
            (count(8_390_000), "8.39 M"),
            (nanoseconds(0), "0 ns"),
            (nanoseconds(26_214), "26.2 µs"),
            (nanoseconds(1_500_000_000), "1.5 s"),
            (rate(1e10, "FLOP/s"), "10 GFLOP/s"),
            (rate(5.0, "byte/s"), "5 byte/s"),
            (percent(1.0, 4.0), "25 %"),
            (percent(1.0, 8.0), "12.5 %"),
            (percent(0.0, 0.0), "100 %"),
            (of(1, "token"), "1 token"),
            (decimal(-0.5), "\u{2212}0.5000"),
        ] {
            assert_eq!(text, expected);
        }
        let names = ["0", "1", "3"].map(str::to_owned);
        assert_eq!(listed(&names), "0, 1 and 3");
        assert_eq!(listed(&names[..1]), "0");
    }
}
