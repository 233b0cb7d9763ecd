//! Conversations on one model, step by step.
//!
//! A *session* is a conversation's tokens and the keys and values of those already computed. A *request* is one call on a session:
//! generate, logits, score, or embed. [`Engine::step`] puts the next tokens of the requests that run into one batch, runs it, and
//! answers with events. It stops between two operations when its time is up and goes on at the next call. It reads no clock of its own and
//! knows no text.

mod adapters;
mod draft;
mod request;
mod scheduler;
mod snapshot;

pub use adapters::AdapterId;
pub use request::{Event, FinishReason, Pooling, Request, WhenFull, Work, window};
pub use snapshot::fingerprint;

use std::sync::Arc;

use litemap::LiteMap;

use crate::error::{Error, ErrorKind, Result};
use crate::kernels::isa::Isa;
use crate::kernels::rows::KV_BLOCK;
use crate::kv::{Cache, TableId};
use crate::model::forward::{Forward, Progress, Traced};
use crate::model::{Adapter, Model, Plan};
use crate::observe::{Operation, Tally};
use crate::team::Team;
use adapters::{Blend, marked, root};
use request::{Active, Outcome};
use scheduler::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

#[derive(Debug)]
struct Session {
    tokens: Vec<u32>,
    /// How many of them have their keys and values in the cache.
    cached: usize,
    table: TableId,
    /// The adapters with which it is computed.
    blend: Blend,
    /// The step at which it was last used; the longest unused gives its room first.
    used: u64,
    /// To be dropped once no pass reads its table.
    closed: bool,
}

/// How busy an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Requests that are computed.
    pub running: usize,
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// Requests that wait for their reader.
    pub paused: usize,
    /// Tokens whose keys and values there is room for.
    pub kv_cache_tokens: usize,
    /// Of these, tokens of open sessions and running requests …
    pub used_tokens: usize,
    /// … and of ended ones, kept for conversations that begin alike until their room is needed.
    pub evictable_tokens: usize,
}

impl Session {
    /// Forgets the middle. What is kept behind it is at other positions now, and computed again as any other conversation.
    fn shift(&mut self, context: usize) {
        let (sinks, from) = window(self.tokens.len(), context);
        self.tokens.drain(sinks..from);
        self.cached = self.cached.min(sinks);
    }
}

/// A batch under way: which request each of its rows serves.
#[derive(Debug)]
struct Running {
    owners: Vec<RequestId>,
}

#[allow(missing_debug_implementations, reason = "a team has threads")]
pub struct Engine<I: Isa> {
    model: Model,
    cache: Cache,
    forward: Forward<I>,
    adapters: Vec<Arc<Adapter>>,
    team: Team,
    context: usize,
    limits: Limits,
    sessions: LiteMap<SessionId, Session>,
    requests: LiteMap<RequestId, Active>,
    running: Option<Running>,
    /// Whose rows the last whole batch had.
    served: Vec<RequestId>,
    next: u32,
    steps: u64,
    /// Whose turn a place is that both would have: 0 or 1.
    turn: usize,
}

impl<I: Isa> Engine<I> {
    pub fn new(model: Model, plan: &Plan, team: Team) -> Result<Self> {
        Ok(Self {
            cache: Cache::reserve(plan.kv, plan.kv_shape(), plan.positions, plan.options.prefix_reuse)?,
            forward: Forward::reserve(plan)?,
            adapters: Vec::new(),
            context: plan.context,
            limits: Limits::new(plan),
            model,
            team,
            sessions: LiteMap::new(),
            requests: LiteMap::new(),
            running: None,
            served: Vec::new(),
            next: 0,
            steps: 0,
            turn: 1,
        })
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What has been done so far.
    pub fn tally(&self) -> Tally {
        self.forward.tally
    }

    fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub fn open(&mut self) -> SessionId {
        let table = self.cache.open();
        self.insert(Vec::new(), 0, table, Blend::new())
    }

    fn insert(&mut self, tokens: Vec<u32>, cached: usize, table: TableId, blend: Blend) -> SessionId {
        let id = SessionId(self.fresh());
        self.sessions.insert(id, Session { tokens, cached, table, blend, used: self.steps, closed: false });
        id
    }

    /// A session that begins with all that an idle one holds.
    pub fn fork(&mut self, id: SessionId) -> Result<SessionId> {
        self.refuse_busy(id)?;
        let Session { tokens, cached, table, blend, .. } = self.session(id)?;
        let (tokens, cached, table, blend) = (tokens.clone(), *cached, *table, blend.clone());
        let table = self.cache.fork(table, cached);
        Ok(self.insert(tokens, cached, table, blend))
    }

    /// An idle session as bytes, for the same model in any process; `fingerprint` says which one that is.
    pub fn save(&mut self, id: SessionId, fingerprint: u64) -> Result<Vec<u8>> {
        self.refuse_busy(id)?;
        let Session { tokens, cached, table, blend, .. } = self.session(id)?;
        let (tokens, cached, table) = (tokens.clone(), *cached, *table);
        let fingerprint = marked(fingerprint, blend);
        snapshot::save(&self.cache, table, &tokens, cached, fingerprint)
    }

    /// The session of which [`Self::save`] made these bytes, with the adapters that it had.
    pub fn restore(&mut self, bytes: &[u8], fingerprint: u64, adapters: &[(AdapterId, f32)]) -> Result<SessionId> {
        let (vocab, context) = (self.model.config.vocab, self.context);
        let blend = self.blend(adapters)?;
        let fingerprint = marked(fingerprint, &blend);
        let (tokens, cached, table) = snapshot::restore(&mut self.cache, bytes, fingerprint, vocab, context)?;
        self.cache.set_salt(table, root(&blend));
        Ok(self.insert(tokens, cached, table, blend))
    }

    /// Ends a session and whatever runs on it.
    pub fn close(&mut self, id: SessionId) {
        self.requests.retain(|_, request| request.session != id);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.closed = true;
        }
        self.drop_closed();
    }

