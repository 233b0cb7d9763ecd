//! The parameters of sampling. By default everything is off, which is greedy decoding.

use crate::error::{Error, ErrorKind, Result};

/// The numeric parameters. Ranges are checked by [`Params::check`]. `Default` is greedy decoding with everything else off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Divides logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// How far the temperature varies below and above `temperature`, with the entropy of the candidates; 0 is off.
    pub dynamic_temperature: f32,
    /// The exponent of the relative entropy in dynamic temperature.
    pub dynamic_exponent: f32,
    /// The number of likeliest tokens to keep; 0 keeps all.
    pub top_k: usize,
    /// Whether top-k keeps only tokens whose logit exceeds the mean by two standard deviations.
    pub adaptive_top_k: bool,
    /// The total probability of the likeliest tokens to keep; 1 keeps all.
    pub top_p: f32,
    /// The least probability to keep, relative to the likeliest token's; 0 keeps all.
    pub min_p: f32,
    /// The total probability of the most typical tokens to keep; 1 keeps all.
    pub typical_p: f32,
    /// How many standard deviations below the largest logit tokens are kept; 0 keeps all.
    pub top_n_sigma: f32,
    /// The probability with which XTC removes the top choices; 0 is off.
    pub xtc_probability: f32,
    /// The probability from which on XTC counts a token as a top choice.
    pub xtc_threshold: f32,
    /// Divides positive logits of tokens in the window and multiplies negative ones; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from a token's logit for each occurrence in the window; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted from the logits of tokens in the window; 0 is off.
    pub presence_penalty: f32,
    /// The window of the three penalties, in tokens; 0 is all.
    pub penalty_last_n: usize,
    /// DRY's penalty for a repetition of the allowed length; 0 is off.
    pub dry_multiplier: f32,
    /// The factor of DRY's penalty for each further token.
    pub dry_base: f32,
    /// The length of the shortest repetition that DRY penalises, in tokens.
    pub dry_allowed_length: usize,
    /// DRY's window, in tokens; 0 is all.
    pub dry_last_n: usize,
    /// Mirostat's target surprise, in bits; 0 is off.
    pub mirostat_tau: f32,
    /// Mirostat's learning rate.
    pub mirostat_eta: f32,
    /// How many of the likeliest tokens are reported with each token, with their log probabilities; `None` reports none.
    pub logprobs: Option<usize>,
    /// Whether to draft tokens by prompt lookup and verify them, which changes no result.
    pub prompt_lookup: bool,
    /// Whether to draft tokens by the model's MTP head, where one is loaded, and verify them, which changes no result.
    pub mtp_draft: bool,
    /// The seed of the random numbers.
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
            mtp_draft: true,
            seed: 0,
        }
    }
}

/// The name, the least and the greatest value of each of [`Params::floats`], as the option table has them.
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
    /// Checks every parameter's range.
    ///
    /// # Errors
    /// `InvalidArgument` with the option and its range.
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

    /// The parameters that are floats, in the order of their ranges.
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

    /// Tells whether any of the three penalties is on.
    pub(super) fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }
}

/// A stage of sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The repetition, frequency and presence penalties.
    Penalties,
    /// DRY: a penalty for prolonging repetitions.
    Dry,
    /// Top-n-sigma: a cut by standard deviations below the largest logit.
    TopNSigma,
    /// Top-k: a cut by number.
    TopK,
    /// Typical-p: a cut by distance from the expected surprise.
    TypicalP,
    /// Top-p: a cut by total probability.
    TopP,
    /// Min-p: a cut by probability relative to the largest.
    MinP,
    /// XTC: a removal of the top choices, at random.
    Xtc,
    /// The temperature.
    Temperature,
}

impl Stage {
    /// All stages in their default order.
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

/// The parameters that name tokens, and the order of stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Lists {
    /// Added to the logits of these tokens; -∞ forbids one.
    pub logit_bias: Vec<(u32, f32)>,
    /// Sequences that must not occur: the last token of one is forbidden after the others.
    pub banned_sequences: Vec<Vec<u32>>,
    /// Tokens at which DRY's repetitions end, rising.
    pub dry_breakers: Vec<u32>,
    /// The stages that run, in order; the others are off.
    pub samplers: Vec<Stage>,
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            logit_bias: Vec::new(),
            banned_sequences: Vec::new(),
            dry_breakers: Vec::new(),
            samplers: Stage::ALL.to_vec(),
        }
    }
}

impl Lists {
    /// Checks that every token exists and every bias is a number or −∞.
    ///
    /// # Errors
    /// `InvalidArgument` with the option.
    pub fn check(&self, vocab: usize) -> Result<()> {
        let refuse = |option, expected: &str, found: u32| {
            let what = Error::new(ErrorKind::InvalidArgument, "no such token").option(option);
            Err(what.expected(expected, found))
        };
        for &(token, bias) in &self.logit_bias {
            if token as usize >= vocab {
                return refuse("logitBias", "an id of the vocabulary", token);
            }
            if bias.is_nan() || bias == f32::INFINITY {
                return refuse("logitBias", "a number or -Infinity for every id", token);
            }
        }
        match self.banned_sequences.iter().flatten().find(|&&token| token as usize >= vocab) {
            Some(&token) => refuse("bannedSequences", "ids of the vocabulary", token),
            None => Ok(()),
        }
    }
}
