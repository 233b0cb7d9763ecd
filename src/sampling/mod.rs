//! From logits to a token.
//!
//! First logit bias and banned sequences; then the links of the chain in the caller's order, by default llama.cpp's: repetition,
//! frequency and presence penalties · DRY · top-n-sigma · top-k (adaptive or not) · typical-p · top-p · min-p · XTC · temperature
//! (dynamic or not); then the draw. Probabilities are always those among what is left by then, at the temperature set by then: top-p
//! counts within what top-k left. Ties go to the lower id. The draw goes by likelihood behind a link that cuts by it, else by id.
//!
//! At temperature 0 the links that cut do nothing: the likeliest is taken. With mirostat they do nothing either: it cuts by itself, at
//! the end.
//!
//! All of it is deterministic: the same logits, parameters and seed draw the same token in every runtime.

mod candidates;
mod history;
mod params;
#[cfg(test)]
mod tests;

pub use params::{Lists, Params, Stage};

use crate::error::{Error, ErrorKind, Result};
use crate::rng::Rng;
use candidates::{CandidateSet, all, exp, exp_to_zero};
use history::History;

/// One request's way of choosing.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: Params,
    lists: Lists,
    rng: Rng,
    history: History,
    /// Mirostat's limit of surprise, in bits.
    mu: f64,
    set: CandidateSet,
}

impl Sampler {
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

    /// Tells the sampler of a token in the conversation.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token, &self.params);
    }

    /// Chooses a token. Logits that are not finite are an error: they would make every choice a lie.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        check_finite(logits)?;
        self.choose(logits)
    }

    /// The same among those that are not -∞, which says that a token is forbidden.
    pub fn sample_masked(&mut self, logits: &[f32]) -> Result<u32> {
        if let Some(token) = logits.iter().position(|&logit| logit.is_nan() || logit == f32::INFINITY) {
            return Err(not_finite(token, logits[token]).option("logits"));
        }
        self.choose(logits)
    }

    fn choose(&mut self, logits: &[f32]) -> Result<u32> {
        if self.greedy() && !self.changes() {
            // A copy of all logits would take longer than the choice.
            return some_allowed(logits).map(|()| argmax(logits) as u32);
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
        self.params.temperature == 0.0 && self.lists.order.contains(&Stage::Temperature)
    }

    /// Whether anything may change a logit.
    fn changes(&self) -> bool {
        let Self { params, lists, .. } = self;
        params.penalises() || params.dry_multiplier > 0.0 || !lists.bias.is_empty() || !lists.banned.is_empty()
    }

    /// Runs the chain; whether the likeliest is to be taken from what it leaves.
    fn run_chain(&mut self, logits: &[f32]) -> Result<bool> {
        let greedy = self.greedy();
        let Self { params, lists, rng, history, mu, set } = self;
        let mirostat = params.mirostat_tau > 0.0;
        set.start(logits);
        for (token, bias) in &lists.bias {
            set.change(&[*token], &mut |_, logit| *logit += bias);
        }
        history.ban(&lists.banned, set);
        some_allowed(&set.whole)?;
        for stage in &lists.order {
            match stage {
                Stage::Penalties if params.penalises() => history.penalise(params, set),
                Stage::Dry if params.dry_multiplier > 0.0 => history.dry(params, &lists.breakers, set),
                _ if greedy => {}
                Stage::Temperature => set.temperature = temperature(params, set),
                _ if !mirostat => cut(*stage, params, set, rng),
                _ => {}
            }
        }
        if mirostat && !greedy {
            // Version 2: what surprises more than the limit is dropped, and the limit follows what comes.
            let total = set.total();
            set.keep_weight(total * exp(-*mu * std::f64::consts::LN_2));
        }
        Ok(greedy)
    }
}

/// In bits.
fn surprise(probability: f64) -> f64 {
    -libm::log(probability) * std::f64::consts::LOG2_E
}

/// The links that make the choice smaller.
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
        // The number is drawn whatever comes of it: the next draw does not depend on this one.
        Stage::Xtc if params.xtc_probability > 0.0 && rng.unit() < f64::from(params.xtc_probability) => {
            set.drop_top(f64::from(params.xtc_threshold));
        }
        _ => {}
    }
}

/// The higher, the nearer the entropy is to the most it could be.
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
    // At 0 there is nothing to divide by.
    temperature.max(1e-6)
}

/// What a model said of a token: ln p from its own logits, before anything changed them.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    pub chosen: f32,
    /// The likeliest, in order.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
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

/// ln Σ e^logit
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = f64::from(max(logits));
    let weights = |span: &[f32]| -> f64 {
        let mut weights = [0.0; 64];
        weights.iter_mut().zip(span).for_each(|(weight, &logit)| *weight = exp_to_zero(f64::from(logit) - most));
        candidates::sum(&weights)
    };
    libm::log(logits.chunks(64).map(weights).sum()) + most
}

pub fn check_finite(logits: &[f32]) -> Result<()> {
    // Times zero, what is finite is zero, and nothing else is.
    let zeros = lanes(logits, 0.0, |sum, logit| sum + logit * 0.0);
    if zeros.iter().all(|&sum| sum == 0.0) {
        return Ok(());
    }
    let token = logits.iter().position(|logit| !logit.is_finite()).unwrap_or(0);
    Err(not_finite(token, logits[token]))
}

fn some_allowed(logits: &[f32]) -> Result<()> {
    if logits.iter().all(|&logit| logit == f32::NEG_INFINITY) {
        return Err(Error::new(ErrorKind::NonFinite, "every token is forbidden").option("logits"));
    }
    Ok(())
}

fn not_finite(token: usize, logit: f32) -> Error {
    Error::new(ErrorKind::NonFinite, format!("the logit of token {token} is not finite"))
        .expected("a finite number", logit)
}

/// The first of the largest.
pub fn argmax(logits: &[f32]) -> usize {
    let most = max(logits);
    logits.iter().position(|&logit| logit == most).unwrap_or(0)
}

fn max(logits: &[f32]) -> f32 {
    let larger = |most: f32, logit: f32| if most < logit { logit } else { most };
    lanes(logits, f32::NEG_INFINITY, larger).into_iter().fold(f32::NEG_INFINITY, larger)
}

/// Folds by sixteen lanes, which wait for none but themselves.
#[inline(always)]
fn lanes(logits: &[f32], start: f32, fold: impl Fn(f32, f32) -> f32) -> [f32; 16] {
    let (chunks, rest) = logits.as_chunks::<16>();
    let mut lanes = [start; 16];
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &logit)| *lane = fold(*lane, logit));
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, &logit)| *lane = fold(*lane, logit));
    lanes
}
