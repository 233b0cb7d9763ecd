//! Which requests run, and which tokens the next batch computes. These are pure functions of small views that the engine takes of its
//! state: nothing here knows a model, a cache or a token.
//!
//! *Admission* ([`admit`]): a request waits until a place is free and the KV cache has blocks for its prompt. Half of the places go to
//! requests in order of arrival. The other half are the short-job lane: they go to the shortest requests, where lengths within one
//! length bucket (a factor of two) count as equal. Short requests thus overtake long ones, and no long one waits for ever.
//!
//! *A batch* ([`schedule`]): sequences that decode come first, with one row each, so that running streams stay smooth. Beside them
//! prompts get an eighth of a chunk, alone a whole one. Half of that goes to the oldest prompt, the rest to the shortest. Of prompts
//! that would compute the same block next, only the first is computed; the others wait and share its result.
//!
//! *Preemption* ([`victim`]): when the KV cache is used up, idle sessions lose their blocks, least recently used first, then the
//! youngest requests. Their tokens stay and are computed again later, bit for bit.

use super::{RequestId, SessionId};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::rows::KV_BLOCK;
use crate::model::{Options, Plan, Scheduling};

/// The limits that a plan sets for scheduling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Requests that run together.
    pub sequences: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// Rows of a batch.
    pub rows: usize,
    /// Prompt tokens of a batch.
    pub chunk: usize,
    /// First come, first served: no short-job lane, no shortest prompt first.
    pub fcfs: bool,
}

impl Limits {
    pub fn new(plan: &Plan) -> Self {
        Self::with(plan, &plan.options)
    }

    /// Those of other options than the plan's, within the memory that the plan reserves.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with an option that is out of range, or that needs more memory than is reserved.
    pub fn changed(plan: &Plan, options: &Options) -> Result<Self> {
        options.check(&plan.config)?;
        let (rows, loaded) = (plan.rows(), &plan.options);
        let batch = ("the load reserved memory for smaller batches", rows);
        let places = match plan.states {
            states if (1..rows).contains(&states) => ("the load reserved fewer recurrentStates", states),
            _ => batch,
        };
        for (name, value, before, (reason, most)) in [
            ("prefillChunk", options.prefill_chunk, loaded.prefill_chunk, batch),
            ("maxSequences", options.max_sequences, loaded.max_sequences, places),
            ("maxBatchTokens", options.max_batch_tokens, loaded.max_batch_tokens, batch),
        ] {
            // What was asked for at the load holds as far as it goes.
            if value > most && value != before {
                let error = Error::new(ErrorKind::InvalidArgument, reason).option(name);
                return Err(error.expected(format_args!("at most {most}"), value));
            }
        }
        Ok(Self::with(plan, options))
    }

    fn with(plan: &Plan, options: &Options) -> Self {
        Self {
            // On a hybrid each that runs has a state.
            sequences: if plan.states > 0 { options.max_sequences.min(plan.states) } else { options.max_sequences },
            queue: options.max_waiting,
            rows: plan.rows().min(options.rows()),
            chunk: options.prefill_chunk,
            fcfs: options.scheduling == Scheduling::Fcfs,
        }
    }

    /// Prompt tokens of a batch in which so many sequences decode.
    fn prompt_tokens(&self, decoding: usize) -> usize {
        let chunk = if decoding == 0 { self.chunk } else { (self.chunk / 8).max(KV_BLOCK).min(self.chunk) };
        chunk.min(self.rows - decoding)
    }
}

/// The length bucket of a request: lengths within one bucket differ by less than a factor of two.
fn bucket(tokens: usize) -> u32 {
    tokens.max(1).ilog2()
}

/// Why a running request got its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// It was the oldest that waited.
    Arrival,
    /// It was among the shortest that waited.
    Short,
}

/// What admission looks at.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// Requests that compute; one that awaits logits from its caller takes no place.
    pub running: usize,
    /// Running requests of the lane [`Lane::Arrival`], with those that await logits.
    pub arrivals: usize,
    /// Places that arrivals get beyond half, where two equal halves leave one over: 0, when the short jobs get it, or 1. They alternate.
    pub extra_arrivals: usize,
    /// Blocks that running requests need for their prompts and first answers.
    pub promised: usize,
    /// Blocks that are free or evictable.
    pub available: usize,
    /// Blocks that idle sessions would give back, those of the waiting requests included.
    pub idle: usize,
    /// In order of arrival.
    pub waiting: Vec<Waiting>,
}

/// A request that waits for a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub id: RequestId,
    /// Tokens that it may still take, prompt and answer.
    pub tokens: usize,
    /// Blocks that it needs for its prompt and the first token of its answer.
    pub needs: usize,
    /// Blocks that its idle session would give back.
    pub holds: usize,
}

