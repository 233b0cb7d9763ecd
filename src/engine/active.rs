//! A request from its tokens to its last event: where it stands, what it has computed, and what follows from logits.

use std::collections::VecDeque;

use super::draft::Draft;
use super::request::{Event, FinishReason, Pooling, Request, Task, WhenFull};
use super::scheduler::Lane;
use super::{RequestId, SessionId};
use crate::error::{Error, ErrorKind, Result};
use crate::model::forward::Wanted;
use crate::sampling::{Logprobs, Params, Sampler, check_finite, log_sum_exp};

/// A request under way.
#[derive(Debug)]
pub(super) struct RunningRequest {
    pub session: SessionId,
    pub request: Request,
    place: Place,
    input: Input,
    sampler: Option<Sampler>,
    /// Tokens of the answer so far.
    generated: usize,
    /// What the last logits led to, until the pass is over: more than one token where guesses were right.
    chosen: VecDeque<Chosen>,
    pub draft: Draft,
    /// The sum of negative log-likelihoods.
    nll: f64,
    /// The sum of the hidden states to be pooled.
    state: Vec<f64>,
    /// Where this request's own tokens begin in the session.
    first: usize,
    /// Positions before this one are reported, or added up.
    reported: usize,
    /// Tokens computed before its first event.
    computed: usize,
}

/// Where a request stands among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It waits for a place among those that run.
    Waiting,
    /// It runs, in the lane by which it got its place.
    Running(Lane),
    /// Its reader lags behind: it waits, and takes no place of another.
    Paused,
}

/// Whether a request can go on by itself. This is independent of its place: one that awaits logits may be paused or preempted.
#[derive(Debug)]
enum Input {
    Complete,
    /// It awaits [`super::Engine::resume`]. The model's own logits are kept where log-probabilities are asked for, else none are.
    Awaited(Vec<f32>),
}

#[derive(Debug)]
enum Chosen {
    Token(u32, Option<Logprobs>),
    /// Nothing yet: the caller gets these logits and answers with those to choose from.
    Ask(Vec<f32>),
    Failed,
}

/// What becomes of a request after a pass.
pub(super) enum Outcome {
    /// It goes on, with one more token or in the middle of its prompt.
    More(Option<u32>),
    Ended(Option<u32>),
    /// It goes on with one more token, for which the context has no room.
    Shift(u32),
}

impl RunningRequest {
    pub fn new(session: SessionId, before: &[u32], request: Request) -> Result<Self> {
        let mut sampler = match &request.task {
            Task::Generate { params, lists, .. } => Some(Sampler::new(*params, lists.clone())?),
            Task::Logits { .. } | Task::Score { .. } | Task::Embed { .. } => None,
        };
        if let Some(sampler) = &mut sampler {
            before.iter().chain(&request.tokens).for_each(|&token| sampler.accept(token));
        }
        Ok(Self {
            session,
            place: Place::Waiting,
            input: Input::Complete,
            sampler,
            generated: 0,
            chosen: VecDeque::new(),
            draft: Draft::default(),
            nll: 0.0,
            state: Vec::new(),
            first: before.len(),
            reported: 0,
            computed: 0,
            request,
        })
    }

    /// The lane of a request that runs.
    pub fn lane(&self) -> Option<Lane> {
        match self.place {
            Place::Running(lane) => Some(lane),
            Place::Waiting | Place::Paused => None,
        }
    }

    pub fn is_paused(&self) -> bool {
        self.place == Place::Paused
    }

    /// Whether the next move is the caller's.
    pub fn awaits_logits(&self) -> bool {
        matches!(self.input, Input::Awaited(_))
    }

    /// Whether it runs and has something to compute.
    pub fn computes(&self) -> bool {
        self.lane().is_some() && !self.awaits_logits()
    }

    /// Whether it waits for a place.
    pub fn waits(&self) -> bool {
        self.place == Place::Waiting && !self.awaits_logits()
    }

    pub fn admit(&mut self, lane: Lane) {
        self.place = Place::Running(lane);
    }

    /// Takes its place away, until it is admitted again.
    pub fn preempt(&mut self) {
        if self.lane().is_some() {
            self.place = Place::Waiting;
        }
    }

