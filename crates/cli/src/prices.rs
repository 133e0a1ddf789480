//! The price of a plan as a person reads it.

use crate::summary::{Summary, plural};
use crate::table::aligned;
use ringattn::predict::{
    ChartsReport, DecodePlanReport, LayoutReport, PlanReport, SimulationReport, WaitReport,
};

const TITLES: [&str; 11] = [
    "layout",
    "block",
    "time",
    "tokens/s",
    "busy",
    "max/mean",
    "per hop",
    "beside it",
    "hidden",
    "peak K,V",
    "memory",
];
/// Waits that are listed at most.
const WAITS: usize = 3;

/// Everything in words and tables.
pub(crate) fn text(report: &PlanReport) -> String {
    let mut text = headline(report).text();
    text.push('\n');
    let lines: Vec<_> = report.layouts.iter().map(cells).collect();
    text.push_str(&aligned(&TITLES, &["layout"], &lines));
    text.push('\n');
    text.push_str(&conclusions(report).text());
    if let Some(decode) = &report.decode {
        text.push_str(&decode_text(decode, report));
    }
    if let Some(charts) = &report.charts {
        text.push_str(&charts_text(charts));
    }
    for grid in &report.grids {
        text.push('\n');
        text.push_str(&grid.text);
    }
    text
}

fn headline(report: &PlanReport) -> Summary {
    let mut summary = Summary::default();
    let PlanReport { tokens, ranks, layers, q_heads, kv_heads, head_dim, kv_dtype, .. } = report;
    let masks: Vec<_> = match &report.masks[..] {
        [one] => vec![one.mask.clone()],
        several => several.iter().map(|m| format!("{} in {} layers", m.mask, m.layers)).collect(),
    };
    summary.line(
        "plan",
        &format!(
            "{tokens} tokens on {ranks} rank{}, {layers} layer{}, {q_heads}/{kv_heads} heads of \
             {head_dim}, {}, {kv_dtype} K,V",
            plural(u64::from(*ranks)),
            plural(*layers),
            masks.join(", ")
        ),
    );
    let machine = &report.machine;
    let name = machine.name.as_deref().map_or(String::new(), |name| format!("{name}: "));
    summary.line(
        "machine",
        &format!(
            "{name}{}FLOP/s, {}B/s, {}, {}B ({})",
            metric(machine.flops),
            metric(machine.bandwidth),
            seconds(machine.latency),
            metric(machine.memory as f64),
            machine.source
        ),
    );
    if let Some(model) = &report.model {
        let dense = match (model.dense_flops_per_token, model.dense_s) {
            (Some(flops), Some(time)) => {
                format!("{}FLOP per token, {}", metric(flops as f64), seconds(time))
            }
            _ => "more than can be counted".to_owned(),
        };
        let weights = match model.weight_file_bytes {
            0 => String::new(),
            bytes => format!("; weights {}", binary(bytes)),
        };
        summary.line("model", &format!("{}; beside attention {dense}{weights}", model.family));
    }
    summary
}

fn cells(layout: &LayoutReport) -> [String; 11] {
    let fits = if layout.memory.one_layer_fits { "" } else { " too much" };
    [
        layout.layout.clone(),
        layout.block.to_string(),
        seconds(layout.attention_s),
        format!("{:.1}", layout.tokens_per_s),
        percent(layout.balance.utilisation),
        format!("{:.3}", layout.balance.pairs_max_over_mean),
        format!("{} {}", binary(layout.hop_bytes), seconds(layout.hop_s)),
        seconds(layout.compute_per_hop_s),
        percent(layout.hidden_fraction),
        binary(layout.peak_kv_bytes),
        format!("{}{fits}", binary(layout.memory.one_layer_bytes)),
    ]
}