/// Gives free places to requests that wait, in this order.
pub(super) fn admit(limits: &Limits, mut queue: Queue) -> Vec<(RequestId, Lane)> {
    let mut admitted = Vec::new();
    while queue.running < limits.sequences {
        let short = !limits.fcfs && queue.arrivals >= (limits.sequences + queue.extra_arrivals) / 2;
        let line = 0..queue.waiting.len();
        let next = if short { line.min_by_key(|&i| bucket(queue.waiting[i].tokens)) } else { line.min() };
        let Some(index) = next else { break };
        let Waiting { id, needs, holds, .. } = queue.waiting[index];
        // Where nothing runs the request is admitted in any case: all other blocks can be had for it.
        if queue.running > 0 && queue.promised + needs > queue.available + queue.idle - holds {
            break;
        }
        queue.waiting.remove(index);
        queue.running += 1;
        queue.arrivals += usize::from(!short);
        queue.promised += needs;
        queue.idle -= holds;
        queue.extra_arrivals = 1 - queue.extra_arrivals;
        admitted.push((id, if short { Lane::Short } else { Lane::Arrival }));
    }
    admitted
}

/// What a batch is made from.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub limits: Limits,
    /// Requests that run and do not await logits, in order of arrival.
    pub candidates: Vec<Candidate>,
}

/// A running request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub id: RequestId,
    /// The step that last computed something for it.
    pub used: u64,
    /// Tokens of its session that are not computed: 1 while it decodes, more in its prompt.
    pub left: usize,
    /// Tokens guessed by prompt lookup that could be verified in the same batch.
    pub guesses: usize,
    /// Which block of its prompt it computes next, as a number: equal numbers mean blocks of equal content at equal places. `None` where
    /// its result is not shared.
    pub block: Option<usize>,
}

/// The tokens that the next batch computes. Requests that come first get room in the KV cache first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// Requests, and how many tokens of each, guesses included.
    pub shares: Vec<(RequestId, usize)>,
}

/// Chooses the tokens of the next batch.
pub(super) fn schedule(View { limits, mut candidates }: View) -> Batch {
    candidates.retain(|candidate| candidate.left > 0);
    // Sequences that decode come first, of these those that waited longest; then prompts in order of arrival.
    candidates
        .sort_unstable_by_key(|&Candidate { id, used, left, .. }| (left > 1, if left > 1 { 0 } else { used }, id));
    let (decoding, prompts) = candidates.split_at(candidates.partition_point(|candidate| candidate.left == 1));
    // A batch that has no room for all of them keeps one row for prompts.
    let most = if prompts.is_empty() { limits.rows } else { limits.rows.saturating_sub(1).max(1) };
    let decoding = &decoding[..decoding.len().min(most)];

    let mut budget = limits.prompt_tokens(decoding.len());
    let mut shares = Vec::with_capacity(candidates.len());
    for &Candidate { id, guesses, .. } in decoding {
        let guesses = guesses.min(budget);
        budget -= guesses;
        shares.push((id, 1 + guesses));
    }
    prompt_shares(&limits, first_of_each_block(prompts), budget, &mut shares);
    Batch { shares }
}

/// The prompts without those that would compute the same block next as an earlier one.
fn first_of_each_block(prompts: &[Candidate]) -> Vec<Candidate> {
    let earlier = |index: usize, block| prompts[..index].iter().any(|other| other.block == Some(block));
    let all = prompts.iter().enumerate();
    all.filter(|(index, prompt)| !prompt.block.is_some_and(|block| earlier(*index, block)))
        .map(|(_, &one)| one)
        .collect()
}

/// Half of the budget for the oldest prompt, so that it goes on, and the rest for the shortest, of equal ones the oldest first.
fn prompt_shares(limits: &Limits, prompts: Vec<Candidate>, mut budget: usize, shares: &mut Vec<(RequestId, usize)>) {
    let Some(&Candidate { id: first, left, .. }) = prompts.first() else { return };
    let alone = limits.fcfs || prompts.len() == 1;
    let oldest = left.min(if alone { budget } else { budget.div_ceil(2) });
    budget -= oldest;
    let order = |prompt: &Candidate| (if limits.fcfs { 0 } else { bucket(prompt.left) }, prompt.id);
    let mut line: Vec<Candidate> = prompts;
    line.sort_by_key(order);
    for Candidate { id, left, .. } in line {
        let before = if id == first { oldest } else { 0 };
        let more = budget.min(left - before);
        budget -= more;
        if before + more > 0 {
            shares.push((id, before + more));
        }
    }
}

/// A session with blocks in the KV cache that another one could use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub session: SessionId,
    /// The step at which it was last used.
    pub used: u64,
    /// The running request on it; `None` for an idle session.
    pub request: Option<RequestId>,
}

/// Which session loses its blocks to the request `asks`: the idle one that was least recently used, else that of the youngest request
/// that came after. The oldest request thus always gets room.
pub(super) fn victim(holders: &[Holder], asks: RequestId) -> Option<SessionId> {
    let idle = holders.iter().filter(|holder| holder.request.is_none()).min_by_key(|holder| holder.used);
    let younger = || holders.iter().filter(|holder| holder.request > Some(asks)).max_by_key(|holder| holder.request);
    idle.or_else(younger).map(|holder| holder.session)
}

#[cfg(test)]
mod tests;
