//! The options of a load that the engine itself takes, under the names that callers know them by.
//!
//! Names, defaults and ranges are those of the option table (`pkg/src/options`): `tests/options.rs` compares the two.

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::head::TYPES;
use super::names::{ROLES, Slot};
use super::plan::MAX_HEAD_ROWS;
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::act::Precision;
use crate::kv::Codec;
use crate::quant::{Interleave, Storage};

/// A caller's choices. `None` leaves the choice to the plan, which knows the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Options {
    /// How activations are rounded before integer products; otherwise as the model was trained.
    #[serde(deserialize_with = "activations")]
    pub activations: Option<Activations>,
    /// How keys and values are stored; otherwise as f32 where a full context takes at most 256 MB, else as f16.
    #[serde(deserialize_with = "kv_cache_type")]
    pub kv_cache_type: Option<Codec>,
    /// Positions of one conversation; otherwise what the model was trained for, up to a limit.
    pub context_length: Option<usize>,
    /// The most prompt tokens that one pass computes.
    pub prefill_chunk: usize,
    /// The most rows of one pass, prompts and running answers together.
    pub max_batch_tokens: usize,
    /// Requests that run together; further ones wait.
    pub max_sequences: usize,
    /// Requests that may wait; the next one is refused.
    pub max_waiting: usize,
    /// The order in which waiting requests get a place.
    pub scheduling: Scheduling,
    /// Positions that all conversations together may hold.
    pub kv_cache_tokens: Option<usize>,
    /// Conversations on a hybrid whose state is kept, those that run included; otherwise as many as 256 MB hold.
    pub recurrent_states: Option<usize>,
    /// Whether conversations that begin alike share the keys and values of that beginning.
    pub prefix_reuse: bool,
    /// Whether weights that turn out to be ternary are packed as ternary. Otherwise each tensor keeps the file's own type.
    pub repack: bool,
    /// How I2_S tensors interleave their codes; otherwise their size and their weights decide.
    #[serde(deserialize_with = "i2s")]
    pub i2s: Option<Interleave>,
    /// How ternary weights are packed; otherwise five to a byte where a measurement finds that no slower.
    #[serde(deserialize_with = "ternary_packing")]
    pub ternary_packing: Option<TernaryPacking>,
    /// How the products of 1-bit weights are summed; otherwise looked up where others are summed in pairs.
    #[serde(deserialize_with = "one_bit_sums")]
    pub one_bit_sums: Option<OneBitSums>,
    /// What the embedding and the head are rounded to while they arrive; otherwise they stay as stored.
    #[serde(deserialize_with = "head")]
    pub head: Option<&'static Storage>,
    /// Whether the multi-token-prediction (MTP) head is loaded, where the model has one.
    pub mtp: bool,
    /// The layers that this engine computes, from one to before another, where others compute the rest; those of the first engine begin at 0.
    pub first_layer: usize,
    pub end_layer: Option<usize>,
}

/// How ternary weights are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TernaryPacking {
    /// Four to a byte.
    #[serde(rename = "2-bit")]
    TwoBits,
    /// Five to a byte.
    #[serde(rename = "1.6-bit")]
    Five,
}

/// How the products of 1-bit weights and a few tokens are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OneBitSums {
    /// By dot products. Builds without relaxed SIMD look sums up even so.
    Dot,
    /// Sums of four are looked up.
    Lookup,
}

/// How activations are rounded where the caller says so.
#[derive(Clone, Debug)]
pub enum Activations {
    /// Those of every matrix, the head's among them.
    All(Precision),
    /// A digit for each part of each layer: 1 + the precision's index in [`Precision::ALL`], or 0 for what the model was trained for.
    Map(String),
}

impl From<Precision> for Activations {
    fn from(precision: Precision) -> Self {
        Self::All(precision)
    }
}

/// The order in which waiting requests get a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduling {
    /// Half of the places go to the shortest requests, so that these pass long ones.
    Fair,
    /// First come, first served.
    Fcfs,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            activations: None,
            kv_cache_type: None,
            context_length: None,
            prefill_chunk: 256,
            max_batch_tokens: 2048,
            max_sequences: 8,
            max_waiting: 32,
            scheduling: Scheduling::Fair,
            kv_cache_tokens: None,
            recurrent_states: None,
            prefix_reuse: true,
            repack: true,
            i2s: None,
            ternary_packing: Some(TernaryPacking::TwoBits),
            one_bit_sums: None,
            head: None,
            mtp: false,
            first_layer: 0,
            end_layer: None,
        }
    }
}

