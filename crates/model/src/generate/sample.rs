//! From logits to the next token, on one rank.
//!
//! In this order: the repetition penalty `r` of tokens that occurred (`l / r` for `l > 0`, else `l r`;
//! 1909.05858); with temperature 0 the largest logit, the lowest id of several; else `p = softmax(l /
//! t)`, of which the `k` largest are kept, of these the fewest whose sum reaches `top_p`, and of these
//! all from `min_p` times the largest; one is drawn with ChaCha8, whose stream is the same everywhere.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use thiserror::Error;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the most likely token; 1 draws from the model's own distribution.
    pub temperature: f64,
    /// Draw from the so many most likely tokens.
    pub top_k: Option<usize>,
    /// Draw from the fewest most likely tokens that have this probability together.
    pub top_p: f64,
    /// Draw from tokens that have at least this part of the largest probability.
    pub min_p: f64,
    /// Above 1, tokens that occurred before become less likely.
    pub repetition_penalty: f64,
    /// Where the random numbers begin.
    pub seed: u64,
}

impl Default for Sampling {
    /// The most likely token.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
        }
    }
}

/// An option outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("{option} is {actual}, expected {expected}")]
pub struct SamplingError {
    /// Which option.
    pub option: &'static str,
    /// Its range.
    pub expected: &'static str,
    /// What was asked for.
    pub actual: f64,
}

impl Sampling {
    /// Whether every option is in its range.
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let top_k = self.top_k.map_or(1.0, |k| k as f64);
        for (option, expected, actual, fine) in [
            (
                "the temperature",
                "a number from 0",
                self.temperature,
                self.temperature >= 0.0 && self.temperature.is_finite(),
            ),
            ("top-k", "at least 1", top_k, top_k >= 1.0),
            ("top-p", "above 0, at most 1", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0),
            ("min-p", "0 to 1", self.min_p, (0.0..=1.0).contains(&self.min_p)),
            (
                "the repetition penalty",
                "a number above 0",
                self.repetition_penalty,
                self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite(),
            ),
        ] {
            if !fine {
                return Err(SamplingError { option, expected, actual });
            }
        }
        Ok(())
    }
}

/// Chooses tokens one after another.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    options: Sampling,
    random: ChaCha8Rng,
    occurred: BTreeSet<u32>,
}

/// A token and its weight.
#[derive(Clone, Copy)]
struct Candidate {
    token: u32,
    weight: f64,
}

impl Sampler {
    /// A sampler after a text of these tokens.
    pub(super) fn new(options: Sampling, text: &[u32]) -> Self {
        let random = ChaCha8Rng::seed_from_u64(options.seed);
        Self { options, random, occurred: text.iter().copied().collect() }
    }

    /// The next token after those before.
    pub(super) fn next(&mut self, logits: &[f32]) -> u32 {
        let token = if self.options.temperature == 0.0 {
            self.largest(logits)
        } else {
            let candidates = self.candidates(logits);
            self.draw(&candidates)
        };
        self.occurred.insert(token);
        token
    }

    fn penalised(&self, token: u32, logit: f32) -> f64 {
        let (logit, penalty) = (f64::from(logit), self.options.repetition_penalty);
        match self.occurred.contains(&token) {
            true if logit > 0.0 => logit / penalty,
            true => logit * penalty,
            false => logit,
        }
    }

    fn logits<'a>(&'a self, logits: &'a [f32]) -> impl Iterator<Item = (u32, f64)> + 'a {
        let plain = self.options.repetition_penalty == 1.0;
        (0..).zip(logits).map(move |(token, &logit)| {
            (token, if plain { f64::from(logit) } else { self.penalised(token, logit) })
        })
    }

    fn largest(&self, logits: &[f32]) -> u32 {
        let first = (0, f64::NEG_INFINITY);
        let later = |best: (u32, f64), next: (u32, f64)| if next.1 > best.1 { next } else { best };
        self.logits(logits).fold(first, later).0
    }

    /// What may be drawn, the most likely first; equals in the order of ids.
    fn candidates(&self, logits: &[f32]) -> Vec<Candidate> {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.options;
        let mut all: Vec<Candidate> =
            self.logits(logits).map(|(token, weight)| Candidate { token, weight }).collect();
        let by_weight = |a: &Candidate, b: &Candidate| {
            b.weight.partial_cmp(&a.weight).unwrap_or(Ordering::Equal).then(a.token.cmp(&b.token))
        };
        let kept = top_k.unwrap_or(all.len()).min(all.len());
        if kept < all.len() {
            all.select_nth_unstable_by(kept, by_weight);
            all.truncate(kept);
        }
        all.sort_unstable_by(by_weight);
        let top = all.first().map_or(0.0, |first| first.weight);
        for candidate in &mut all {
            candidate.weight = ((candidate.weight - top) / temperature).exp();
        }
        let total: f64 = all.iter().map(|candidate| candidate.weight).sum();
        let mut sum = 0.0;
        let reached = all.iter().position(|candidate| {
            sum += candidate.weight;
            sum >= top_p * total
        });
        all.truncate(reached.map_or(all.len(), |last| last + 1));
        // The largest weight is 1.
        all.retain(|candidate| candidate.weight >= min_p);
        all
    }