    pub fn pause(&mut self, paused: bool) {
        self.place = match (paused, self.place) {
            (true, _) => Place::Paused,
            (false, Place::Paused) => Place::Waiting,
            (false, place) => place,
        };
    }

    /// Whether it continues a sequence.
    pub fn generates(&self) -> bool {
        matches!(self.request.task, Task::Generate { .. })
    }

    /// Whether it has not chosen anything of an answer yet.
    pub fn begins(&self) -> bool {
        self.generates() && self.generated == 0
    }

    /// How the request goes on when the context is full.
    pub fn when_full(&self) -> WhenFull {
        match self.request.task {
            Task::Generate { full, .. } => full,
            _ => WhenFull::Stop,
        }
    }

    /// Only the keys and values matter of positions below this one; `len` is how many tokens the session holds.
    pub fn limit(&self, len: usize) -> usize {
        let all = matches!(
            self.request.task,
            Task::Logits { all: true } | Task::Score { .. } | Task::Embed { pooling: Pooling::Mean }
        );
        if all { self.unreported().min(len - 1) } else { len - 1 }
    }

    /// The first position that is not reported. What was preempted is computed again, but reported once.
    fn unreported(&self) -> usize {
        self.first.max(self.reported)
    }

    /// Tokens that it may still take to the end, where `left` are to be computed and `room` are free in its context.
    pub fn length(&self, left: usize, room: usize) -> usize {
        match self.request.task {
            Task::Generate { max_tokens, .. } => {
                left + max_tokens.map_or(room, |most| most.saturating_sub(self.generated).min(room))
            }
            _ => left,
        }
    }

    /// Which logits behind a position are needed; `len` is how many tokens the session holds.
    pub fn wants(&self, position: usize, len: usize) -> Wanted {
        let last = position + 1 == len;
        let wanted = match self.request.task {
            Task::Generate { .. } => position + 1 >= len,
            Task::Logits { all } => last || all && position >= self.unreported(),
            Task::Score { .. } => !last && position >= self.unreported(),
            Task::Embed { .. } => false,
        };
        let greedy = self.sampler.as_ref().is_some_and(Sampler::needs_largest_only);
        match (wanted, &self.request.task) {
            (false, _) => Wanted::Nothing,
            (true, Task::Generate { hook: false, .. }) if greedy => Wanted::Largest,
            _ => Wanted::All,
        }
    }

    /// Whether the hidden state behind a position is needed.
    pub fn wants_state(&self, position: usize, len: usize) -> bool {
        match self.request.task {
            Task::Embed { pooling: Pooling::Mean } => position >= self.unreported(),
            Task::Embed { pooling: Pooling::Last } => position + 1 == len,
            _ => false,
        }
    }

    pub fn take_state(&mut self, state: &[f32]) {
        self.state.resize(state.len(), 0.0);
        self.state.iter_mut().zip(state).for_each(|(sum, &value)| *sum += f64::from(value));
    }

    /// Takes the logits behind a position, or the token of the largest where it [wants](Self::wants) no more.
    pub fn take(
        &mut self,
        id: RequestId,
        position: usize,
        (logits, largest): (&[f32], Option<u32>),
        events: &mut Vec<Event>,
    ) {
        let result = match &self.request.task {
            Task::Generate { hook: true, .. } => {
                check_finite(logits).map(|()| self.chosen.push_back(Chosen::Ask(logits.to_vec())))
            }
            Task::Generate { .. } if self.rejects() => return,
            Task::Generate { params, .. } => {
                let sampler = self.sampler.as_mut().expect("made with the request");
                let choice = largest.map_or_else(|| sampler.sample(logits), Ok);
                choice.map(|token| {
                    sampler.accept(token);
                    let logprobs = params.logprobs.map(|count| Logprobs::of(logits, token, count));
                    self.chosen.push_back(Chosen::Token(token, logprobs));
                })
            }
            Task::Logits { .. } => check_finite(logits)
                .map(|()| events.push(Event::Logits { request: id, position, logits: logits.to_vec() })),
            &Task::Score { logprobs } => check_finite(logits).map(|()| {
                let token = self.request.tokens[position + 1 - self.first];
                match logprobs {
                    Some(count) => {
                        events.push(Event::Logprobs { request: id, logprobs: Logprobs::of(logits, token, count) });
                    }
                    None => self.nll += log_sum_exp(logits) - f64::from(logits[token as usize]),
                }
            }),
            Task::Embed { .. } => Ok(()),
        };
        if let Err(error) = result
            && !matches!(self.chosen.back(), Some(Chosen::Failed))
        {
            self.fail(id, error, events);
        }
    }

