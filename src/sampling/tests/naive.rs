//! The stages in the plainest way, for comparison: one long match over them, because each is a few lines.

use crate::rng::Rng;
use crate::sampling::{Lists, Params, Stage};

/// The stages in the plainest way: everything is sorted, and everything is counted again.
struct Naive<'a> {
    params: Params,
    lists: &'a Lists,
    tokens: &'a [u32],
    /// Logit and token.
    left: Vec<(f64, u32)>,
    temperature: f64,
}

impl Naive<'_> {
    fn sort(&mut self) {
        self.left.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    }

    fn probabilities(&self) -> Vec<f64> {
        let most = self.left.iter().map(|(logit, _)| *logit).fold(f64::MIN, f64::max);
        let weights: Vec<f64> = self.left.iter().map(|(logit, _)| ((logit - most) / self.temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    fn spread(&self) -> (f64, f64) {
        let count = self.left.len() as f64;
        let mean = self.left.iter().map(|(logit, _)| logit).sum::<f64>() / count;
        (mean, (self.left.iter().map(|(logit, _)| (logit - mean).powi(2)).sum::<f64>() / count).sqrt())
    }

    /// Keeps candidates whose logit is wanted, and always the first.
    fn filter(&mut self, wanted: impl Fn(f64) -> bool) {
        self.sort();
        let first = self.left[0];
        self.left.retain(|candidate| *candidate == first || wanted(candidate.0));
    }

    /// Runs one stage. It exceeds 60 lines because it defines every stage in one place.
    fn run(&mut self, stage: Stage, rng: &mut Rng) {
        let params = self.params;
        match stage {
            Stage::Penalties => {
                let from = match params.penalty_last_n {
                    0 => 0,
                    window => self.tokens.len().saturating_sub(window),
                };
                for (logit, token) in &mut self.left {
                    let count = self.tokens[from..].iter().filter(|other| *other == token).count();
                    if count > 0 {
                        let penalty = params.repetition_penalty;
                        let before = *logit as f32;
                        let after = if before > 0.0 { before / penalty } else { before * penalty };
                        let rest = count as f32 * params.frequency_penalty + params.presence_penalty;
                        *logit = f64::from(after - rest);
                    }
                }
            }
            Stage::Dry => {
                let from = match params.dry_last_n {
                    0 => 0,
                    window => self.tokens.len().saturating_sub(window),
                };
                let tokens = &self.tokens[from..];
                for (logit, token) in &mut self.left {
                    let mut longest = 0;
                    for at in (0..tokens.len()).filter(|&at| tokens[at] == *token) {
                        let mut length = 0;
                        while length < at
                            && tokens[at - 1 - length] == tokens[tokens.len() - 1 - length]
                            && !self.lists.dry_breakers.contains(&tokens[at - 1 - length])
                        {
                            length += 1;
                        }
                        longest = longest.max(length);
                    }
                    let counts = longest > 0 && longest >= params.dry_allowed_length;
                    if params.dry_multiplier > 0.0 && counts && !self.lists.dry_breakers.contains(token) {
                        let over = (longest - params.dry_allowed_length) as f64;
                        let penalty = f64::from(params.dry_multiplier) * f64::from(params.dry_base).powf(over);
                        *logit = f64::from(*logit as f32 - penalty as f32);
                    }
                }
            }
            Stage::TopNSigma => {
                if params.top_n_sigma > 0.0 {
                    self.sort();
                    let least = self.left[0].0 - f64::from(params.top_n_sigma) * self.spread().1;
                    self.filter(|logit| logit >= least);
                }
            }
            Stage::TopK => {
                self.sort();
                if params.top_k > 0 {
                    self.left.truncate(params.top_k);
                }
                if params.adaptive_top_k {
                    let (mean, deviation) = self.spread();
                    let least = (mean + 2.0 * deviation).min(self.left[0].0);
                    self.filter(|logit| logit >= least);
                }
            }
            Stage::TypicalP => {
                if params.typical_p < 1.0 {
                    let probabilities = self.probabilities();
                    let entropy: f64 = probabilities.iter().map(|p| -p * p.ln()).sum();
                    let mut scored: Vec<(f64, f64, (f64, u32))> = probabilities
                        .iter()
                        .zip(&self.left)
                        .map(|(p, candidate)| ((-p.ln() - entropy).abs(), *p, *candidate))
                        .collect();
                    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
                    let mut sum = 0.0;
                    let cut = scored.iter().position(|(_, p, _)| {
                        sum += p;
                        sum > f64::from(params.typical_p)
                    });
                    scored.truncate(cut.map_or(scored.len(), |cut| cut + 1));
                    self.left = scored.into_iter().map(|(_, _, candidate)| candidate).collect();
                }
            }
            Stage::TopP => {
                self.sort();
                let probabilities = self.probabilities();
                let mut sum = 0.0;
                let mut kept = 0;
                while kept < self.left.len()
                    && (kept == 0 || params.top_p >= 1.0 || sum < f64::from(params.top_p) - 1e-13)
                {
                    sum += probabilities[kept];
                    kept += 1;
                }
                self.left.truncate(kept);
            }
            Stage::MinP => {
                self.sort();
                let (most, least, temperature) = (self.left[0].0, f64::from(params.min_p), self.temperature);
                self.filter(|logit| ((logit - most) / temperature).exp() >= least);
            }
            Stage::Xtc => {
                if params.xtc_probability > 0.0 && rng.unit() < f64::from(params.xtc_probability) {
                    self.sort();
                    let probabilities = self.probabilities();
                    let above = probabilities.iter().filter(|p| **p >= f64::from(params.xtc_threshold)).count();
                    self.left.drain(..above.saturating_sub(1));
                }
            }
            Stage::Temperature => {
                let (middle, range) = (f64::from(params.temperature), f64::from(params.dynamic_temperature));
                self.temperature = middle;
                if range > 0.0 && self.left.len() > 1 {
                    self.temperature = 1.0;
                    let entropy: f64 =
                        self.probabilities().iter().map(|p| if *p > 0.0 { -p * p.ln() } else { 0.0 }).sum();
                    let part = (entropy / (self.left.len() as f64).ln()).powf(f64::from(params.dynamic_exponent));
                    let least = (middle - range).max(0.0);
                    self.temperature = (least + (middle + range - least) * part).max(1e-6);
                }
            }
        }
    }
}

/// Returns the candidates at the end with their probabilities, the likeliest first.
pub fn naive(logits: &[f32], params: Params, lists: &Lists, tokens: &[u32], rng: &mut Rng) -> Vec<(u32, f64)> {
    let mut left: Vec<(f64, u32)> = logits.iter().enumerate().map(|(i, &l)| (f64::from(l), i as u32)).collect();
    for &(token, bias) in &lists.logit_bias {
        left[token as usize].0 = f64::from(left[token as usize].0 as f32 + bias);
    }
    left.retain(|(logit, token)| {
        let banned =
            |sequence: &Vec<u32>| sequence.last() == Some(token) && tokens.ends_with(&sequence[..sequence.len() - 1]);
        *logit > f64::NEG_INFINITY && !lists.banned_sequences.iter().any(banned)
    });
    let mut chain = Naive { params, lists, tokens, left, temperature: 1.0 };
    for &stage in &lists.samplers {
        chain.run(stage, rng);
    }
    chain.sort();
    let probabilities = chain.probabilities();
    chain.left.iter().map(|(_, token)| *token).zip(probabilities).collect()
}
