//! What an engine reports to an observer: which operation has just ended, and how much has been computed so far.
//!
//! The engine reads no clock; the observer does. A step without an observer spends nothing on it.

/// The operations of a step, in order. A layer has `Qkv`, then `Rope` and `Attend` or, in a gated delta net, `Convolve` and `Recur`, then `Output`
/// to `Down`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Scheduling: the next batch is chosen.
    Schedule,
    Embed,
    Qkv,
    Rope,
    Attend,
    Convolve,
    Recur,
    Output,
    GateUp,
    Down,
    Head,
    Sample,
    /// The chosen tokens are appended to their sessions.
    Settle,
}

impl Operation {
    /// The names, in the order of the operations, so that an operation is an index.
    pub const NAMES: [&str; 13] = [
        "schedule", "embed", "qkv", "rope", "attend", "convolve", "recur", "output", "gate_up", "down", "head",
        "sample", "settle",
    ];

    /// The name in profiles.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Bytes read and products made since an engine was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes of packed weights: one pass reads them once, however many rows it has.
    pub weight_bytes: u64,
    /// Products with weights, one for each weight and row.
    pub weight_macs: u64,
    /// Bytes of keys and values, counted for every row that reads them.
    pub kv_bytes: u64,
    /// Products with keys and values.
    pub kv_macs: u64,
}

/// Statistics of float values. NaNs are counted apart from the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueStats {
    pub least: f32,
    pub most: f32,
    pub sum_of_squares: f64,
    /// Those that are numbers, infinities among them.
    pub count: u64,
    pub nans: u64,
    pub infinities: u64,
    /// Values that int8 rounds to its largest code, where one scale covers all that are added together.
    pub saturated: u64,
}

/// The share of the largest magnitude from which on a value gets the largest code of int8.
const SATURATED: f32 = 126.5 / 127.0;

impl Default for ValueStats {
    fn default() -> Self {
        Self {
            least: f32::INFINITY,
            most: f32::NEG_INFINITY,
            sum_of_squares: 0.0,
            count: 0,
            nans: 0,
            infinities: 0,
            saturated: 0,
        }
    }
}

impl ValueStats {
    /// Adds values.
    pub fn add(&mut self, values: &[f32]) {
        // The larger of a number and NaN is the number.
        let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        for &value in values {
            if value.is_nan() {
                self.nans += 1;
                continue;
            }
            self.infinities += u64::from(value.is_infinite());
            self.saturated += u64::from(most > 0.0 && value.abs() >= SATURATED * most);
            self.least = self.least.min(value);
            self.most = self.most.max(value);
            self.sum_of_squares += f64::from(value) * f64::from(value);
            self.count += 1;
        }
    }

    /// The root of the mean of the squares.
    pub fn rms(&self) -> f64 {
        (self.sum_of_squares / self.count as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, ValueStats};

    #[test]
    fn what_is_no_number_is_counted_apart() {
        let mut values = ValueStats::default();
        values.add(&[3.0, f32::NAN, -4.0]);
        values.add(&[0.0, f32::NAN]);
        assert_eq!((values.least, values.most, values.nans), (-4.0, 3.0, 2));
        assert_eq!(values.rms(), (25.0_f64 / 3.0).sqrt());
        assert_eq!((values.infinities, values.saturated), (0, 1));
        values.add(&[f32::INFINITY, 1.0]);
        assert_eq!(values.infinities, 1);
    }

    #[test]
    fn values_that_int8_puts_at_its_limit_are_counted() {
        let mut values = ValueStats::default();
        values.add(&[127.0, -126.5, 126.4, 0.0]);
        assert_eq!(values.saturated, 2);
        values.add(&[0.0; 4]);
        assert_eq!(values.saturated, 2);
    }

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