    /// Whether the logits that follow in this pass are void: the last choice is not what was guessed, or ends the answer.
    fn rejects(&self) -> bool {
        match (self.chosen.back(), &self.request.task) {
            (Some(Chosen::Token(token, _)), Task::Generate { end, .. }) => {
                self.draft.tokens.get(self.chosen.len() - 1) != Some(token) || end.contains(token)
            }
            (Some(Chosen::Failed), _) => true,
            _ => false,
        }
    }

    fn fail(&mut self, id: RequestId, error: Error, events: &mut Vec<Event>) {
        events.push(Event::Failed { request: id, error });
        self.chosen.push_back(Chosen::Failed);
    }

    /// Guesses at most `most` tokens that follow the `history`, and returns how many; [`Self::take`] then gets the logits behind each
    /// that is computed. `mtp` is what the MTP head has guessed.
    pub fn guess(&mut self, history: &[u32], most: usize, mtp: Option<u32>) -> usize {
        if let Task::Generate { params, max_tokens, hook: false, .. } = self.request.task {
            let most = max_tokens.map_or(most, |all| most.min(all.saturating_sub(self.generated + 1)));
            if params.prompt_lookup {
                self.draft.guess(history, most);
            }
            if let Some(token) = mtp.filter(|_| params.mtp_draft && most > 0) {
                self.draft.take_mtp(token);
            }
        }
        self.draft.tokens.len()
    }

    /// Whether the MTP head, whose own work costs `cost` of a step, follows it.
    pub fn follows_mtp(&self, cost: f32) -> bool {
        let asked = matches!(self.request.task, Task::Generate { params: Params { mtp_draft: true, .. }, .. });
        asked && self.draft.follows_mtp(cost)
    }

    /// Whether the MTP head is to guess its next token.
    pub fn wants_mtp(&mut self) -> bool {
        let Task::Generate { max_tokens, hook: false, .. } = self.request.task else { return false };
        max_tokens.is_none_or(|all| all > self.generated + 1) && self.draft.wants_mtp()
    }

    /// How many guesses the pass that has ended computed. This may be called once after a pass.
    pub fn guessed(&mut self, mtp_cost: f32) -> usize {
        self.draft.judge(self.chosen.len().saturating_sub(1), mtp_cost);
        std::mem::take(&mut self.draft.tokens).len()
    }

    /// Whether [`Self::settle`] has more to report.
    pub fn unsettled(&self) -> bool {
        !self.chosen.is_empty()
    }

    /// Takes the logits that it awaits: [`Self::settle`] goes on from them. Returns whether it awaited any.
    pub fn resume(&mut self, id: RequestId, logits: &[f32], events: &mut Vec<Event>) -> bool {
        let Input::Awaited(own) = std::mem::replace(&mut self.input, Input::Complete) else { return false };
        let (Some(sampler), Task::Generate { params, .. }) = (&mut self.sampler, &self.request.task) else {
            unreachable!("only generations await logits")
        };
        match sampler.sample_masked(logits) {
            Ok(token) => {
                sampler.accept(token);
                let logprobs = params.logprobs.map(|count| Logprobs::of(&own, token, count));
                self.chosen.push_back(Chosen::Token(token, logprobs));
            }
            Err(error) => self.fail(id, error, events),
        }
        true
    }

    /// Notes tokens that were computed, up to `cached`, and reports a prompt that is complete by then, of `len` tokens in all.
    pub fn count(&mut self, id: RequestId, computed: usize, cached: usize, len: usize, events: &mut Vec<Event>) {
        self.computed += computed;
        self.reported = self.reported.max(cached);
        if cached == len && self.generated == 0 && matches!(self.request.task, Task::Generate { .. }) {
            events.push(Event::Prompt { request: id, tokens: len, cached: len.saturating_sub(self.computed) });
        }
    }

