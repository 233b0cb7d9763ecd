//! Hybrids: models in which only some layers attend, and the others are gated delta nets.

use serde_json::Value as Json;

use super::gguf::Keys;
use super::hugging_face::{Shown, field, json_uint};
use super::{MAX_HEAD, MAX_HEADS, MAX_LAYERS, MAX_WIDTH, missing, unsupported};
use crate::error::{Error, ErrorKind, Result};

/// Which key head a value head reads. Training groups the value heads of a key head; llama.cpp's converter reorders them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadOrder {
    /// Value heads 0, 1, 2 … read key head 0, the next ones key head 1.
    Grouped,
    /// Value heads 0, 1, 2 … read key heads 0, 1, 2 …, and begin again.
    Tiled,
}

/// The gated delta nets of a hybrid.
#[derive(Clone, Debug, PartialEq)]
pub struct Hybrid {
    /// Whether each layer is one.
    pub recurrent: Vec<bool>,
    /// Positions that the convolution covers, the present one included.
    pub kernel: usize,
    /// Values of a head, of keys and of values alike.
    pub head: usize,
    pub key_heads: usize,
    pub value_heads: usize,
    pub order: HeadOrder,
}

/// The longest convolution; known models have 4.
const MAX_KERNEL: u64 = 16;
/// What models leave out: every so many layers one attends.
const INTERVAL: usize = 4;

impl Hybrid {
    /// The key head that a value head reads.
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.order {
            HeadOrder::Grouped => value_head / (self.value_heads / self.key_heads),
            HeadOrder::Tiled => value_head % self.key_heads,
        }
    }

    /// Heads that the convolution covers: queries, keys and values.
    pub fn conv_heads(&self) -> usize {
        2 * self.key_heads + self.value_heads
    }

    /// Channels of the convolution.
    pub fn conv_width(&self) -> usize {
        self.conv_heads() * self.head
    }

    /// The width of all values of a position.
    pub fn value_width(&self) -> usize {
        self.value_heads * self.head
    }

    /// What the first matrices of a layer write: the convolution's input, the output's gate, and two numbers for each value head.
    pub fn in_width(&self) -> usize {
        self.conv_width() + self.value_width() + 2 * self.value_heads
    }

    /// Reads GGUF's keys. `all` counts the layers with those of an MTP head, `layers` those that run.
    pub(super) fn from_gguf(keys: &Keys, layers: usize, all: usize) -> Result<Self> {
        let uint = |name: &str, most| keys.need(name, keys.uint(name, most)?);
        let recurrent = match keys.metadata.ints(&keys.key("attention.recurrent_layers"))? {
            Some(list) if list.len() == all => list[..layers].iter().map(|&recurrent| recurrent != 0).collect(),
            Some(list) => {
                return Err(Error::new(ErrorKind::BadValue, "not one for each layer")
                    .key(keys.key("attention.recurrent_layers"))
                    .expected(format_args!("{all} of them"), list.len()));
            }
            None => by_interval(layers, keys.uint("full_attention_interval", MAX_LAYERS)?),
        };
        let hybrid = Self {
            recurrent,
            kernel: uint("ssm.conv_kernel", MAX_KERNEL)?,
            head: uint("ssm.state_size", MAX_HEAD)?,
            key_heads: uint("ssm.group_count", MAX_HEADS)?,
            value_heads: uint("ssm.time_step_rank", MAX_HEADS)?,
            order: HeadOrder::Tiled,
        };
        let inner = uint("ssm.inner_size", MAX_WIDTH)?;
        if inner != hybrid.value_width() {
            return Err(unsupported(&keys.key("ssm.inner_size"), &hybrid.value_width().to_string(), inner));
        }
        hybrid.check(&[keys.key("ssm.conv_kernel"), keys.key("ssm.state_size"), keys.key("ssm.time_step_rank")])?;
        Ok(hybrid)
    }

    pub(super) fn from_json(json: &Json, layers: usize) -> Result<Self> {
        let need = |key: &str, most| json_uint(json, key, most)?.ok_or_else(|| missing(key));
        let recurrent = match field(json, "layer_types") {
            Some(types) => layer_types(types, layers)?,
            None => by_interval(layers, json_uint(json, "full_attention_interval", MAX_LAYERS)?),
        };
        let hybrid = Self {
            recurrent,
            kernel: need("linear_conv_kernel_dim", MAX_KERNEL)?,
            head: need("linear_key_head_dim", MAX_HEAD)?,
            key_heads: need("linear_num_key_heads", MAX_HEADS)?,
            value_heads: need("linear_num_value_heads", MAX_HEADS)?,
            order: HeadOrder::Grouped,
        };
        let values = need("linear_value_head_dim", MAX_HEAD)?;
        if values != hybrid.head {
            return Err(unsupported("linear_value_head_dim", &hybrid.head.to_string(), values));
        }
        hybrid
            .check(&["linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_value_heads"].map(str::to_owned))?;
        Ok(hybrid)
    }

    fn check(&self, [kernel, head, value_heads]: &[String; 3]) -> Result<()> {
        if self.kernel < 2 {
            return Err(unsupported(kernel, "2 or more", self.kernel));
        }
        if !self.head.is_multiple_of(4) {
            return Err(unsupported(head, "a multiple of 4", self.head));
        }
        if !self.value_heads.is_multiple_of(self.key_heads) {
            return Err(Error::new(ErrorKind::BadValue, "value heads do not share key heads evenly")
                .key(value_heads)
                .expected(format_args!("a multiple of {}", self.key_heads), self.value_heads));
        }
        if self.in_width() > MAX_WIDTH as usize {
            return Err(Error::new(ErrorKind::BadValue, "out of range")
                .key(value_heads)
                .expected(format_args!("up to {MAX_WIDTH} values in all"), self.in_width()));
        }
        Ok(())
    }
}

fn by_interval(layers: usize, interval: Option<usize>) -> Vec<bool> {
    let interval = interval.unwrap_or(INTERVAL);
    (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect()
}

fn layer_types(types: &Json, layers: usize) -> Result<Vec<bool>> {
    let list = types.as_array().filter(|list| list.len() == layers).ok_or_else(|| {
        Error::new(ErrorKind::BadValue, "not one for each layer").key("layer_types").expected(
            format_args!("a list of {layers}"),
            types.as_array().map_or("another value".to_owned(), |list| list.len().to_string()),
        )
    })?;
    let recurrent = |kind: &Json| match kind.as_str() {
        Some("linear_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(unsupported("layer_types", "linear_attention or full_attention", Shown(kind))),
    };
    list.iter().map(recurrent).collect()
}
