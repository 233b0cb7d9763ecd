//! The keys and values of a prompt, layer by layer: every chunk of it goes through a layer before the next layer is needed.

use super::{BatchRow, Forward, Suspended, scratch};
use crate::error::{Error, ErrorKind, Result, reserve};
use crate::kernels::isa::Isa;
use crate::kv::{Cache, TableId};
use crate::model::config::Config;
use crate::model::plan::Plan;
use crate::model::weights::Model;
use crate::observe::Operation;
use crate::team::Team;

/// A prompt of which the keys and values are computed, and nothing else: no row goes beyond those of the last layer. They are the same
/// bits as those of a request, because a row's arithmetic does not depend on others.
#[derive(Debug)]
pub struct Prefill {
    pub tokens: Vec<u32>,
    /// Whose blocks hold the keys and values.
    pub table: TableId,
    /// One for each chunk.
    passes: Vec<Suspended>,
    /// The pass that goes on next.
    next: usize,
    /// Layers that all passes have behind them.
    layers: usize,
}

impl Prefill {
    /// Opens a table for a prompt.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a token outside the vocabulary, [`ErrorKind::ContextFull`] for more tokens than the plan has
    /// counted or the cache has room for, [`ErrorKind::OutOfMemory`].
    pub fn new(plan: &Plan, cache: &mut Cache, tokens: Vec<u32>) -> Result<Self> {
        let refuse = |kind, what: &str| Err(Error::new(kind, what).option("prefill"));
        if tokens.is_empty() || tokens.iter().any(|&token| token as usize >= plan.config.vocab) {
            return refuse(
                ErrorKind::InvalidArgument,
                "no prompt: it is empty, or has a token that the vocabulary has not",
            );
        }
        if tokens.len() > plan.prefill {
            return refuse(ErrorKind::ContextFull, "the prompt is longer than the context");
        }
        let table = cache.open();
        // A request begins with the logits of its last token, for which a hybrid needs the state before it.
        let computed = if plan.states > 0 { (tokens.len() - 1).max(1) } else { tokens.len() };
        let passes = cache.extend(table, 0, computed).and_then(|()| passes(plan, table, &tokens[..computed]));
        let complete = plan.states == 0 || cache.take_state(table, None);
        match passes {
            Ok(_) if !complete => {
                cache.close(table);
                refuse(ErrorKind::ContextFull, "no state is free")
            }
            Ok(passes) => Ok(Self { tokens, table, passes, next: 0, layers: 0 }),
            Err(error) => {
                cache.close(table);
                Err(error)
            }
        }
    }

    /// Tokens that are computed.
    pub fn computed(&self) -> usize {
        self.passes.iter().map(|pass| pass.rows.len()).sum()
    }

    /// Layers that all of the prompt has behind it.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Runs one operation. Returns which, or `None` where the model has no further layer: all are done, or the next has not come.
    pub fn advance<I: Isa>(
        &mut self,
        forward: &mut Forward<I>,
        team: &Team,
        model: &Model,
        cache: &mut Cache,
    ) -> Option<Operation> {
        if self.layers >= model.layers.len() {
            return None;
        }
        let pass = &mut self.passes[self.next];
        forward.exchange(pass);
        let operation = forward.next(model);
        // The first of all, or again after a restart.
        if operation == Operation::Convolve && self.next == 0 {
            cache.clear_state(self.table, model.layers[self.layers].index);
        }
        forward.advance(team, model, cache);
        forward.exchange(pass);
        let is_last = self.layers + 1 == model.config.layers;
        if operation == Operation::Down || is_last && matches!(operation, Operation::Rope | Operation::Recur) {
            self.next = (self.next + 1) % self.passes.len();
            self.layers += usize::from(self.next == 0);
        }
        Some(operation)
    }

    /// Begins again, because the layers' inputs are rounded otherwise than was assumed.
    pub fn restart(&mut self) {
        (self.next, self.layers) = (0, 0);
        self.passes.iter_mut().for_each(|pass| pass.operation = 0);
    }

    /// Bytes that a prompt takes beside the cache, a token.
    pub fn bytes(config: &Config) -> u64 {
        size_of::<BatchRow>() as u64 + 4 * (config.hidden + 2 * (config.rope.dim / 2)) as u64
    }
}

fn passes(plan: &Plan, table: TableId, tokens: &[u32]) -> Result<Vec<Suspended>> {
    let chunk = plan.options.prefill_chunk.min(plan.rows());
    let mut passes = reserve("the passes of a prompt", tokens.len().div_ceil(chunk) as u64)?;
    for (index, tokens) in tokens.chunks(chunk).enumerate() {
        let floats = |width: usize| scratch((tokens.len() * width) as u64);
        let mut rows = reserve("a batch", tokens.len() as u64)?;
        rows.extend(
            tokens.iter().zip(index * chunk..).map(|(&token, position)| BatchRow::kv_only(table, position, token)),
        );
        let pairs = plan.config.rope.dim / 2;
        passes.push(Suspended {
            rows,
            operation: 0,
            hidden: floats(plan.config.hidden)?,
            cos: floats(pairs)?,
            sin: floats(pairs)?,
        });
    }
    Ok(passes)
}
