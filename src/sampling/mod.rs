//! Sampling: from logits to a token.
//!
//! Logit bias and banned sequences come first. Then the stages run in the caller's order, which is llama.cpp's by default:
//! repetition, frequency and presence penalties · DRY · top-n-sigma · top-k (adaptive or not) · typical-p · top-p · min-p · XTC
//! · temperature (dynamic or not). Then a token is drawn. A stage computes probabilities among the candidates that earlier
//! stages left, at the temperature that is set by then: top-p counts within what top-k left. Ties go to the lower id. After a
//! stage that cuts by likelihood the draw goes through the candidates by likelihood, otherwise by id.
//!
//! At temperature 0 the stages that cut are skipped and the likeliest token is taken. With mirostat (version 2, Basu et al.,
//! 2021) they are skipped too, because it cuts by itself at the end.
//!
//! Everything is deterministic: the same logits, parameters and seed draw the same token in every runtime. Powers and
//! logarithms are our own or `libm`'s, in f64.

mod candidates;
pub mod flat;
mod history;
mod params;
#[cfg(test)]
mod tests;

pub use params::{Lists, Params, RANGES, Stage};

use crate::error::{Error, ErrorKind, Result};
use crate::rng::Rng;
use candidates::{CandidateSet, all, exp, exp_to_zero};
use history::History;

/// The sampler of one request: its parameters, its random numbers, and the tokens so far.
///
/// ```
/// use ternlight::sampling::{Lists, Params, Sampler};
///
/// let logits = [0.5, 3.0, 1.0];
/// let mut greedy = Sampler::new(Params::default(), Lists::default())?;
/// assert_eq!(greedy.sample(&logits)?, 1);
///
/// // A seed fixes the draws; top-k 2 leaves the tokens 1 and 2.
/// let params = Params { temperature: 1.0, top_k: 2, seed: 7, ..Params::default() };
/// let mut sampler = Sampler::new(params, Lists::default())?;
/// let token = sampler.sample(&logits)?;
/// assert!([1, 2].contains(&token));
/// sampler.accept(token);
/// # Ok::<(), ternlight::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    params: Params,
    lists: Lists,
    rng: Rng,
    history: History,
    /// Mirostat's μ: the largest surprise of a candidate, in bits.
    mu: f64,
    set: CandidateSet,
}

impl Sampler {
    /// Makes a sampler.
    ///
    /// # Errors
    /// `InvalidArgument` with the option, if a parameter is out of range.
    pub fn new(params: Params, lists: Lists) -> Result<Self> {
        params.check()?;
        Ok(Self {
            rng: Rng::new(params.seed),
            mu: 2.0 * f64::from(params.mirostat_tau),
            params,
            lists,
            history: History::default(),
            set: CandidateSet::default(),
        })
    }

