//! Sessions: what a conversation holds between requests, and what can be done with an idle one.

use super::adapters::{AdapterId, AdapterSet, fingerprint_with, salt};
use super::{Engine, SessionId, snapshot, window};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::isa::Isa;
use crate::kv::TableId;

#[derive(Debug)]
pub(super) struct Session {
    pub tokens: Vec<u32>,
    /// How many of the tokens have their keys and values in the cache.
    pub cached: usize,
    pub table: TableId,
    /// The adapters with which it is computed.
    pub adapters: AdapterSet,
    /// The step at which it was last used: the least recently used session loses its blocks first.
    pub used: u64,
    /// How far the MTP head has come: it can be one token ahead of the model.
    pub mtp: usize,
    /// What it has guessed, and which position that would have.
    pub guess: Option<(usize, u32)>,
    /// Whether nothing of it is kept for others, or for itself.
    pub ephemeral: bool,
    /// Whether it is to be dropped once no pass writes to its table.
    closed: bool,
}

impl Session {
    /// Drops the middle of the sequence. The tokens behind it have other positions from then on, so that they are computed again.
    pub fn shift(&mut self, context: usize) {
        let (sinks, from) = window(self.tokens.len(), context);
        self.tokens.drain(sinks..from);
        self.cached = self.cached.min(sinks);
    }

    /// Positions that the cache has something of.
    pub fn kept_positions(&self) -> usize {
        self.cached + usize::from(self.mtp == self.cached + 1)
    }

    /// What the MTP head takes for the next token.
    pub fn mtp_guess(&self) -> Option<u32> {
        self.guess.filter(|(position, _)| *position == self.tokens.len()).map(|(_, token)| token)
    }
}

impl<I: Isa> Engine<I> {
    /// Opens an empty session.
    pub fn open(&mut self) -> SessionId {
        let table = self.cache.open();
        self.insert(Vec::new(), 0, table, AdapterSet::new())
    }

    /// Opens an empty session of which a hybrid keeps no states, so that nothing is held once it is closed.
    pub fn open_ephemeral(&mut self) -> SessionId {
        let id = self.open();
        if let Some(session) = self.sessions.get_mut(&id) {
            session.ephemeral = true;
        }
        id
    }

    pub(super) fn insert(
        &mut self,
        tokens: Vec<u32>,
        cached: usize,
        table: TableId,
        adapters: AdapterSet,
    ) -> SessionId {
        let id = SessionId(self.fresh());
        let used = self.steps;
        let session =
            Session { tokens, cached, table, adapters, used, mtp: 0, guess: None, ephemeral: false, closed: false };
        self.sessions.insert(id, session);
        id
    }

    /// Opens a session that begins with all that an idle one holds; they share its blocks of the KV cache.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the session is closed, or if a request runs on it.
    pub fn fork(&mut self, id: SessionId) -> Result<SessionId> {
        self.refuse_busy(id)?;
        let Session { tokens, cached, table, adapters, .. } = self.session(id)?;
        let (tokens, cached, table, adapters) = (tokens.clone(), *cached, *table, adapters.clone());
        let copy = self.cache.fork(table, cached);
        // Without a state of its own it is computed again, from the nearest one that was kept.
        let complete = !self.cache.has_state(table) || self.free_state() && self.cache.take_state(copy, Some(table));
        let cached = if complete { cached } else { 0 };
        self.cache.truncate(copy, cached);
        Ok(self.insert(tokens, cached, copy, adapters))
    }

    /// An idle session as bytes, for the same model in any process. `fingerprint` identifies the model (see [`super::fingerprint`]); `rest` is
    /// what the other parts of a split model have of it, and else empty.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the session is closed or busy, [`ErrorKind::OutOfMemory`] if there is no room for the bytes.
    pub fn save(&mut self, id: SessionId, fingerprint: u64, rest: &[u8]) -> Result<Vec<u8>> {
        self.refuse_busy(id)?;
        let Session { tokens, cached, table, adapters, .. } = self.session(id)?;
        let (tokens, cached, table) = (tokens.clone(), *cached, *table);
        let fingerprint = fingerprint_with(fingerprint, adapters);
        snapshot::save::<I>(&self.cache, table, &tokens, cached, fingerprint, rest)
    }

    /// Opens the session of which [`Self::save`] made these bytes, with the adapters that it had.
    ///
    /// # Errors
    /// [`ErrorKind::BadMagic`], [`ErrorKind::UnsupportedVersion`] or [`ErrorKind::Damaged`] if the bytes are no saved session,
    /// [`ErrorKind::WrongModel`] if it is another model's, [`ErrorKind::ContextFull`] if it is too long.
    pub fn restore(&mut self, bytes: &[u8], fingerprint: u64, adapters: &[(AdapterId, f32)]) -> Result<SessionId> {
        let (vocab, context) = (self.model.config.vocab, self.context);
        let adapters = self.adapter_set(adapters)?;
        let fingerprint = fingerprint_with(fingerprint, &adapters);
        if self.cache.has_states() {
            self.free_state();
        }
        let (tokens, cached, table) = snapshot::restore(&mut self.cache, bytes, fingerprint, vocab, context)?;
        self.cache.set_salt(table, salt(&adapters));
        Ok(self.insert(tokens, cached, table, adapters))
    }

    /// Closes a session and ends the request on it. Its blocks stay in the cache, evictable, for sequences that begin alike.
    pub fn close(&mut self, id: SessionId) {
        self.requests.retain(|_, request| request.session != id);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.closed = true;
        }
        self.drop_kept_states_of(id);
        self.drop_closed();
    }

    pub(super) fn session(&mut self, id: SessionId) -> Result<&mut Session> {
        self.sessions.get_mut(&id).filter(|session| !session.closed).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "the session is closed").expected("an open session", id.0)
        })
    }

    /// The tokens that a session holds.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the session is closed.
    pub fn tokens(&mut self, id: SessionId) -> Result<&[u32]> {
        Ok(&self.session(id)?.tokens)
    }

    /// Drops all but the first `count` tokens of an idle session.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the session is closed or busy.
    pub fn truncate(&mut self, id: SessionId, count: usize) -> Result<()> {
        self.refuse_busy(id)?;
        if count < self.session(id)?.cached {
            self.lose_state(id);
        }
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

    pub(super) fn refuse_busy(&self, id: SessionId) -> Result<()> {
        if self.requests.values().any(|request| request.session == id) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the session is busy: await or stop its generation first",
            ));
        }
        Ok(())
    }

    /// Drops closed sessions, unless a pass still writes to their tables.
    pub(super) fn drop_closed(&mut self) {
        if let Some(running) = &self.running {
            if running.iter().any(|id| self.requests.contains_key(id)) {
                return;
            }
            // No request waits for this pass any more. What it has written lies behind the cached positions of every session.
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
