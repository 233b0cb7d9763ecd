//! A prompt that is computed while the weights come.

use super::{Assembled, Loader};
use crate::error::Result;
use crate::kernels::isa::Active;
use crate::kv::Cache;
use crate::model::forward::{Forward, Prefill};
use crate::model::plan::Plan;
use crate::team::Team;

/// A prompt under way, with the KV cache and the scratch that the engine takes over.
pub struct EarlyPrefill {
    pub cache: Cache,
    pub forward: Forward<Active>,
    pub prefill: Prefill,
}

impl EarlyPrefill {
    /// Reserves what the engine would reserve later.
    ///
    /// # Errors
    /// As [`Prefill::new`].
    pub fn new(plan: &Plan, tokens: Vec<u32>) -> Result<Self> {
        let mut cache = plan.cache()?;
        let forward = Forward::reserve(plan)?;
        let prefill = Prefill::new(plan, &mut cache, tokens)?;
        Ok(Self { cache, forward, prefill })
    }

    /// Runs one operation. Returns `false` where the layer that it needs has not come.
    ///
    /// # Errors
    /// As [`Loader::assemble_next`].
    pub fn advance(&mut self, team: &Team, loader: &mut Loader) -> Result<bool> {
        let Self { cache, forward, prefill } = self;
        loop {
            if let Some(model) = loader.partial_model()
                && prefill.advance(forward, team, model, cache).is_some()
            {
                return Ok(true);
            }
            match loader.assemble_next()? {
                Assembled::Nothing => return Ok(false),
                Assembled::Stage => {}
                Assembled::RoundingChanged => prefill.restart(),
            }
        }
    }
}
