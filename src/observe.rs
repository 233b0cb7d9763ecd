//! What an engine tells whoever measures it: which piece of work has just ended, and how much has been done so far.
//!
//! It reads no clock: the observer does. Nobody asks for it in an ordinary step, and nothing is spent on it.

/// A piece of a step, in the order in which they come; every layer has those from `Qkv` to `Down`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Operation {
    /// In their order, so that an operation is an index.
    pub const NAMES: [&str; 11] =
        ["schedule", "embed", "qkv", "rope", "attend", "output", "gate_up", "down", "head", "sample", "settle"];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
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

#[cfg(test)]
mod tests {
    use super::Operation;

    #[test]
    fn names_are_in_order() {
        assert_eq!(Operation::NAMES.len(), Operation::Settle as usize + 1);
        for (operation, name) in
            [(Operation::Schedule, "schedule"), (Operation::GateUp, "gate_up"), (Operation::Settle, "settle")]
        {
            assert_eq!(operation.name(), name);
        }
    }
}
