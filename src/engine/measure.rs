//! What a machine does with a loaded model, measured.

use super::Engine;
use crate::error::Result;
use crate::kernels::isa::Isa;
use crate::model::{times, tune};

impl<I: Isa> Engine<I> {
    /// Measures which variants of kernels suit this machine and sets them, see [`tune::tune`].
    ///
    /// # Errors
    /// As [`tune::tune`].
    pub fn tune(&self, spent: f64, now: &dyn Fn() -> f64) -> Result<Vec<tune::Choice>> {
        tune::tune::<I>(&self.model, &self.team, spent, now)
    }

    /// Times each matrix of the model, see [`times`]; for a clock in milliseconds.
    ///
    /// # Errors
    /// As [`times::times`].
    pub fn times(&self, streams: usize, now: &dyn Fn() -> f64) -> Result<Vec<f64>> {
        times::times::<I>(&self.model, &self.team, streams, now)
    }
}