    /// Adds a token of the conversation to the history that penalties, DRY and banned sequences look at.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token, &self.params);
    }

    /// Chooses a token, given a logit for each token of the vocabulary.
    ///
    /// # Errors
    /// `NonFinite` if a logit is not finite, which means that the model computed nonsense; `InvalidArgument` if bias and bans forbid
    /// every token.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        let (most, magnitude) = largest(logits);
        if magnitude.is_finite() { self.choose(logits, most) } else { Err(first_not_finite(logits)) }
    }

    /// Chooses a token among those whose logit is not −∞, which marks a forbidden token.
    ///
    /// # Errors
    /// `InvalidArgument` if a logit is NaN or +∞, or if every token is forbidden.
    pub fn sample_masked(&mut self, logits: &[f32]) -> Result<u32> {
        let (most, magnitude) = largest(logits);
        if magnitude.is_nan() || most == f32::INFINITY {
            let token = logits.iter().position(|&logit| logit.is_nan() || logit == f32::INFINITY).unwrap_or(0);
            return Err(not_finite(ErrorKind::InvalidArgument, token, logits[token]).option("logitsProcessor"));
        }
        self.choose(logits, most)
    }

    /// Whether it chooses the token of the largest logit, the first of several, whatever others are.
    pub fn needs_largest_only(&self) -> bool {
        self.greedy() && !self.changes() && self.params.logprobs.is_none()
    }

    /// Chooses a token among logits of which `most` is the largest.
    fn choose(&mut self, logits: &[f32], most: f32) -> Result<u32> {
        if self.greedy() && !self.changes() {
            // Copying all logits would take longer than the choice.
            return some_allowed(most, "logitsProcessor").map(|()| first(logits, most) as u32);
        }
        if self.run_chain(logits)? {
            return Ok(argmax(&self.set.whole) as u32);
        }
        let (token, probability) = self.set.draw(self.rng.unit());
        if self.params.mirostat_tau > 0.0 {
            let error = surprise(probability) - f64::from(self.params.mirostat_tau);
            self.mu -= f64::from(self.params.mirostat_eta) * error;
        }
        Ok(token)
    }

    fn greedy(&self) -> bool {
        self.params.temperature == 0.0 && self.lists.samplers.contains(&Stage::Temperature)
    }

    /// Tells whether a stage may change a logit.
    fn changes(&self) -> bool {
        let Self { params, lists, .. } = self;
        params.penalises()
            || params.dry_multiplier > 0.0
            || !lists.logit_bias.is_empty()
            || !lists.banned_sequences.is_empty()
    }

    /// Runs the stages. Returns whether the likeliest of the remaining tokens is to be taken.
    fn run_chain(&mut self, logits: &[f32]) -> Result<bool> {
        let greedy = self.greedy();
        let Self { params, lists, rng, history, mu, set } = self;
        let mirostat = params.mirostat_tau > 0.0;
        set.start(logits);
        for (token, bias) in &lists.logit_bias {
            set.change(&[*token], &mut |_, logit| *logit += bias);
        }
        history.ban(&lists.banned_sequences, set);
        let option = match lists {
            Lists { logit_bias, .. } if !logit_bias.is_empty() => "logitBias",
            Lists { banned_sequences, .. } if !banned_sequences.is_empty() => "bannedSequences",
            _ => "logitsProcessor",
        };
        some_allowed(max(&set.whole), option)?;
        for stage in &lists.samplers {
            match stage {
                Stage::Penalties if params.penalises() => history.penalise(params, set),
                Stage::Dry if params.dry_multiplier > 0.0 => history.dry(params, &lists.dry_breakers, set),
                _ if greedy => {}
                Stage::Temperature => set.temperature = temperature(params, set),
                _ if !mirostat => cut(*stage, params, set, rng),
                _ => {}
            }
        }
        if mirostat && !greedy {
            // Version 2: candidates whose surprise exceeds μ are dropped; μ follows the surprise of what is drawn.
            let total = set.total();
            set.keep_weight(total * exp(-*mu * std::f64::consts::LN_2));
        }
        Ok(greedy)
    }
}

/// Returns the surprise of a probability, −log₂ p, in bits.
fn surprise(probability: f64) -> f64 {
    -libm::log(probability) * std::f64::consts::LOG2_E
}

/// Runs a stage that removes candidates.
fn cut(stage: Stage, params: &Params, set: &mut CandidateSet, rng: &mut Rng) {
    match stage {
        Stage::TopNSigma if params.top_n_sigma > 0.0 => {
            let (_, deviation) = set.spread();
            let most = set.max_logit();
            set.keep_above(f64::from(most) - f64::from(params.top_n_sigma) * deviation);
        }
        Stage::TopK => {
            if params.top_k > 0 {
                set.keep_best(params.top_k);
            }
            if params.adaptive_top_k {
                let (mean, deviation) = set.spread();
                set.keep_above(mean + 2.0 * deviation);
            }
        }
        Stage::TypicalP if params.typical_p < 1.0 => set.keep_typical(f64::from(params.typical_p)),
        Stage::TopP if params.top_p < 1.0 => set.keep_nucleus(f64::from(params.top_p)),
        Stage::MinP if params.min_p > 0.0 => set.keep_weight(f64::from(params.min_p)),
        // The random number is drawn in any case, so that later draws do not depend on the outcome.
        Stage::Xtc if params.xtc_probability > 0.0 && rng.unit() < f64::from(params.xtc_probability) => {
            set.drop_top(f64::from(params.xtc_threshold));
        }
        _ => {}
    }
}

