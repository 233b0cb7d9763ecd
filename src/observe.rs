//! What an engine tells whoever measures it: which piece of work has just ended, and how much has been done so far.
//!
//! It reads no clock: the observer does. Nobody asks for it in an ordinary step, and nothing is spent on it.

/// A piece of a step, in the order in which they come; every layer has those from `Qkv` to `Down`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Choosing the batch.
    Schedule,
    Embed,
    Qkv,
    Rope,
    Attend,
    Output,
    GateUp,
    Down,
    Head,
    Sample,
    /// Appending what was chosen.
    Settle,
}

/// What has been read and multiplied since an engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes of packed weights: one pass reads them once, however many rows it has.
    pub weight_bytes: u64,
    /// Products with weights, one for each weight and row.
    pub weight_macs: u64,
    /// Bytes of keys and values, as often as a row asks for them.
    pub kv_bytes: u64,
    /// Products with keys and values.
    pub kv_macs: u64,
}