fn conclusions(report: &PlanReport) -> Summary {
    let mut summary = Summary::default();
    let chosen = &report.recommended;
    summary.line(
        "take",
        &format!("{} in blocks of {}: {}", chosen.layout, chosen.block, chosen.reason),
    );
    for other in &report.unpriced {
        summary.line("no price", &format!("{}: {}", other.layout, other.reason));
    }
    if let Some(block) = &report.smallest_block {
        summary.line(
            "block",
            &format!(
                "a hop is hidden from {} tokens per rank on ({} for six such blocks)",
                block.tokens, block.six_blocks
            ),
        );
    }
    let longest = &report.longest_context;
    summary.line(
        "context",
        &format!(
            "{} tokens fit with one layer's K,V at a time, {} with all layers'",
            longest.one_layer, longest.all_layers
        ),
    );
    for simulation in report.simulation.iter().flatten() {
        summary.line("simulated", &simulated(simulation));
    }
    summary
}

/// One layer of a layout in a line.
fn simulated(simulation: &SimulationReport) -> String {
    let wait = |wait: &WaitReport| {
        let WaitReport { rank, peer, cause, seconds: time } = wait;
        format!("{rank} for {peer} {} ({cause})", seconds(*time))
    };
    let waits: Vec<_> = simulation.waits.iter().take(WAITS).map(wait).collect();
    let waits = if waits.is_empty() { "no waits".to_owned() } else { waits.join(", ") };
    format!("{} {} a layer; longest waits: {waits}", simulation.layout, seconds(simulation.end_s))
}

/// The attention of one new token, side by side.
fn decode_text(decode: &[DecodePlanReport], report: &PlanReport) -> String {
    let lines: Vec<_> = decode
        .iter()
        .map(|step| {
            let moved = u64::try_from(step.moved_bytes).unwrap_or(u64::MAX);
            [
                step.schedule.clone(),
                step.rounds_per_layer.to_string(),
                binary(step.received_bytes),
                binary(moved),
                seconds(step.simulated_s),
            ]
        })
        .collect();
    let titles = ["schedule", "rounds a layer", "a rank receives", "all move", "simulated"];
    format!(
        "\nThe next token's attention, {} layer{}, {}:\n\n{}",
        report.layers,
        plural(report.layers),
        report.layout,
        aligned(&titles, &["schedule"], &lines)
    )
}

fn charts_text(charts: &ChartsReport) -> String {
    let throughput: Vec<_> = charts
        .throughput
        .iter()
        .map(|point| {
            let share = percent(point.share_of_peak);
            [point.layout.clone(), point.block_tokens.to_string(), seconds(point.seconds), share]
        })
        .collect();
    let spikes: Vec<_> = charts
        .latency_spike
        .iter()
        .map(|point| [point.layout.clone(), seconds(point.spike_s), seconds(point.added_s)])
        .collect();
    format!(
        "\nThroughput by the tokens of a rank:\n\n{}\nOne late message:\n\n{}",
        aligned(&["layout", "tokens per rank", "time", "of peak"], &["layout"], &throughput),
        aligned(&["layout", "late by", "adds"], &["layout"], &spikes),
    )
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// At most three digits behind the point, and a decimal prefix.
fn metric(number: f64) -> String {
    let prefixes = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let found = prefixes.into_iter().find(|(unit, _)| number >= *unit);
    let (unit, prefix) = found.unwrap_or((1.0, ""));
    let digits = format!("{:.3}", number / unit);
    format!("{} {prefix}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// Bytes with a binary prefix.
fn binary(bytes: u64) -> String {
    let prefixes = [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match prefixes.iter().find(|(power, _)| bytes >= 1 << power) {
        Some((power, prefix)) => format!("{:.1} {prefix}", bytes as f64 / 2_f64.powi(*power)),
        None => format!("{bytes} B"),
    }
}

/// A time in the unit in which it has digits before the point.
fn seconds(time: f64) -> String {
    match time {
        0.0 => "0 s".to_owned(),
        time if time < 1e-3 => format!("{:.1} us", time * 1e6),
        time if time < 1.0 => format!("{:.2} ms", time * 1e3),
        time if time < 7200.0 => format!("{time:.2} s"),
        time => format!("{:.2} h", time / 3600.0),
    }
}
