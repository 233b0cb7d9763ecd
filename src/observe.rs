//! What an engine reports to an observer: which operation has just ended, and how much has been computed so far.
//!
//! The engine reads no clock; the observer does. A step without an observer spends nothing on it.

/// The operations of a step, in order; every layer has those from `Qkv` to `Down`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Scheduling: the next batch is chosen.
    Schedule,
    Embed,
    Qkv,
    Rope,
    Attend,
    /// In place of `Rope` and `Attend`, the convolution and the recurrence of a gated delta net.
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
pub struct Values {
    pub least: f32,
    pub most: f32,
    /// The sum of the squares.
    pub sum: f64,
    pub count: u64,
    pub nans: u64,
    pub infinities: u64,
    /// Values that int8 rounds to its largest code, where one scale covers all that are added together.
    pub peaks: u64,
}

/// The share of the largest magnitude from which on a value gets the largest code of int8.
const PEAK: f32 = 126.5 / 127.0;

impl Default for Values {
    fn default() -> Self {
        Self { least: f32::INFINITY, most: f32::NEG_INFINITY, sum: 0.0, count: 0, nans: 0, infinities: 0, peaks: 0 }
    }
}

impl Values {
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
            self.peaks += u64::from(most > 0.0 && value.abs() >= PEAK * most);
            self.least = self.least.min(value);
            self.most = self.most.max(value);
            self.sum += f64::from(value) * f64::from(value);
            self.count += 1;
        }
    }

    /// The root of the mean of the squares.
    pub fn rms(&self) -> f64 {
        (self.sum / self.count as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, Values};

    #[test]
    fn what_is_no_number_is_counted_apart() {
        let mut values = Values::default();
        values.add(&[3.0, f32::NAN, -4.0]);
        values.add(&[0.0, f32::NAN]);
        assert_eq!((values.least, values.most, values.nans), (-4.0, 3.0, 2));
        assert_eq!(values.rms(), (25.0_f64 / 3.0).sqrt());
        assert_eq!((values.infinities, values.peaks), (0, 1));
        values.add(&[f32::INFINITY, 1.0]);
        assert_eq!(values.infinities, 1);
    }

    #[test]
    fn values_that_int8_puts_at_its_limit_are_counted() {
        let mut values = Values::default();
        values.add(&[127.0, -126.5, 126.4, 0.0]);
        assert_eq!(values.peaks, 2);
        values.add(&[0.0; 4]);
        assert_eq!(values.peaks, 2);
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
