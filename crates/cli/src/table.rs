//! Aligned tables, which are Markdown as well.

use std::fmt::Write;

/// `lines` under `titles`. Columns whose title is in `words` begin at the left; the others hold
/// numbers, which end at the right.
pub(crate) fn aligned<const COLUMNS: usize>(
    titles: &[&str; COLUMNS],
    words: &[&str],
    lines: &[[String; COLUMNS]],
) -> String {
    let titles = titles.map(str::to_owned);
    let is_words = |column: usize| words.contains(&titles[column].as_str());
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let cells = lines.iter().chain([&titles]).map(|cells| cells[column].chars().count());
        cells.max().unwrap_or_default()
    });
    let padded = |cells: &[String; COLUMNS]| -> [String; COLUMNS] {
        std::array::from_fn(|column| {
            let (cell, width) = (&cells[column], widths[column]);
            if is_words(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        })
    };
    let rule = std::array::from_fn(|column| {
        let end = if is_words(column) { "-" } else { ":" };
        format!("{}{end}", "-".repeat(widths[column].saturating_sub(1)))
    });
    let mut text = String::new();
    for cells in [padded(&titles), rule].into_iter().chain(lines.iter().map(padded)) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}
