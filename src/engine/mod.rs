//! Conversations on one model, step by step.
//!
//! A *session* is a conversation's tokens and the keys and values of those already computed. A *request* is one call on a session:
//! generate, logits, score, or embed. [`Engine::step`] puts the next tokens of the requests that run into one batch, runs it, and
//! returns events. It stops between two operations when its time is up and goes on at the next call. It reads no clock and knows no text.
//!
//! ```
//! use ternlight::engine::{Engine, Event, Request, Task};
//! use ternlight::kernels::isa::Active;
//! use ternlight::model::{Checkpoint, Loader, Options};
//! use ternlight::team::Team;
//!
//! let file = std::fs::read("tests/golden/gguf/llama_f32.F32.gguf")?;
//! let mut checkpoint = Checkpoint::new();
//! checkpoint.parse(0, file.len() as u64, &file)?;
//! // Weights that stay as they are stored need no rows to be probed first (see `ternlight::model::load`).
//! let plan = checkpoint.plan(Options { repack: false, ..Options::default() })?;
//! let mut loader = Loader::new(plan)?;
//! loader.feed(&Team::solo(), 0, 0, &file)?;
//! let (model, plan) = loader.finish()?;
//!
//! let mut engine = Engine::<Active>::new(model, &plan, Team::solo())?;
//! let session = engine.open();
//! let request = engine.submit(session, Request { tokens: vec![1, 2, 3], task: Task::Logits { all: false } })?;
//! while engine.busy() {
//!     // A host returns true once its time is up, reads its messages, and steps again.
//!     for event in engine.step(&mut || false)? {
//!         if let Event::Logits { position, logits, .. } = event {
//!             assert_eq!((position, logits.len()), (2, plan.config.vocab));
//!         }
//!     }
//! }
//! # let _ = request;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod active;
mod adapters;
mod batch;
mod draft;
mod kept_states;
mod measure;
mod mtp;
mod prefill;
mod request;
mod scheduler;
mod session;
mod snapshot;
mod split;
mod status;
mod trace;
mod watch;

pub use adapters::AdapterId;
pub use request::{Event, FinishReason, Pooling, Request, Task, WhenFull, window};
pub use snapshot::fingerprint;
pub use status::Status;

use std::sync::Arc;

use litemap::LiteMap;

use crate::error::{Error, ErrorKind, Result};
use crate::kernels::isa::Isa;
use crate::kv::Cache;
use crate::model::forward::{Forward, Progress};
use crate::model::{Adapter, Model, Options, Plan};
use crate::observe::{Operation, Tally};
use crate::team::Team;
use active::{Outcome, RunningRequest};
use kept_states::{KeptState, STRIDE};
use prefill::PrefilledPrompt;
use scheduler::Limits;
use session::Session;

/// Names a session of one engine; ids are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// Names a request of one engine; later requests have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// Sessions and requests on one loaded model. [`Self::step`] does all the work.
pub struct Engine<I: Isa> {
    model: Model,
    cache: Cache,
    forward: Forward<I>,
    adapters: Vec<Arc<Adapter>>,
    team: Team,
    context: usize,
    limits: Limits,
    sessions: LiteMap<SessionId, Session>,
    /// On a hybrid.
    kept_states: Vec<KeptState>,
    prefix_reuse: bool,
    /// What a guess of the MTP head costs, of a step.
    mtp_cost: f32,
    requests: LiteMap<RequestId, RunningRequest>,
    /// Of the pass under way: which request each row of its batch serves.
    running: Option<Vec<RequestId>>,
    /// The same of the last pass that was completed.
    served: Vec<RequestId>,
    /// Whether every row goes through all of the last layer, because the step is traced.
    traced: bool,
    /// Whether every logit is computed where one would do, because the host looks at them.
    watched: bool,
    /// A prompt that is computed before it is asked for.
    prefilled: Option<PrefilledPrompt>,
    next: u32,
    steps: u64,
    /// See [`scheduler::Queue::extra_arrivals`].
    extra_arrivals: usize,
}

