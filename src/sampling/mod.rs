//! From logits to a token: penalties, then what is kept, then temperature, then the draw.
//!
//! The order is llama.cpp's: repetition penalty, top-k, top-p, min-p, temperature. Top-k, top-p and min-p each keep the likeliest
//! tokens down to some point, so that together they keep the shortest of the three; top-p's probabilities are those among what
//! top-k left. Ties go to the lower id. All of it is deterministic: the same logits, parameters and seed draw the same token in
//! every runtime.

mod keep;
#[cfg(test)]
mod tests;

use crate::error::{Error, ErrorKind, Result};
use crate::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// 0 keeps all.
    pub top_k: usize,
    /// 1 keeps all.
    pub top_p: f32,
    /// 0 keeps all.
    pub min_p: f32,
    /// 1 is off.
    pub repetition_penalty: f32,
    pub seed: u64,
}

/// What the chain knows of single tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lists {}

impl Default for Params {
    /// Greedy.
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 }
    }
}

impl Params {
    pub fn check(&self) -> Result<()> {
        let ranges = [
            ("temperature", self.temperature, 0.0, 100.0),
            ("topP", self.top_p, 0.0, 1.0),
            ("minP", self.min_p, 0.0, 1.0),
            ("repetitionPenalty", self.repetition_penalty, 0.01, 100.0),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(Error::new(ErrorKind::InvalidArgument, "out of range")
                    .option(name)
                    .expected(format_args!("{least} to {most}"), value));
            }
        }
        Ok(())
    }
}

/// One request's way of choosing.
#[derive(Debug)]
pub struct Sampler {
    params: Params,
    rng: Rng,
    /// Tokens that the repetition penalty knows, each once.
    seen: Vec<u32>,
    penalised: Vec<f32>,
    kept: Vec<keep::Candidate>,
}

impl Sampler {
    pub fn new(params: Params, _lists: Lists) -> Result<Self> {
        params.check()?;
        let rng = Rng::new(params.seed);
        Ok(Self { params, rng, seen: Vec::new(), penalised: Vec::new(), kept: Vec::new() })
    }

    /// Tells the sampler of a token in the conversation.
    pub fn accept(&mut self, token: u32) {
        if self.params.repetition_penalty != 1.0
            && let Err(at) = self.seen.binary_search(&token)
        {
            self.seen.insert(at, token);
        }
    }

    /// Chooses a token. Logits that are not finite are an error: they would make every choice a lie.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        check_finite(logits)?;
        Ok(self.choose(logits))
    }

    /// The same among those that are not -∞, which says that a token is forbidden.
    pub fn sample_masked(&mut self, logits: &[f32]) -> Result<u32> {
        let wrong = |what| Error::new(ErrorKind::NonFinite, what).option("logits");
        if let Some(token) = logits.iter().position(|&logit| logit.is_nan() || logit == f32::INFINITY) {
            return Err(wrong(format!("the logit of token {token} is not finite")).expected("a number", logits[token]));
        }
        if logits.iter().all(|&logit| logit == f32::NEG_INFINITY) {
            return Err(wrong("every token is forbidden".to_owned()));
        }
        Ok(self.choose(logits))
    }

    fn choose(&mut self, logits: &[f32]) -> u32 {
        let Self { params, rng, seen, penalised, kept } = self;
        let logits = if params.repetition_penalty == 1.0 || seen.is_empty() {
            logits
        } else {
            penalised.clear();
            penalised.extend_from_slice(logits);
            for &token in seen.iter() {
                if let Some(logit) = penalised.get_mut(token as usize) {
                    let penalty = params.repetition_penalty;
                    *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
                }
            }
            penalised
        };
        if params.temperature == 0.0 {
            return argmax(logits) as u32;
        }
        keep::likeliest(logits, params, kept);
        draw(kept, params.temperature, rng)
    }
}

pub fn check_finite(logits: &[f32]) -> Result<()> {
    // A sum is NaN or infinite as soon as one of its terms is, and quick.
    if logits.chunks(64).all(|chunk| chunk.iter().map(|logit| logit * 0.0).sum::<f32>() == 0.0) {
        return Ok(());
    }
    let (token, logit) = logits.iter().enumerate().find(|(_, logit)| !logit.is_finite()).unwrap_or((0, &f32::NAN));
    Err(Error::new(ErrorKind::NonFinite, format!("the logit of token {token} is not finite"))
        .expected("a finite number", logit))
}

/// The first of the largest.
pub fn argmax(logits: &[f32]) -> usize {
    let most = logits.iter().fold(f32::NEG_INFINITY, |most, &logit| if most < logit { logit } else { most });
    logits.iter().position(|&logit| logit == most).unwrap_or(0)
}

/// Draws in proportion to e^(logit / temperature).
fn draw(kept: &[keep::Candidate], temperature: f32, rng: &mut Rng) -> u32 {
    let most = kept.iter().fold(f32::NEG_INFINITY, |most, kept| if most < kept.logit { kept.logit } else { most });
    let weight = |logit: f32| libm::exp(f64::from(logit - most) / f64::from(temperature));
    let total: f64 = kept.iter().map(|kept| weight(kept.logit)).sum();
    let mut left = rng.unit() * total;
    for candidate in kept {
        left -= weight(candidate.logit);
        if left < 0.0 {
            return candidate.token;
        }
    }
    // Rounding can leave a hair over; the draw then fell to the last that has any weight.
    kept.iter().rev().find(|kept| weight(kept.logit) > 0.0).map_or(0, |kept| kept.token)
}
