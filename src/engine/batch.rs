//! From decisions of the [`scheduler`](super::scheduler) to rows of a batch: this takes its views of the engine, and gives requests
//! places, tokens and blocks of the KV cache as it decides.

use super::active::RunningRequest;
use super::kept_states::STRIDE;
use super::scheduler::{Batch, Candidate, Holder, Lane, Queue, View, Waiting, admit, schedule, victim};
use super::{Engine, RequestId, SessionId};
use crate::kernels::isa::Isa;
use crate::kv::Cache;
use crate::model::forward::{BatchRow, Wanted};

impl<I: Isa> Engine<I> {
    /// The rows of the next batch and the requests that they serve.
    pub(super) fn next_batch(&mut self) -> (Vec<BatchRow>, Vec<RequestId>) {
        self.admit();
        let view = self.view();
        self.rows_of(schedule(view))
    }

    /// Gives free places to requests that wait.
    fn admit(&mut self) {
        let running = self.requests.values().filter(|request| request.computes()).count();
        if running >= self.limits.sequences || !self.requests.values().any(RunningRequest::waits) {
            return;
        }
        let admitted = admit(&self.limits, self.queue(running));
        self.extra_arrivals = (self.extra_arrivals + admitted.len()) % 2;
        for (id, lane) in admitted {
            if let Some(request) = self.requests.get_mut(&id) {
                request.admit(lane);
            }
        }
    }

    fn queue(&self, running: usize) -> Queue {
        let mut queue = Queue {
            running,
            arrivals: 0,
            extra_arrivals: self.extra_arrivals,
            promised: 0,
            available: self.cache.allocator().available() + self.kept_state_blocks(),
            idle: 0,
            waiting: Vec::new(),
        };
        for (&id, request) in self.requests.iter() {
            let session = &self.sessions[&request.session];
            let len = session.tokens.len();
            let needs = || self.cache.needs(session.table, session.cached, len + 1);
            if let Some(lane) = request.lane() {
                queue.arrivals += usize::from(lane == Lane::Arrival);
                queue.promised += needs();
            } else if request.waits() {
                let tokens = request.length(len - session.cached, self.context - len);
                let holds = self.cache.holds(session.table);
                queue.waiting.push(Waiting { id, tokens, needs: needs(), holds });
            }
        }
        let idle = self.sessions.iter().filter(|(id, _)| self.request_on(**id).is_none());
        queue.idle = idle.map(|(_, session)| self.cache.holds(session.table)).sum();
        queue
    }

    /// The running request on a session.
    fn request_on(&self, session: SessionId) -> Option<RequestId> {
        let on = |request: &RunningRequest| request.session == session && request.lane().is_some();
        self.requests.iter().find(|(_, request)| on(request)).map(|(&id, _)| id)
    }

    /// On a hybrid, lets each running request go on from the nearest state that was kept.
    fn resume_kept_states(&mut self) {
        if !self.cache.has_states() {
            return;
        }
        let running = self.requests.values().filter(|request| request.computes());
        let limit = |request: &RunningRequest| request.limit(self.sessions[&request.session].tokens.len());
        let all: Vec<(SessionId, usize)> = running.map(|request| (request.session, limit(request))).collect();
        for (session, limit) in all {
            self.resume_kept_state(session, limit);
        }
    }

    /// Prepares the running requests for a batch and describes them: each takes up what others have computed of its prompt, and guesses
    /// where it decodes.
    fn view(&mut self) -> View {
        self.resume_kept_states();
        let Self { requests, sessions, cache, limits, context, .. } = self;
        let mut candidates = Vec::new();
        let alone = requests.values().filter(|request| request.computes()).count() == 1;
        for (&id, request) in requests.iter_mut().filter(|(_, request)| request.computes()) {
            let Some(session) = sessions.get_mut(&request.session) else { continue };
            let len = session.tokens.len();
            // Behind the computed positions an earlier pass may have left blocks.
            cache.truncate(session.table, session.kept_positions());
            session.cached = cache.adopt(session.table, &session.tokens, session.cached, request.limit(len));
            let left = len - session.cached;
            request.draft.tokens.clear();
            // The guesses of one conversation are kept until it is known which were right.
            let guesses = if left == 1 && (alone || !cache.has_states()) {
                request.guess(&session.tokens, *context - len, session.mtp_guess())
            } else {
                0
            };
            candidates.push(Candidate { id, used: session.used, left, guesses, block: None });
        }
        let mut blocks = Vec::new();
        for prompt in candidates.iter_mut().filter(|candidate| candidate.left > 1) {
            let request = &requests[&prompt.id];
            let session = &sessions[&request.session];
            let limit = request.limit(session.tokens.len());
            let Some(block) = cache.next(session.table, &session.tokens, limit) else { continue };
            let known = blocks.iter().position(|other| *other == block);
            prompt.block = Some(known.unwrap_or(blocks.len()));
            blocks.push(block);
        }
        View { limits: *limits, candidates }
    }