impl<I: Isa> Engine<I> {
    /// An engine with the KV cache and the scratch memory of the plan by which the model was loaded.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] with the bytes that could not be had.
    pub fn new(model: Model, plan: &Plan, team: Team) -> Result<Self> {
        let cache = plan.cache()?;
        Ok(Self::with(model, plan, team, cache, Forward::reserve(plan)?))
    }

    fn with(model: Model, plan: &Plan, team: Team, cache: Cache, forward: Forward<I>) -> Self {
        Self {
            cache,
            forward,
            kept_states: Vec::new(),
            prefix_reuse: plan.options.prefix_reuse,
            mtp_cost: model.mtp_share(),
            adapters: Vec::new(),
            context: plan.context,
            limits: Limits::new(plan),
            model,
            team,
            sessions: LiteMap::new(),
            requests: LiteMap::new(),
            running: None,
            served: Vec::new(),
            traced: false,
            watched: false,
            prefilled: None,
            next: 0,
            steps: 0,
            extra_arrivals: 1,
        }
    }

    /// The model that it runs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The threads that compute.
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// Bytes read and products made so far.
    pub fn tally(&self) -> Tally {
        self.forward.tally
    }

    /// Schedules by these options of a load from the next batch on. Requests that run go on; those beyond a smaller `max_sequences` keep
    /// their places.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with an option that needs more memory than `plan`, by which the model was loaded, has reserved.
    pub fn configure(&mut self, plan: &Plan, options: &Options) -> Result<()> {
        self.limits = Limits::changed(plan, options)?;
        Ok(())
    }

    fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Adds a request; its first event comes from a later [`Self::step`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a session that is closed or busy, for an empty prompt, a token outside the vocabulary or a sampling
    /// option out of range; [`ErrorKind::ContextFull`] for a prompt longer than the context; [`ErrorKind::QueueFull`].
    pub fn submit(&mut self, id: SessionId, request: Request) -> Result<RequestId> {
        self.refuse_busy(id)?;
        let (context, vocab) = (self.context, self.model.config.vocab);
        let Limits { sequences, queue, .. } = self.limits;
        let ahead = self.requests.values().filter(|request| !request.is_paused()).count();
        let session = self.session(id)?;
        let len = session.tokens.len() + request.tokens.len();
        if len == 0 || request.tokens.is_empty() && session.cached == len {
            return Err(
                Error::new(ErrorKind::InvalidArgument, "nothing to compute: the prompt is empty").option("prompt")
            );
        }
        if let Some(&token) = request.tokens.iter().find(|&&token| token as usize >= vocab) {
            return Err(Error::new(ErrorKind::InvalidArgument, "no such token")
                .option("prompt")
                .expected(format_args!("ids below {vocab}"), token));
        }
        if let Task::Generate { lists, .. } = &request.task {
            lists.check(vocab)?;
        }
        let active = RunningRequest::new(id, &session.tokens, request)?;
        let new = &active.request.tokens;
        let shifts = len > context && active.when_full() == WhenFull::Shift && new.len() <= context / 2;
        if len > context && !shifts {
            return Err(Error::new(ErrorKind::ContextFull, "the prompt is longer than the context")
                .option("contextLength")
                .expected(format_args!("at most {context} tokens"), len));
        }
        if ahead >= sequences + queue {
            return Err(Error::new(ErrorKind::QueueFull, "too many requests wait already")
                .option("maxWaiting")
                .expected(format_args!("at most {sequences} that run and {queue} that wait"), ahead));
        }
        session.tokens.extend_from_slice(new);
        if shifts {
            session.shift(context);
            let id = active.session;
            self.lose_state(id);
        }
        let number = RequestId(self.fresh());
        self.requests.insert(number, active);
        self.adopt_prefill(id, number);
        Ok(number)
    }

    /// Ends a request without an event. What it computed stays with its session.
    pub fn cancel(&mut self, id: RequestId) {
        let request = self.requests.remove(&id);
        // A pass has changed its state by now, or will, and nobody will say how far.
        if let Some(request) = request.filter(|_| self.running.as_ref().is_some_and(|running| running.contains(&id))) {
            self.lose_state(request.session);
        }
        self.drop_closed();
    }

    /// Pauses a request until its reader has caught up, or lets it go on. A paused request takes no place of another.
    pub fn pause(&mut self, id: RequestId, paused: bool) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.pause(paused);
        }
    }

    /// Goes on with a request that awaits logits since its [`Event::LogitsRequest`]: one logit for every token, -∞ for those that must not
    /// be chosen. Returns the events that follow.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the request awaits no logits, or if their number is not that of the vocabulary.
    pub fn resume(&mut self, id: RequestId, logits: &[f32]) -> Result<Vec<Event>> {
        let refuse = |what: &str, option| Error::new(ErrorKind::InvalidArgument, what).option(option);
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.awaits_logits()) else {
            return Err(refuse("the request does not wait for logits", "request"));
        };
        let vocab = self.model.config.vocab;
        if logits.len() != vocab {
            return Err(refuse("one logit for every token", "logits").expected(vocab, logits.len()));
        }
        let mut events = Vec::new();
        request.resume(id, logits, &mut events);
        self.settle(id, 0, true, &mut events);
        Ok(events)
    }

    /// Whether a step has anything to do. Requests that are paused or await logits give nothing to do.
    pub fn busy(&self) -> bool {
        // A part that follows has passes without requests.
        self.running.as_ref().is_some_and(Vec::is_empty)
            || self.is_prefilling()
            || self.requests.values().any(|request| !request.is_paused() && !request.awaits_logits())
    }

    /// Computes until a batch is done, or until `expired`, which is asked between operations, returns true. Returns the events.
    ///
    /// # Errors
    /// [`ErrorKind::TeamPoisoned`] once a thread of the team has died. What goes wrong with one request is an event of it.
    pub fn step(&mut self, expired: &mut dyn FnMut() -> bool) -> Result<Vec<Event>> {
        self.observed_step(&mut |_, _| expired())
    }

    /// [`Self::step`], with an observer that is called after every operation and returns whether time is up.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn observed_step(&mut self, after: &mut dyn FnMut(Operation, Tally) -> bool) -> Result<Vec<Event>> {
        self.team.check()?;
        let mut events = Vec::new();
        if self.running.is_none() {
            if !self.run_prefill(after) || !self.start() {
                return Ok(events);
            }
            after(Operation::Schedule, self.forward.tally);
        }
        let Self { team, forward, model, cache, requests, running, .. } = self;
        let owners = running.as_deref().unwrap_or_default();
        loop {
            let operation = forward.next(model);
            let progress = forward.advance(team, model, cache);
            match progress {
                Progress::Done => break,
                Progress::AwaitsParts => return Ok(events),
                _ => {}
            }
            let mut expired = after(operation, forward.tally);
            if let Progress::Logits(rows) = progress {
                hand_out(forward, &rows, owners, requests, &mut events);
                expired = after(Operation::Sample, forward.tally);
            }
            if expired {
                return Ok(events);
            }
        }
        self.hand_out_states();
        let passed = self.passed();
        self.finish(&mut events);
        self.run_mtp(passed);
        after(Operation::Settle, self.forward.tally);
        Ok(events)
    }

    /// The last batch, if its pass is completed: for each request its first position and its number of rows.
    pub fn served(&self) -> Vec<(RequestId, usize, usize)> {
        let mut groups: Vec<(RequestId, usize, usize)> = Vec::new();
        let rows = if self.running.is_none() { &self.served[..] } else { &[] };
        for (&id, row) in rows.iter().zip(self.forward.rows()) {
            match groups.last_mut() {
                Some((last, _, count)) if *last == id => *count += 1,
                _ => groups.push((id, row.position, 1)),
            }
        }
        groups
    }

    /// Gives hidden states to the requests that pool them.
    fn hand_out_states(&mut self) {
        let owners = self.running.as_deref().unwrap_or_default();
        for (row, id) in owners.iter().enumerate() {
            let Some(request) = self.requests.get_mut(id) else { continue };
            let Some(session) = self.sessions.get(&request.session) else { continue };
            if request.wants_state(self.forward.rows()[row].position, session.tokens.len()) {
                request.take_state(&self.forward.state(&self.model, row));
            }
        }
    }

    /// Starts a pass of the next batch; `false` where there is none.
    fn start(&mut self) -> bool {
        self.steps += 1;
        let (rows, owners) = self.next_batch();
        if rows.is_empty() {
            self.served.clear();
            return false;
        }
        let uses = self.uses(&owners);
        self.forward.start(&rows, uses);
        self.running = Some(owners);
        true
    }

    /// Completes a pass: what was computed counts as cached, what was chosen is appended.
    fn finish(&mut self, events: &mut Vec<Event>) {
        let Some(owners) = self.running.take() else { return };
        let mut last = None;
        for &id in owners.iter().filter(|&&id| last.replace(id) != Some(id)) {
            let computed = owners.iter().filter(|&&owner| owner == id).count();
            let cost = self.mtp_cost;
            let guessed = self.requests.get_mut(&id).map_or(0, |request| request.guessed(cost));
            self.settle(id, computed - guessed, false, events);
            // Each guess that was right has been computed as well.
            for index in 0.. {
                let Some(request) = self.requests.get(&id).filter(|request| request.unsettled()) else { break };
                if let Some(session) = self.sessions.get(&request.session).filter(|_| self.cache.has_states()) {
                    self.forward.commit(&self.team, &self.model, &mut self.cache, session.table, index);
                    self.cache.record_commit(session.table, index);
                }
                self.settle(id, 1, false, events);
            }
        }
        self.served = owners;
        self.drop_closed();
    }

    /// Settles a request of which so many tokens more are computed, or that was `resumed` with logits.
    fn settle(&mut self, id: RequestId, computed: usize, resumed: bool, events: &mut Vec<Event>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Some(session) = self.sessions.get_mut(&request.session) else { return };
        session.cached += computed;
        session.used = self.steps;
        self.cache.publish(session.table, &session.tokens, session.cached);
        let len = session.tokens.len();
        if computed > 0 {
            request.count(id, computed, session.cached, len, events);
        }
        // The end of the prompt.
        let mut keeps =
            computed > 0 && (session.cached.is_multiple_of(STRIDE) || session.cached == len && request.begins());
        let owner = request.session;
        match request.settle(id, resumed || session.cached == len, self.context, len, events) {
            Outcome::More(None) => {}
            Outcome::More(Some(token)) => session.tokens.push(token),
            Outcome::Ended(token) => {
                session.tokens.extend(token);
                keeps |= request.generates();
                self.requests.remove(&id);
            }
            Outcome::Shift(token) => {
                session.shift(self.context);
                session.tokens.push(token);
                self.lose_state(owner);
                keeps = false;
            }
        }
        if keeps && self.cache.has_states() {
            self.keep_state(owner);
        }
    }
}

/// Gives logits to the requests that wait for them.
fn hand_out<I: Isa>(
    forward: &Forward<I>,
    rows: &[usize],
    owners: &[RequestId],
    requests: &mut LiteMap<RequestId, RunningRequest>,
    events: &mut Vec<Event>,
) {
    for (i, &row) in rows.iter().enumerate() {
        let id = owners[row];
        if let Some(request) = requests.get_mut(&id) {
            let logits = (forward.logits(i), forward.largest(i));
            request.take(id, forward.rows()[row].position, logits, events);
        }
    }
}
