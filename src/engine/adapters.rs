//! Adapters by number, and which of them a session has.

use std::sync::Arc;

use super::{Engine, RequestId, SessionId};
use crate::bytes::mixed;
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::isa::Isa;
use crate::kv::CacheSalt;
use crate::model::Adapter;
use crate::model::adapter::{Row, Use};

/// Names an adapter of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u32);

/// Adapters with their scales, in the order in which their results are added. The order depends on their content alone, so that the
/// same adapters give the same bits in whatever order they were loaded or named.
pub(super) type AdapterSet = Vec<(Arc<Adapter>, f32)>;

fn key(adapter: &Adapter) -> (u64, u32) {
    (adapter.content_hash, adapter.id)
}

/// What keys and values depend on besides their tokens.
pub(super) fn salt(set: &AdapterSet) -> CacheSalt {
    let one = |(adapter, scale): &(Arc<Adapter>, f32)| u64::from(adapter.id) << 32 | u64::from(scale.to_bits());
    CacheSalt::new(set.iter().map(one).collect())
}

/// Identifies a model together with adapters.
pub(super) fn fingerprint_with(fingerprint: u64, set: &AdapterSet) -> u64 {
    let marks = set.iter().flat_map(|(adapter, scale)| [adapter.content_hash, u64::from(scale.to_bits())]);
    marks.fold(fingerprint, mixed)
}

impl<I: Isa> Engine<I> {
    /// Adds an adapter, for sessions to use. In a part of a split model that is not the first it gets the number that it has there.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if there is no room for its scratch memory.
    pub fn add_adapter(&mut self, mut adapter: Adapter, id: Option<AdapterId>) -> Result<AdapterId> {
        self.forward.reserve_adapter(adapter.width)?;
        adapter.id = id.map_or_else(|| self.fresh(), |id| id.0);
        let id = AdapterId(adapter.id);
        self.adapters.push(Arc::new(adapter));
        Ok(id)
    }

    /// Removes an adapter. Sessions that use it keep it until they get others or close; then its memory is free.
    pub fn remove_adapter(&mut self, id: AdapterId) {
        self.adapters.retain(|adapter| adapter.id != id.0);
    }

    /// Gives an idle session these adapters in place of those it had; a scale of 0 leaves an adapter out. If the set changes, the tokens of
    /// the session are computed again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the session is closed or busy, an adapter is unknown or named twice, or a scale is not finite.
    pub fn adapt(&mut self, id: SessionId, adapters: &[(AdapterId, f32)]) -> Result<()> {
        self.refuse_busy(id)?;
        let set = self.adapter_set(adapters)?;
        let salt = salt(&set);
        let session = self.session(id)?;
        let table = session.table;
        session.adapters = set;
        if *self.cache.salt(table) != salt {
            self.session(id)?.cached = 0;
            self.lose_state(id);
            self.cache.set_salt(table, salt);
            // As where a session is cut: a pass may still write to its blocks.
            if self.running.is_none() {
                self.cache.truncate(table, 0);
            }
        }
        Ok(())
    }

    pub(super) fn adapter_set(&self, adapters: &[(AdapterId, f32)]) -> Result<AdapterSet> {
        let wrong = |reason: &str| Error::new(ErrorKind::InvalidArgument, reason).option("adapters");
        let mut set = AdapterSet::new();
        for &(id, scale) in adapters {
            if !scale.is_finite() {
                return Err(wrong("out of range").expected("a finite scale", scale));
            }
            let known = self.adapters.iter().find(|adapter| adapter.id == id.0);
            let adapter = known.ok_or_else(|| wrong("there is no such adapter"))?;
            let at = set.partition_point(|(other, _)| key(other) < key(adapter));
            if set.get(at).is_some_and(|(other, _)| other.id == id.0) {
                return Err(wrong("an adapter is named twice"));
            }
            if scale != 0.0 {
                set.insert(at, (Arc::clone(adapter), scale));
            }
        }
        Ok(set)
    }

    /// Which adapters apply to which rows of a batch; `owners` are the requests that the rows serve.
    pub(super) fn uses(&self, owners: &[RequestId]) -> Vec<Use> {
        let mut uses: Vec<Use> = Vec::new();
        for (row, owner) in owners.iter().enumerate() {
            for (adapter, scale) in &self.sessions[&self.requests[owner].session].adapters {
                let at = uses.partition_point(|other| key(&other.adapter) < key(adapter));
                if uses.get(at).is_none_or(|other| other.adapter.id != adapter.id) {
                    uses.insert(at, Use { adapter: Arc::clone(adapter), rows: Vec::new() });
                }
                uses[at].rows.push(Row::new(row, *scale));
            }
        }
        uses
    }
}