/// Returns the temperature. With dynamic temperature, as in llama.cpp, it rises with the entropy of the
/// candidates, relative to the largest that their number allows.
fn temperature(params: &Params, set: &mut CandidateSet) -> f64 {
    let (middle, range) = (f64::from(params.temperature), f64::from(params.dynamic_temperature));
    let count = if range > 0.0 { set.remaining().len() } else { 1 };
    if count < 2 {
        return middle;
    }
    let (least, most) = ((middle - range).max(0.0), middle + range);
    let undecided = set.entropy() / libm::log(count as f64);
    let undecided = exp(libm::log(undecided) * f64::from(params.dynamic_exponent));
    let temperature = least + (most - least) * undecided;
    // Logits are divided by it.
    temperature.max(1e-6)
}

/// Log probabilities, ln p, by the model's own logits, before bias, penalties or temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// That of the chosen token.
    pub chosen: f32,
    /// The likeliest tokens with theirs, in falling order.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Computes the log probabilities of a token and of the `count` likeliest.
    ///
    /// # Panics
    /// If the vocabulary has no such token.
    pub fn of(logits: &[f32], token: u32, count: usize) -> Self {
        let log = log_sum_exp(logits);
        let probability = |logit: f32| (f64::from(logit) - log) as f32;
        let mut top = Vec::new();
        if count > 0 {
            candidates::best(all(logits), count, &mut top);
        }
        Self {
            chosen: probability(logits[token as usize]),
            top: top.iter().map(|candidate| (candidate.token, probability(candidate.logit))).collect(),
        }
    }
}

/// Returns ln Σ e^logit, the logarithm of softmax's denominator.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = f64::from(max(logits));
    let weights = |span: &[f32]| -> f64 {
        let mut weights = [0.0; 64];
        weights.iter_mut().zip(span).for_each(|(weight, &logit)| *weight = exp_to_zero(f64::from(logit) - most));
        candidates::sum(&weights)
    };
    libm::log(logits.chunks(64).map(weights).sum()) + most
}

/// Checks that all logits are finite.
///
/// # Errors
/// `NonFinite` with the first token that is not.
pub fn check_finite(logits: &[f32]) -> Result<()> {
    if largest(logits).1.is_finite() { Ok(()) } else { Err(first_not_finite(logits)) }
}

fn first_not_finite(logits: &[f32]) -> Error {
    let token = logits.iter().position(|logit| !logit.is_finite()).unwrap_or(0);
    not_finite(ErrorKind::NonFinite, token, logits[token])
}

/// `option` is the likeliest one to have forbidden them.
fn some_allowed(most: f32, option: &'static str) -> Result<()> {
    if most == f32::NEG_INFINITY {
        let reason = "every token is forbidden by bias, bans, format or processor";
        let error = Error::new(ErrorKind::InvalidArgument, reason).option(option);
        return Err(error.expected("a token that may follow", "none"));
    }
    Ok(())
}

#[inline(never)]
fn not_finite(kind: ErrorKind, token: usize, logit: f32) -> Error {
    Error::new(kind, format!("the logit of token {token} is not finite")).expected("a finite number", logit)
}

/// Returns the token with the largest logit, the first of several.
pub fn argmax(logits: &[f32]) -> usize {
    first(logits, max(logits))
}

fn first(logits: &[f32], most: f32) -> usize {
    logits.iter().position(|&logit| logit == most).unwrap_or(0)
}

/// Returns the largest logit, and the largest magnitude; where there is a NaN, that is one, and the first is of no meaning. Integers are
/// compared, sixteen at a time: the order of floats is that of their bits, those below zero turned round, and compilers make vectors of it.
fn largest(logits: &[f32]) -> (f32, f32) {
    let turned = |bits: i32| bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed();
    let (mut most, mut size) = ([i32::MIN; 16], [0; 16]);
    let mut add = |some: &[f32]| {
        for ((most, size), logit) in most.iter_mut().zip(&mut size).zip(some) {
            let bits = logit.to_bits().cast_signed();
            *most = turned(bits).max(*most);
            *size = (bits & i32::MAX).max(*size);
        }
    };
    let (chunks, rest) = logits.as_chunks::<16>();
    chunks.iter().for_each(|chunk| add(chunk));
    add(rest);
    let most = most.into_iter().fold(i32::MIN, i32::max);
    let most = if logits.is_empty() { f32::NEG_INFINITY } else { f32::from_bits(turned(most).cast_unsigned()) };
    (most, f32::from_bits(size.into_iter().fold(0, i32::max).cast_unsigned()))
}

fn max(logits: &[f32]) -> f32 {
    largest(logits).0
}