    fn draw(&mut self, candidates: &[Candidate]) -> u32 {
        let total: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
        // 53 random bits, in [0, 1).
        let unit = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut rest = unit * total;
        for candidate in candidates {
            rest -= candidate.weight;
            if rest < 0.0 {
                return candidate.token;
            }
        }
        candidates.last().map_or(0, |last| last.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::logprob;
    use ringattn_engine::cpu::Isa;

    const LOGITS: [f32; 5] = [1.0, 3.0, 3.0, -1.0, 2.0];

    fn drawn(options: Sampling, text: &[u32]) -> BTreeSet<u32> {
        (0..2000)
            .map(|seed| Sampler::new(Sampling { seed, ..options }, text).next(&LOGITS))
            .collect()
    }

    #[test]
    fn greedy_takes_the_lowest_of_the_largest() {
        let mut sampler = Sampler::new(Sampling::default(), &[]);
        assert_eq!(sampler.next(&LOGITS), 1);
        let penalty = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
        let mut sampler = Sampler::new(penalty, &[2]);
        // Token 1, then 4 (2.0) before the penalised 1 and 2 (1.5).
        assert_eq!([sampler.next(&LOGITS), sampler.next(&LOGITS)], [1, 4]);
        // A negative logit is multiplied.
        assert_eq!(Sampler::new(penalty, &[3]).penalised(3, -1.0), -2.0);
    }

    #[test]
    fn each_option_narrows_what_is_drawn() {
        let warm = Sampling { temperature: 2.0, ..Sampling::default() };
        let set = |ids: &[u32]| ids.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(drawn(warm, &[]), set(&[0, 1, 2, 3, 4]));
        assert_eq!(drawn(Sampling { top_k: Some(2), ..warm }, &[]), set(&[1, 2]));
        assert_eq!(drawn(Sampling { top_k: Some(1), ..warm }, &[]), set(&[1]));
        // Weights 1, 1, 0.61, 0.37, 0.14 of 3.11: two reach 0.64, three 0.84.
        assert_eq!(drawn(Sampling { top_p: 0.6, ..warm }, &[]), set(&[1, 2]));
        assert_eq!(drawn(Sampling { top_p: 0.7, ..warm }, &[]), set(&[1, 2, 4]));
        assert_eq!(drawn(Sampling { min_p: 0.5, ..warm }, &[]), set(&[1, 2, 4]));
        assert_eq!(drawn(Sampling { temperature: 0.01, ..warm }, &[]), set(&[1, 2]));
    }

    #[test]
    fn frequencies_follow_the_distribution_and_the_seed() {
        let warm = Sampling { temperature: 1.0, seed: 7, ..Sampling::default() };
        let sequence = |options| {
            let mut sampler = Sampler::new(options, &[]);
            (0..20_000).map(|_| sampler.next(&LOGITS)).collect::<Vec<_>>()
        };
        let tokens = sequence(warm);
        assert_eq!(tokens, sequence(warm));
        assert_ne!(tokens, sequence(Sampling { seed: 8, ..warm }));
        for token in 0..5 {
            let count = tokens.iter().filter(|&&t| t == token).count() as f64;
            let p = logprob(Isa::detect(), &LOGITS, token).exp();
            // Five standard deviations of a binomial count.
            let bound = 5.0 * (20_000.0 * p * (1.0 - p)).sqrt();
            assert!((count - 20_000.0 * p).abs() < bound, "{token}: {count}");
        }
    }

    #[test]
    fn options_outside_their_range_are_named() {
        let plain = Sampling::default();
        assert_eq!(plain.validate(), Ok(()));
        for (options, name) in [
            (Sampling { temperature: -1.0, ..plain }, "temperature"),
            (Sampling { temperature: f64::NAN, ..plain }, "temperature"),
            (Sampling { top_k: Some(0), ..plain }, "top-k"),
            (Sampling { top_p: 0.0, ..plain }, "top-p"),
            (Sampling { min_p: 1.5, ..plain }, "min-p"),
            (Sampling { repetition_penalty: 0.0, ..plain }, "repetition penalty"),
        ] {
            assert!(options.validate().unwrap_err().to_string().contains(name));
        }
    }
}