    fn session(&mut self, id: SessionId) -> Result<&mut Session> {
        self.sessions.get_mut(&id).filter(|session| !session.closed).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "the session is closed").expected("an open session", id.0)
        })
    }

    /// The tokens that a session holds.
    pub fn tokens(&mut self, id: SessionId) -> Result<&[u32]> {
        Ok(&self.session(id)?.tokens)
    }

    /// Forgets all but the first `count` tokens of an idle session.
    pub fn truncate(&mut self, id: SessionId, count: usize) -> Result<()> {
        self.refuse_busy(id)?;
        let session = self.session(id)?;
        session.tokens.truncate(count);
        session.cached = session.cached.min(count);
        let (table, cached) = (session.table, session.cached);
        // A pass that was cut short may still write behind the kept positions: their blocks stay until it has ended.
        if self.running.is_none() {
            self.cache.truncate(table, cached);
        }
        Ok(())
    }

    fn refuse_busy(&self, id: SessionId) -> Result<()> {
        if self.requests.values().any(|request| request.session == id) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the session is busy: await or stop its generation first",
            ));
        }
        Ok(())
    }

    /// Adds a request; its first event comes from a later [`Self::step`].
    pub fn submit(&mut self, id: SessionId, request: Request) -> Result<RequestId> {
        self.refuse_busy(id)?;
        let (context, vocab) = (self.context, self.model.config.vocab);
        let Limits { sequences, queue, .. } = self.limits;
        let ahead = self.requests.values().filter(|request| !request.paused).count();
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
        if let Work::Generate { lists, .. } = &request.work {
            lists.check(vocab)?;
        }
        let active = Active::new(id, &session.tokens, request)?;
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
        }
        let id = RequestId(self.fresh());
        self.requests.insert(id, active);
        Ok(id)
    }

    /// Ends a request without an event. What it computed stays with its session.
    pub fn cancel(&mut self, id: RequestId) {
        self.requests.remove(&id);
        self.drop_closed();
    }

    /// Lets a request wait until its reader has caught up, or go on. Meanwhile it takes nobody's place.
    pub fn pause(&mut self, id: RequestId, paused: bool) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.paused = paused;
            request.admitted &= !paused;
        }
    }

    /// Goes on with a request that waits behind [`Event::Choose`]: one logit for every token, -∞ for those that must not be
    /// chosen. Answers what it leads to.
    pub fn supply(&mut self, id: RequestId, logits: &[f32]) -> Result<Vec<Event>> {
        let refuse = |what: &str, option| Error::new(ErrorKind::InvalidArgument, what).option(option);
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.parked) else {
            return Err(refuse("the request does not wait for logits", "request"));
        };
        let vocab = self.model.config.vocab;
        if logits.len() != vocab {
            return Err(refuse("one logit for every token", "logits").expected(vocab, logits.len()));
        }
        let mut events = Vec::new();
        request.supply(id, logits, &mut events);
        self.settle(id, 0, true, &mut events);
        Ok(events)
    }

    /// Whether there is anything to do; who waits for [`Self::supply`] or for its reader gives nothing to do.
    pub fn busy(&self) -> bool {
        self.requests.values().any(|request| !request.paused && !request.parked)
    }

    pub fn status(&self) -> Status {
        let count = |which: fn(&Active) -> bool| self.requests.values().filter(|request| which(request)).count();
        let allocator = self.cache.allocator();
        let held = allocator.blocks() - allocator.available();
        Status {
            running: count(|request| request.admitted),
            waiting: count(|request| !request.admitted && !request.paused),
            paused: count(|request| request.paused),
            kv_cache_tokens: allocator.blocks() * KV_BLOCK,
            used_tokens: held * KV_BLOCK,
            evictable_tokens: allocator.evictable() * KV_BLOCK,
        }
    }

    /// Works until a batch is done or `expired` says that time is up; it is asked between operations.
    pub fn step(&mut self, expired: &mut dyn FnMut() -> bool) -> Result<Vec<Event>> {
        self.observed_step(&mut |_, _| expired())
    }

    /// [`Self::step`], with an observer that hears of every operation when it has ended, and says whether time is up.
    pub fn observed_step(&mut self, after: &mut dyn FnMut(Operation, Tally) -> bool) -> Result<Vec<Event>> {
        self.team.check()?;
        let mut events = Vec::new();
        if self.running.is_none() {
            if !self.start() {
                return Ok(events);
            }
            after(Operation::Schedule, self.forward.tally);
        }
        let Self { team, forward, model, cache, requests, running, .. } = self;
        let owners = running.as_ref().map_or(&[][..], |running| &running.owners);
        loop {
            let operation = forward.next(model);
            let progress = forward.advance(team, model, cache);
            if progress == Progress::Done {
                break;
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
        self.finish(&mut events);
        after(Operation::Settle, self.forward.tally);
        Ok(events)
    }

    /// A whole step, after each operation of which every matrix is told with what it has read and written.
    pub fn traced_step(&mut self, note: &mut dyn FnMut(Traced)) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            let mut last = Operation::Settle;
            events.extend(self.observed_step(&mut |operation, _| {
                last = operation;
                true
            })?);
            if last == Operation::Settle {
                return Ok(events);
            }
            self.forward.trace(&self.model, note);
        }
    }

    /// The last batch, if it is whole: for each request its first position and its rows.
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
        let owners = self.running.as_ref().map_or(&[][..], |running| &running.owners);
        for (row, id) in owners.iter().enumerate() {
            let Some(request) = self.requests.get_mut(id) else { continue };
            let Some(session) = self.sessions.get(&request.session) else { continue };
            if request.wants_state(self.forward.rows()[row].position, session.tokens.len()) {
                request.take_state(&self.forward.state(&self.model, row));
            }
        }
    }

    /// Puts the next batch together; `false` where there is none.
    fn start(&mut self) -> bool {
        self.steps += 1;
        let (rows, owners) = scheduler::batch(self);
        if rows.is_empty() {
            self.served.clear();
            return false;
        }
        let uses = self.uses(&owners);
        self.forward.start(&rows, uses);
        self.running = Some(Running { owners });
        true
    }

    /// After a pass: what was computed is cached, what was chosen is appended.
    fn finish(&mut self, events: &mut Vec<Event>) {
        let Some(running) = self.running.take() else { return };
        let mut last = None;
        for &id in running.owners.iter().filter(|&&id| last.replace(id) != Some(id)) {
            let computed = running.owners.iter().filter(|&&owner| owner == id).count();
            let guessed = self.requests.get_mut(&id).map_or(0, Active::guessed);
            self.settle(id, computed - guessed, false, events);
            // Each guess that was right has been computed as well.
            while self.requests.get(&id).is_some_and(Active::unsettled) {
                self.settle(id, 1, false, events);
            }
        }
        self.served = running.owners;
        self.drop_closed();
    }

    /// Settles a request of which so many tokens more are computed, or that was `supplied` with logits.
    fn settle(&mut self, id: RequestId, computed: usize, supplied: bool, events: &mut Vec<Event>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Some(session) = self.sessions.get_mut(&request.session) else { return };
        session.cached += computed;
        session.used = self.steps;
        self.cache.publish(session.table, &session.tokens, session.cached);
        let len = session.tokens.len();
        if computed > 0 {
            request.count(id, computed, session.cached, len, events);
        }
        match request.settle(id, supplied || session.cached == len, self.context, len, events) {
            Outcome::More(None) => {}
            Outcome::More(Some(token)) => session.tokens.push(token),
            Outcome::Ended(token) => {
                session.tokens.extend(token);
                self.requests.remove(&id);
            }
            Outcome::Shift(token) => {
                session.shift(self.context);
                session.tokens.push(token);
            }
        }
    }

    /// Drops closed sessions, unless a pass still writes to their tables.
    fn drop_closed(&mut self) {
        if let Some(running) = &self.running {
            if running.owners.iter().any(|id| self.requests.contains_key(id)) {
                return;
            }
            // Nobody waits for this pass any more. What it has written lies behind every session's cached positions.
            self.running = None;
            self.forward.start(&[], Vec::new());
        }
        self.sessions.retain(|_, session| {
            if session.closed {
                self.cache.close(session.table);
            }
            !session.closed
        });
    }
}

/// Gives logits to the requests that wait for them.
fn hand_out<I: Isa>(
    forward: &Forward<I>,
    rows: &[usize],
    owners: &[RequestId],
    requests: &mut LiteMap<RequestId, Active>,
    events: &mut Vec<Event>,
) {
    for (i, &row) in rows.iter().enumerate() {
        let id = owners[row];
        if let Some(request) = requests.get_mut(&id) {
            request.take(id, forward.rows()[row].position, forward.logits(i), events);
        }
    }
}
