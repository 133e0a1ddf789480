//! Figures of a benchmark as an aligned table, which is Markdown as well.

use crate::table::aligned;
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
    let lines: Vec<_> = limits(report).chain(report.rows.iter().map(cells)).collect();
    text.push_str(&aligned(&TITLES, &WORDS, &lines));
    for row in &report.rows {
        if let Some(ratio) = row.cpu_vs_one_rank {
            let ranks = row.case.ranks;
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "\nA ring of {ranks} ranks takes {ratio:.3} times the processor \
                time of one rank on as many processors."
            );
        }
    }
    text
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
