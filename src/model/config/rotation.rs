//! Weights that are stored in a rotated basis, as `prism.hadamard` version 1 declares them.

use std::sync::Arc;

use super::{Config, missing, refuse_rotation, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::gguf::Metadata;
use crate::model::names::{Field, Naming, Slot, TensorRole};

/// Which weights are rotated, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotation {
    /// Values that are transformed together.
    pub block: usize,
    /// ±1 for each value of an input, by its width; `None` where no sign changes.
    pub signs: Option<Signs>,
    /// The matrices whose input is rotated, in order.
    pub matrices: Vec<Slot>,
    /// Whether the rows of the embedding are stored rotated.
    pub embedding: bool,
    /// Whether a rotated `ssm_out` has its columns in the order of grouped value heads.
    pub grouped: bool,
}

const PREFIX: &str = "prism.hadamard.";
/// The names of the keys; others may change what is computed.
const KEYS: [&str; 10] = [
    "version",
    "transform",
    "axis",
    "block_size",
    "sign_mode",
    "sign_widths",
    "sign_values",
    "weight_names",
    "inverse_weight_names",
    "gdn_v_grouped",
];
/// Matrices that may be rotated.
const ROTATED: [TensorRole; 11] = [
    TensorRole::AttnQ,
    TensorRole::AttnK,
    TensorRole::AttnV,
    TensorRole::AttnOutput,
    TensorRole::AttnQkv,
    TensorRole::AttnGate,
    TensorRole::SsmOut,
    TensorRole::FfnGate,
    TensorRole::FfnUp,
    TensorRole::FfnDown,
    TensorRole::Output,
];

impl Rotation {
    /// Reads a GGUF's keys; `None` where it has none of them.
    ///
    /// # Errors
    /// An error with the key whose value is missing, wrong or not supported.
    pub(super) fn from_gguf(metadata: &Metadata, config: &Config) -> Result<Option<Self>> {
        for (key, _) in metadata.iter().filter(|(key, _)| !key.starts_with(PREFIX)) {
            refuse_rotation(key, true, "the key")?;
        }
        let mut keys = metadata.iter().filter_map(|(key, _)| key.strip_prefix(PREFIX)).peekable();
        if keys.peek().is_none() {
            return Ok(None);
        }
        if let Some(key) = keys.find(|key| !KEYS.contains(key)) {
            return Err(unsupported(&format!("{PREFIX}{key}"), "the keys of version 1", key));
        }
        let key = |name: &str| format!("{PREFIX}{name}");
        let must = |name: &str, expected: &str| match metadata.str(&key(name))? {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(unsupported(&key(name), expected, found)),
            None => Err(missing(&key(name))),
        };
        let version = metadata.uint(&key("version"))?.ok_or_else(|| missing(&key("version")))?;
        if version != 1 {
            return Err(unsupported(&key("version"), "1", version));
        }
        must("transform", "normalized-sylvester-walsh-hadamard")?;
        must("axis", "input-last-dimension")?;
        let block = metadata.uint(&key("block_size"))?.ok_or_else(|| missing(&key("block_size")))?;
        if !block.is_power_of_two() || block > MAX_BLOCK {
            return Err(unsupported(&key("block_size"), &format!("a power of two up to {MAX_BLOCK}"), block));
        }
        let names = metadata.strings(&key("weight_names"))?.ok_or_else(|| missing(&key("weight_names")))?;
        let mut matrices = Vec::with_capacity(names.len());
        for name in names {
            let slot =
                Naming::Gguf.slot(name).filter(|slot| ROTATED.contains(&slot.role) && slot.field == Field::Weight);
            let slot = slot.filter(|slot| slot.in_layer().is_none_or(|layer| layer < config.layers + config.mtp));
            let slot = slot.ok_or_else(|| unsupported(&key("weight_names"), "a layer's matrices or output", name))?;
            matrices.push(slot);
        }
        matrices.sort_unstable();
        let tables = metadata.strings(&key("inverse_weight_names"))?.unwrap_or_default();
        if let Some(other) = tables.iter().find(|&&name| name != "token_embd.weight") {
            return Err(unsupported(&key("inverse_weight_names"), "token_embd.weight alone", other));
        }
        Ok(Some(Self {
            block: block as usize,
            signs: signs(metadata)?,
            matrices,
            embedding: !tables.is_empty(),
            grouped: metadata.bool(&key("gdn_v_grouped"))?.unwrap_or(false),
        }))
    }