impl Options {
    /// Name, least and greatest value of each number that scratch memory depends on.
    pub const RANGES: [(&'static str, usize, usize); 4] = [
        ("prefillChunk", 1, 4096),
        ("maxBatchTokens", 1, 4096),
        ("maxSequences", 1, 4096),
        ("recurrentStates", 1, 4096),
    ];

    /// How the input of a matrix is to be rounded, where the caller says so.
    pub fn rounding(&self, slot: Slot) -> Option<Precision> {
        match self.activations.as_ref()? {
            Activations::All(precision) => Some(*precision),
            Activations::Map(map) => {
                let digit = map.as_bytes().get(slot.in_layer()? * ROLES + slot.role as usize)?;
                Precision::ALL.get(usize::from(digit.wrapping_sub(b'1'))).copied()
            }
        }
    }

    /// Rows of the largest batch: a chunk of a prompt beside every other request's next token.
    pub(crate) fn rows(&self) -> usize {
        self.max_batch_tokens.min(self.prefill_chunk + self.max_sequences - 1)
    }

    /// Scored texts want the logits of many rows, however few sequences there are.
    pub(crate) fn head_rows(&self) -> usize {
        self.max_sequences.clamp(8, MAX_HEAD_ROWS)
    }

    /// Checks every number that has a range.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that is out of range; the context's range is the model's.
    pub fn check(&self, config: &Config) -> Result<()> {
        let refuse = |name, (least, most), value| {
            let error = Error::new(ErrorKind::InvalidArgument, "out of range").option(name);
            Err(error.expected(format_args!("{least} to {most}"), value))
        };
        if let Some(context) = self.context_length.filter(|context| !(1..=config.context).contains(context)) {
            return refuse("contextLength", (1, config.context), context);
        }
        if let Some(end) = self.end_layer.filter(|end| !(self.first_layer + 1..=config.layers).contains(end)) {
            return refuse("endLayer", (self.first_layer + 1, config.layers), end);
        }
        let values = [self.prefill_chunk, self.max_batch_tokens, self.max_sequences].map(Some);
        let values = values.into_iter().chain([self.recurrent_states]);
        for ((name, least, most), value) in Self::RANGES.into_iter().zip(values) {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                return refuse(name, (least, most), value);
            }
        }
        Ok(())
    }
}

/// Reads the name of a precision, or a map of digits.
fn activations<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Activations>, D::Error> {
    named(text, "auto", |text| match Precision::ALL.into_iter().find(|precision| precision.name() == text) {
        Some(precision) => Some(Activations::All(precision)),
        None => text.bytes().all(|digit| (b'0'..=b'5').contains(&digit)).then(|| Activations::Map(text.to_owned())),
    })
}

fn kv_cache_type<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Codec>, D::Error> {
    named(text, "auto", Codec::from_name)
}

fn ternary_packing<'de, D: Deserializer<'de>>(text: D) -> Result<Option<TernaryPacking>, D::Error> {
    named(text, "auto", |name| match name {
        "2-bit" => Some(TernaryPacking::TwoBits),
        "1.6-bit" => Some(TernaryPacking::Five),
        _ => None,
    })
}

fn one_bit_sums<'de, D: Deserializer<'de>>(text: D) -> Result<Option<OneBitSums>, D::Error> {
    named(text, "auto", |name| match name {
        "dot" => Some(OneBitSums::Dot),
        "lookup" => Some(OneBitSums::Lookup),
        _ => None,
    })
}

/// Reads the option `i2s`, which the converter takes as well.
///
/// # Errors
/// The text that is none of its values.
pub fn i2s<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Interleave>, D::Error> {
    named(text, "auto", |name| match name {
        "128" => Some(Interleave::By128),
        "64" => Some(Interleave::By64),
        _ => None,
    })
}

fn head<'de, D: Deserializer<'de>>(text: D) -> Result<Option<&'static Storage>, D::Error> {
    named(text, "stored", |name| TYPES.into_iter().find_map(|(known, to)| (known == name).then_some(to)))
}

/// The value with a name; `none` names the absence of one.
fn named<'de, D: Deserializer<'de>, T>(
    text: D,
    none: &str,
    value: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, D::Error> {
    let name = String::deserialize(text)?;
    match value(&name) {
        None if name != none => Err(D::Error::custom(format_args!("there is no {name:?}"))),
        found => Ok(found),
    }
}
