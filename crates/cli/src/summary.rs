//! The few lines that a person reads after a run.

use ringattn::{AttendResult, GenerateResult, RankReport, Report, ScoreOutput, ScoreResult};
use std::fmt::Write;

/// Lines of a label and a text.
#[derive(Debug, Default)]
pub(crate) struct Summary(String);

impl Summary {
    /// What a person wants to know after `score`.
    pub(crate) fn of_score(output: &ScoreOutput, report: &Report<ScoreResult>) -> Self {
        let mut summary = Self::default();
        let sums = &output.summary;
        let scored = sums.scored_tokens;
        summary.line("tokens", &format!("{} ({scored} scored)", report.tokens));
        let perplexity = match (sums.perplexity, sums.mean_nll) {
            (Some(perplexity), Some(nll)) => format!("{perplexity:.4} (mean nll {nll:.5})"),
            _ => "none: the first token has no probability".to_owned(),
        };
        summary.line("perplexity", &perplexity);
        summary.run(report);
        summary
    }

    /// What a person wants to know after `generate`.
    pub(crate) fn of_generate(report: &Report<GenerateResult>) -> Self {
        let mut summary = Self::default();
        let result = &report.result;
        let cached = match result.cached_tokens {
            0 => String::new(),
            cached => format!(" behind {cached} cached"),
        };
        let (speed, seconds) = (result.prefill_tokens_per_s, result.prefill_s);
        let prompt = result.prompt_tokens;
        summary.line("prompt", &format!("{prompt}{cached}, {speed:.1} tokens/s ({seconds:.2} s)"));
        let speed = match result.decode_tokens_per_s {
            Some(speed) => format!(", {speed:.1} tokens/s after the first"),
            None => String::new(),
        };
        let ended = result.finish.replace('_', " ");
        summary.line("new", &format!("{}{speed} (ended by {ended})", result.generated_tokens));
        let (ranks, threads) = (report.ranks, report.threads);
        let decode = &result.decode;
        let text = format!(
            "{ranks} rank{} of {threads} thread{}, {}, {} rounds a layer, {} {}",
            plural(u64::from(ranks)),
            plural(threads as u64),
            decode.schedule,
            decode.rounds_per_layer,
            report.kv_dtype,
            report.isa,
        );
        summary.line("decode", &text);
        let bytes = result.cache_bytes_per_rank.iter().max().copied().unwrap_or(0);
        summary.line("cache", &format!("at most {:.1} MB a rank", bytes as f64 / 1e6));
        let law = if report.law.holds { "holds" } else { "BROKEN" };
        summary.line("law", law);
        summary
    }

    /// What a person wants to know after `attend`.
    pub(crate) fn of_attend(report: &Report<AttendResult>) -> Self {
        let mut summary = Self::default();
        let Report { tokens, q_heads, kv_heads, head_dim, mask, .. } = report;
        let queries = report.result.queries;
        let over = if queries == *tokens { String::new() } else { format!(" over {tokens} keys") };
        summary.line("tokens", &format!("{queries}{over}, {mask}"));
        summary.line("heads", &format!("{q_heads} over {kv_heads}, dimension {head_dim}"));
        summary.run(report);
        summary
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, label: &str, text: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{label:<12}{text}");
    }

    /// All lines.
    pub(crate) fn text(self) -> String {
        self.0
    }

    fn run<R>(&mut self, report: &Report<R>) {
        let Report { ranks, threads, layout, block, kv_dtype, isa, .. } = report;
        let (speed, wall) = (report.tokens_per_s, report.wall_s);
        self.line("speed", &format!("{speed:.1} tokens/s ({wall:.2} s)"));
        self.line(
            "ring",
            &format!(
                "{ranks} rank{} of {threads} thread{}, {layout} in blocks of {block}, \
                 {kv_dtype} K,V, {isa}",
                plural((*ranks).into()),
                plural(*threads as u64),
            ),
        );
        let law = if report.law.holds { "holds" } else { "BROKEN" };
        let whole = report.law.kv_bytes_total_per_layer.saturating_mul(report.layers as u64);
        let kept = shares(report, whole, |rank| rank.resident_kv_bytes);
        let received = shares(report, whole, |rank| rank.received_bytes);
        let text = format!("{law}: a rank kept {kept} of K,V and received {received}");
        self.line("law", &text);
        if *ranks > 1 {
            let hidden = 100.0 * report.overlap.hidden_fraction;
            self.line("overlap", &format!("{hidden:.1} % of the transfer time was hidden"));
        }
    }
}

/// The ending of a noun.
pub(crate) fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The least and the most of a rank's bytes, in percent of `whole`.
fn shares<R>(report: &Report<R>, whole: u64, bytes: impl Fn(&RankReport) -> u64) -> String {
    let percent = |bytes: Option<u64>| 100.0 * bytes.unwrap_or(0) as f64 / whole.max(1) as f64;
    let least = format!("{:.1}", percent(report.per_rank.iter().map(&bytes).min()));
    let most = format!("{:.1} %", percent(report.per_rank.iter().map(&bytes).max()));
    if most.starts_with(&least) { most } else { format!("{least} to {most}") }
}
