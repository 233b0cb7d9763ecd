//! The option `head`: the embedding and the head are rounded to a smaller storage type while they arrive.
//!
//! The bytes of some rows become those that a quantised file would have, and are decoded as these are: nothing behind this module can
//! tell the two apart. What takes no more than the type asked for stays as it is.

use serde::Serialize;

use super::items::{Item, Reading, Target};
use super::names::{Field, TensorRole};
use super::plan::{Memory, Plan};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::packed::Packing;
use crate::quant::{self, Content, Storage};

/// The option's values besides `"stored"`.
pub static TYPES: [(&str, &Storage); 3] = [("q8_0", &quant::Q8_0), ("q6_k", &quant::Q6_K), ("q4_0", &quant::Q4_0)];

/// A value of the option, and what the model takes with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadChoice {
    pub head: &'static str,
    pub memory: Memory,
    /// Bytes of weights that computing one token reads.
    pub bytes_per_token: u64,
}

/// Whether an item is the embedding or the head.
fn concerned(item: &Item) -> bool {
    item.slot.field == Field::Weight && matches!(item.slot.role, TensorRole::TokenEmbd | TensorRole::Output)
}

/// Whether an item of a plan is rounded to a type.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] with the tensor whose rows are not whole blocks of the type.
pub fn rounds(plan: &Plan, item: &Item, to: &'static Storage) -> Result<bool> {
    let from = item.tensor.runnable()?;
    let values = matches!(from.content, Content::Dense(_) | Content::Blocks { .. });
    if !concerned(item) || !values || from.bytes * to.block <= to.bytes * from.block || is_scaled(plan, item) {
        return Ok(false);
    }
    let Target::Matrix(shape, _) = item.target else { return Ok(false) };
    if shape.cols.is_multiple_of(to.block) {
        return Ok(true);
    }
    let reason = match shape.cols.is_multiple_of(quant::Q8_0.block) {
        true => "its rows are not whole blocks of this type; q8_0 and q4_0 fit",
        false => "its rows are not whole blocks of this type",
    };
    Err(Error::new(ErrorKind::InvalidArgument, reason)
        .tensor(&item.tensor.name)
        .option("head")
        .expected(format_args!("a multiple of {}", to.block), shape.cols))
}

/// Whether a tensor beside it holds a scale, which a rounded tensor would need to have in its own.
fn is_scaled(plan: &Plan, item: &Item) -> bool {
    plan.items.iter().any(|other| other.slot == item.slot.field(Field::Scale))
}

/// What a user should know of an item that is not rounded, though another type was asked for.
pub fn stays(plan: &Plan, item: &Item, to: &'static Storage) -> Option<String> {
    let stored = &item.tensor.type_name;
    if !concerned(item) || stored == to.name {
        return None;
    }
    let why = if is_scaled(plan, item) { "has no place for its scale" } else { "would be no smaller" };
    Some(format!("{} stays as it is stored, in {stored}: {} {why}", item.tensor.name, to.name))
}

impl Plan {
    /// The types that the embedding and the head may be rounded to, with what the model takes then; first, without.
    pub fn heads(&self) -> Vec<HeadChoice> {
        let all = [("stored", None)].into_iter().chain(TYPES.map(|(name, to)| (name, Some(to))));
        all.filter_map(|(head, to)| {
            let mut plan = self.clone();
            plan.options.head = to;
            plan.fix_shapes().ok()?;
            let changes = plan.items.iter().any(|item| rounded(item).is_some());
            (to.is_none() || changes).then(|| HeadChoice {
                head,
                memory: plan.memory(),
                bytes_per_token: plan.bytes_per_token(),
            })
        })
        .collect()
    }

    /// Of an embedding that is not the head one row is read.
    fn bytes_per_token(&self) -> u64 {
        let read = |item: &&Item| item.slot.role != TensorRole::TokenEmbd || self.tied();
        self.items.iter().filter(read).map(Item::bytes).sum()
    }

    /// What a user should know of a choice that had no effect.
    pub(super) fn heads_left_alone(&self) -> impl Iterator<Item = String> {
        let asked = self.options.head.into_iter().flat_map(move |to| self.items.iter().map(move |item| (item, to)));
        asked.filter(|(item, _)| rounded(item).is_none()).filter_map(move |(item, to)| stays(self, item, to))
    }
}

/// The type that an item is rounded to while it arrives, if it is.
pub fn rounded(item: &Item) -> Option<&'static Storage> {
    match item.target {
        Target::Matrix(_, Reading::Rounded(to)) => Some(to),
        _ => None,
    }
}

/// How the rounded values are packed.
pub(super) fn packing(to: &'static Storage) -> Packing {
    let Content::Blocks { layout, .. } = to.content else { unreachable!("heads have blocks") };
    Packing::Ints(layout)
}

/// Rounds whole rows of `cols` values. What `out` holds is replaced.
///
/// # Errors
/// [`ErrorKind::NonFinite`] for a weight that is not finite or too large for the type.
pub fn round_rows(
    from: &'static Storage,
    to: &'static Storage,
    cols: usize,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    let (stored, rounded) = (cols / from.block * from.bytes, cols / to.block * to.bytes);
    out.resize(bytes.len() / stored * rounded, 0);
    for (bytes, out) in bytes.chunks_exact(stored).zip(out.chunks_exact_mut(rounded)) {
        round(to, &from.values(bytes), out)?;
    }
    Ok(())
}

/// Rounds the values of a row, or of several.
///
/// # Errors
/// As [`round_rows`].
pub fn round(to: &'static Storage, values: &[f32], out: &mut [u8]) -> Result<()> {
    if quant::round(to, values, out) {
        return Ok(());
    }
    finite(values)?;
    let most = values.iter().fold(0f32, |most, value| most.max(value.abs()));
    Err(Error::new(ErrorKind::NonFinite, "a weight is too large for this type").expected("a scale that fits f16", most))
}

/// Refuses values of which one is NaN or infinite.
///
/// # Errors
/// [`ErrorKind::NonFinite`].
pub fn finite(values: &[f32]) -> Result<()> {
    let Some(value) = values.iter().find(|value| !value.is_finite()) else { return Ok(()) };
    Err(Error::new(ErrorKind::NonFinite, "a weight is not finite").expected("a finite number", value))
}
