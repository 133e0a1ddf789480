//! Figures of a benchmark as an aligned table, which is Markdown as well.

use ringattn::bench::{BenchReport, BenchRow, Case, Speed};
use std::fmt::Write;

const COLUMNS: usize = 11;
const TITLES: [&str; COLUMNS] = [
    "what",
    "dtype",
    "heads",
    "d",
    "tokens",
    "mask",
    "threads",
    "ranks",
    "GFLOP/s",
    "GB/s",
    "% of limit",
];
/// Columns of words; the others hold numbers, which end at the right.
const WORDS: [&str; 3] = ["what", "dtype", "mask"];

/// Machine, commit and limits in words, then a line per row.
pub(crate) fn table(report: &BenchReport) -> String {
    let mut text = format!("{}, commit {}\n\n", report.machine, report.commit);
    let lines: Vec<[String; COLUMNS]> = [TITLES.map(str::to_owned)]
        .into_iter()
        .chain(limits(report))
        .chain(report.rows.iter().map(cells))
        .collect();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        lines.iter().map(|cells| cells[column].len()).max().unwrap_or_default()
    });
    let mut line = |cells: [String; COLUMNS]| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    let rule = |column: usize| {
        let end = if is_words(column) { "-" } else { ":" };
        format!("{}{end}", "-".repeat(widths[column] - 1))
    };
    for (index, cells) in lines.iter().enumerate() {
        line(std::array::from_fn(|column| padded(&cells[column], column, widths[column])));
        if index == 0 {
            line(std::array::from_fn(rule));
        }
    }
    for row in &report.rows {
        if let Some(ratio) = row.cpu_vs_one_rank {
            let ranks = row.case.ranks;
            let _ = writeln!(
                text,
                "\nA ring of {ranks} ranks takes {ratio:.3} times the processor \
                time of one rank."
            );
        }
    }
    text
}

fn is_words(column: usize) -> bool {
    WORDS.contains(&TITLES[column])
}

fn padded(cell: &str, column: usize, width: usize) -> String {
    if is_words(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
}

/// A line for the limits of each number of threads.
fn limits(report: &BenchReport) -> impl Iterator<Item = [String; COLUMNS]> {
    report.limits.iter().map(|limit| {
        let mut cells = [const { String::new() }; COLUMNS];
        cells[0] = "limit".to_owned();
        cells[6] = limit.threads.to_string();
        cells[8] = format!("{:.1}", limit.peak_gflops);
        cells[9] = limit.read_gb_s.map_or(String::new(), |speed| format!("{speed:.1}"));
        cells
    })
}

fn cells(row: &BenchRow) -> [String; COLUMNS] {
    let Case { what, dtype, query_heads, kv_heads, head_dim, tokens, mask, .. } = &row.case;
    let (gflops, gb_s) = match row.speed {
        Speed::Gflops(speed) => (format!("{speed:.1}"), String::new()),
        Speed::GbS(speed) => (String::new(), format!("{speed:.1}")),
    };
    [
        what.to_string(),
        dtype.to_string(),
        format!("{query_heads}/{kv_heads}"),
        head_dim.to_string(),
        tokens.to_string(),
        mask.to_string(),
        row.case.threads.to_string(),
        row.case.ranks.to_string(),
        gflops,
        gb_s,
        format!("{:.1}", row.percent_of_limit),
    ]
}
