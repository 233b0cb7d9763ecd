//! What a caller may set, with what is off by default.

use crate::error::{Error, ErrorKind, Result};

/// Numbers of the chain. `Default` is greedy with all else off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Temperatures reach this far below and above, by how undecided the model is; 0 is off.
    pub dynamic_temperature: f32,
    pub dynamic_exponent: f32,
    /// 0 keeps all.
    pub top_k: usize,
    /// Of top-k's only those above the mean of their logits by two standard deviations.
    pub adaptive_top_k: bool,
    /// 1 keeps all.
    pub top_p: f32,
    /// 0 keeps all.
    pub min_p: f32,
    /// 1 keeps all.
    pub typical_p: f32,
    /// 0 keeps all.
    pub top_n_sigma: f32,
    /// 0 is off.
    pub xtc_probability: f32,
    pub xtc_threshold: f32,
    /// 1 is off.
    pub repetition_penalty: f32,
    /// 0 is off.
    pub frequency_penalty: f32,
    /// 0 is off.
    pub presence_penalty: f32,
    /// Tokens that the three look back on; 0 is all.
    pub penalty_last_n: usize,
    /// 0 is off.
    pub dry_multiplier: f32,
    pub dry_base: f32,
    pub dry_allowed_length: usize,
    /// Tokens that it looks back on; 0 is all.
    pub dry_last_n: usize,
    /// Bits; 0 is off.
    pub mirostat_tau: f32,
    pub mirostat_eta: f32,
    /// How many of the likeliest tokens are reported with every token, if any.
    pub logprobs: Option<usize>,
    /// Guess what comes next from the text so far and check it, which changes no result.
    pub prompt_lookup: bool,
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            dynamic_temperature: 0.0,
            dynamic_exponent: 1.0,
            top_k: 0,
            adaptive_top_k: false,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            top_n_sigma: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_last_n: 0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_last_n: 0,
            mirostat_tau: 0.0,
            mirostat_eta: 0.1,
            logprobs: None,
            prompt_lookup: false,
            seed: 0,
        }
    }
}

/// Name, least and greatest value of each of [`Params::floats`], as the option table has them.
pub const RANGES: [(&str, f32, f32); 16] = [
    ("temperature", 0.0, 100.0),
    ("dynamicTemperature", 0.0, 100.0),
    ("dynamicExponent", 0.01, 100.0),
    ("topP", 0.0, 1.0),
    ("minP", 0.0, 1.0),
    ("typicalP", 0.0, 1.0),
    ("topNSigma", 0.0, 1000.0),
    ("xtcProbability", 0.0, 1.0),
    ("xtcThreshold", 0.0, 1.0),
    ("repetitionPenalty", 0.01, 100.0),
    ("frequencyPenalty", -100.0, 100.0),
    ("presencePenalty", -100.0, 100.0),
    ("dryMultiplier", 0.0, 100.0),
    ("dryBase", 1.0, 100.0),
    ("mirostatTau", 0.0, 100.0),
    ("mirostatEta", 0.0, 1.0),
];

impl Params {
    pub fn check(&self) -> Result<()> {
        let mut copy = *self;
        for (&value, (name, least, most)) in copy.floats().into_iter().map(|value| &*value).zip(RANGES) {
            if !(least..=most).contains(&value) {
                return Err(Error::new(ErrorKind::InvalidArgument, "out of range")
                    .option(name)
                    .expected(format_args!("{least} to {most}"), value));
            }
        }
        Ok(())
    }

    /// The numbers that are not counts, in the order of [`RANGES`].
    pub fn floats(&mut self) -> [&mut f32; 16] {
        [
            &mut self.temperature,
            &mut self.dynamic_temperature,
            &mut self.dynamic_exponent,
            &mut self.top_p,
            &mut self.min_p,
            &mut self.typical_p,
            &mut self.top_n_sigma,
            &mut self.xtc_probability,
            &mut self.xtc_threshold,
            &mut self.repetition_penalty,
            &mut self.frequency_penalty,
            &mut self.presence_penalty,
            &mut self.dry_multiplier,
            &mut self.dry_base,
            &mut self.mirostat_tau,
            &mut self.mirostat_eta,
        ]
    }

    pub(super) fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }
}

/// A link of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Penalties,
    Dry,
    TopNSigma,
    TopK,
    TypicalP,
    TopP,
    MinP,
    Xtc,
    Temperature,
}

impl Stage {
    /// In their default order.
    pub const ALL: [Self; 9] = [
        Self::Penalties,
        Self::Dry,
        Self::TopNSigma,
        Self::TopK,
        Self::TypicalP,
        Self::TopP,
        Self::MinP,
        Self::Xtc,
        Self::Temperature,
    ];
}

/// What the chain knows of single tokens, and its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Lists {
    /// Added to the logits of these tokens; -∞ forbids one.
    pub bias: Vec<(u32, f32)>,
    /// Sequences that must not come: the last token of one is forbidden where the others have come.
    pub banned: Vec<Vec<u32>>,
    /// Tokens over which no repetition reaches that DRY counts. Rising.
    pub breakers: Vec<u32>,
    /// A link that is not there does nothing.
    pub order: Vec<Stage>,
}

impl Default for Lists {
    fn default() -> Self {
        Self { bias: Vec::new(), banned: Vec::new(), breakers: Vec::new(), order: Stage::ALL.to_vec() }
    }
}

impl Lists {
    /// Refuses what would silently do nothing.
    pub fn check(&self, vocab: usize) -> Result<()> {
        let refuse = |option, expected: &str, found: u32| {
            let what = Error::new(ErrorKind::InvalidArgument, "no such token").option(option);
            Err(what.expected(expected, found))
        };
        for &(token, bias) in &self.bias {
            if token as usize >= vocab {
                return refuse("logitBias", "an id of the vocabulary", token);
            }
            if bias.is_nan() || bias == f32::INFINITY {
                return refuse("logitBias", "a number or -Infinity for every id", token);
            }
        }
        match self.banned.iter().flatten().find(|&&token| token as usize >= vocab) {
            Some(&token) => refuse("bannedSequences", "ids of the vocabulary", token),
            None => Ok(()),
        }
    }
}