    /// Gives each share its blocks of the KV cache, in order; a request for which there is no room is left out.
    fn rows_of(&mut self, batch: Batch) -> (Vec<BatchRow>, Vec<RequestId>) {
        let (mut rows, mut owners) = (Vec::new(), Vec::new());
        // The MTP head reads the state of every row.
        let all_read = self.traced || self.model.mtp.is_some();
        for (id, count) in batch.shares {
            let request = &self.requests[&id];
            if request.lane().is_none() {
                // It has just been preempted by an earlier request of this batch.
                continue;
            }
            let session_id = request.session;
            let session = &self.sessions[&session_id];
            let (table, from, len) = (session.table, session.cached, session.tokens.len());
            let mut to = from + count;
            if self.cache.has_states() {
                to = to.min((from / STRIDE + 1) * STRIDE);
            }
            if to > len && !self.cache.fits(table, from, to) {
                // No other request is preempted for a guess.
                to = len;
            }
            if let Some(request) = self.requests.get_mut(&id) {
                request.draft.tokens.truncate(to.saturating_sub(len));
            }
            if !self.make_room(id, session_id, to, &owners) {
                continue;
            }
            let (request, session) = (&self.requests[&id], &self.sessions[&session_id]);
            let guesses = request.draft.tokens.iter();
            let tokens = session.tokens[from..to.min(len)].iter().chain(guesses);
            rows.extend(tokens.zip(from..to).map(|(&token, position)| {
                let logits = match request.wants(position, len) {
                    Wanted::Largest if self.traced || self.watched => Wanted::All,
                    wanted => wanted,
                };
                let read = all_read || logits != Wanted::Nothing || request.wants_state(position, len);
                BatchRow { table, position, token, logits, read, guessed: position >= len }
            }));
            owners.extend((from..to).map(|_| id));
        }
        (rows, owners)
    }

    /// Makes room for the first `positions` of a session and for its state, at the cost of others (see [`victim`]) that have no rows in this batch.
    fn make_room(&mut self, asks: RequestId, id: SessionId, positions: usize, served: &[RequestId]) -> bool {
        let (table, from) = (self.sessions[&id].table, self.sessions[&id].cached);
        let lacks_state = |cache: &mut Cache| {
            let lacks = cache.has_states() && !cache.has_state(table);
            lacks && !cache.take_state(table, None)
        };
        while lacks_state(&mut self.cache) || !self.cache.fits(table, from, positions) {
            if self.drop_oldest_kept_state() {
                continue;
            }
            let holders = self.sessions.iter().filter(|(other, session)| {
                **other != id && (self.cache.blocks(session.table) > 0 || self.cache.has_state(session.table))
            });
            let holders =
                holders.map(|(&session, own)| Holder { session, used: own.used, request: self.request_on(session) });
            let free = |holder: &Holder| holder.request.is_none_or(|request| !served.contains(&request));
            let holders: Vec<Holder> = holders.filter(free).collect();
            let Some(given) = victim(&holders, asks) else { return false };
            for (_, request) in self.requests.iter_mut().filter(|(_, request)| request.session == given) {
                request.preempt();
            }
            if let Some(session) = self.sessions.get_mut(&given) {
                session.cached = 0;
                self.cache.truncate(session.table, 0);
                self.cache.drop_state(session.table);
            }
        }
        self.cache.extend(table, from, positions).is_ok()
    }
}