    /// The signs of inputs of a width.
    ///
    /// # Errors
    /// [`ErrorKind::UnsupportedSetting`] if rows of this width are no whole blocks or have no signs.
    pub fn signs(&self, width: usize) -> Result<Option<Arc<[f32]>>> {
        if !width.is_multiple_of(self.block) {
            let expected = format!("a divisor of {width}, the width of a rotated matrix");
            return Err(unsupported("prism.hadamard.block_size", &expected, self.block));
        }
        let Some(signs) = &self.signs else { return Ok(None) };
        match signs.iter().find(|(own, _)| *own == width) {
            Some((_, signs)) => Ok(Some(Arc::clone(signs))),
            None => {
                let widths: Vec<usize> = signs.iter().map(|(own, _)| *own).collect();
                let expected = format!("{width}, the width of a rotated matrix, among them");
                Err(unsupported("prism.hadamard.sign_widths", &expected, format_args!("{widths:?}")))
            }
        }
    }
}

/// The largest block; published models have 1024.
const MAX_BLOCK: u64 = 1 << 16;

/// One vector for each width of rows.
pub type Signs = Vec<(usize, Arc<[f32]>)>;

fn signs(metadata: &Metadata) -> Result<Option<Signs>> {
    const MODE: &str = "prism.hadamard.sign_mode";
    const WIDTHS: &str = "prism.hadamard.sign_widths";
    const VALUES: &str = "prism.hadamard.sign_values";
    let mode = metadata.str(MODE)?.ok_or_else(|| missing(MODE))?;
    let (widths, values) = (metadata.ints(WIDTHS)?, metadata.ints(VALUES)?);
    let (widths, values) = match (mode, widths, values) {
        ("explicit", Some(widths), Some(values)) => (widths, values),
        ("explicit", widths, _) => return Err(missing(if widths.is_none() { WIDTHS } else { VALUES })),
        ("identity", None, None) => return Ok(None),
        ("identity", widths, _) => {
            return Err(unsupported(
                if widths.is_none() { VALUES } else { WIDTHS },
                "no signs beside identity",
                "some",
            ));
        }
        (other, ..) => return Err(unsupported(MODE, "explicit or identity", other)),
    };
    let wrong = |key: &str, expected: &str, found: String| {
        Err(Error::new(ErrorKind::BadValue, "wrong metadata value").key(key).expected(expected, found))
    };
    let (mut rest, mut signs) = (&values[..], Vec::<(usize, Arc<[f32]>)>::new());
    for width in widths {
        let own = usize::try_from(width).ok().and_then(|width| rest.split_at_checked(width));
        let Some((own, after)) = own else {
            return wrong(VALUES, "as many as the widths say", values.len().to_string());
        };
        if own.is_empty() || signs.iter().any(|(known, _)| *known == own.len()) {
            return wrong(WIDTHS, "widths that occur once", width.to_string());
        }
        if let Some(bad) = own.iter().find(|sign| sign.abs() != 1) {
            return wrong(VALUES, "1 or -1", bad.to_string());
        }
        signs.push((own.len(), own.iter().map(|&sign| sign as f32).collect()));
        rest = after;
    }
    if !rest.is_empty() {
        return wrong(VALUES, "as many as the widths say", values.len().to_string());
    }
    Ok(Some(signs))
}