    /// Settles the request after a pass. `complete` says that every token of the session is computed, `len` of them; `context` is how
    /// many there is room for.
    pub fn settle(
        &mut self,
        id: RequestId,
        complete: bool,
        context: usize,
        len: usize,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let chosen = self.chosen.pop_front();
        if matches!(chosen, Some(Chosen::Failed)) {
            return Outcome::Ended(None);
        }
        if !complete {
            return Outcome::More(None);
        }
        match (chosen, &self.request.task) {
            (Some(Chosen::Ask(logits)), _) => self.ask(id, logits, events),
            (Some(Chosen::Token(token, logprobs)), _) => self.settle_token(id, token, logprobs, (len, context), events),
            (_, Task::Score { logprobs: Some(_) }) => finish(id, FinishReason::Stop, events),
            (_, Task::Score { logprobs: None }) => {
                let tokens = self.request.tokens.len().saturating_sub(1);
                events.push(Event::Scored { request: id, nll: self.nll, tokens });
                finish(id, FinishReason::Stop, events)
            }
            (_, &Task::Embed { pooling }) => self.settle_embedding(id, pooling, events),
            _ => finish(id, FinishReason::Stop, events),
        }
    }

    /// Gives the logits of the next choice to the caller.
    fn ask(&mut self, id: RequestId, logits: Vec<f32>, events: &mut Vec<Event>) -> Outcome {
        let keeps = matches!(self.request.task, Task::Generate { params: Params { logprobs: Some(_), .. }, .. });
        self.input = Input::Awaited(if keeps { logits.clone() } else { Vec::new() });
        events.push(Event::LogitsRequest { request: id, logits });
        Outcome::More(None)
    }

    fn settle_token(
        &mut self,
        id: RequestId,
        token: u32,
        logprobs: Option<Logprobs>,
        (len, context): (usize, usize),
        events: &mut Vec<Event>,
    ) -> Outcome {
        let Task::Generate { max_tokens, ref end, full, .. } = self.request.task else {
            unreachable!("only generations choose tokens")
        };
        if end.contains(&token) {
            return finish(id, FinishReason::Stop, events);
        }
        if max_tokens == Some(0) {
            return finish(id, FinishReason::Length, events);
        }
        if let Some(logprobs) = logprobs {
            events.push(Event::Logprobs { request: id, logprobs });
        }
        events.push(Event::Token { request: id, token });
        self.generated += 1;
        let room = len < context;
        if max_tokens != Some(self.generated) {
            match full {
                _ if room => return Outcome::More(Some(token)),
                WhenFull::Stop => {}
                WhenFull::Shift => return Outcome::Shift(token),
                WhenFull::Fail => {
                    let error = Error::new(ErrorKind::ContextFull, "the context is full")
                        .option("contextLength")
                        .expected(format_args!("at most {context} tokens"), len + 1);
                    events.push(Event::Failed { request: id, error });
                    return Outcome::Ended(None);
                }
            }
        }
        finish(id, FinishReason::Length, events);
        Outcome::Ended(room.then_some(token))
    }

    fn settle_embedding(&mut self, id: RequestId, pooling: Pooling, events: &mut Vec<Event>) -> Outcome {
        let count = match pooling {
            Pooling::Mean => self.request.tokens.len() as f64,
            Pooling::Last => 1.0,
        };
        let embedding: Vec<f32> = self.state.iter().map(|sum| (sum / count) as f32).collect();
        match check_finite(&embedding) {
            Ok(()) => {
                events.push(Event::Embedded { request: id, embedding });
                finish(id, FinishReason::Stop, events)
            }
            Err(error) => {
                events.push(Event::Failed { request: id, error });
                Outcome::Ended(None)
            }
        }
    }
}

fn finish(id: RequestId, reason: FinishReason, events: &mut Vec<Event>) -> Outcome {
    events.push(Event::Finished { request: id, reason });
    Outcome::Ended(None)
}
