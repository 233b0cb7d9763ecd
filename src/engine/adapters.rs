//! Adapters by number, and which of them a session has.

use std::sync::Arc;

use super::{Engine, RequestId, SessionId};
use crate::bytes::mixed;
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::isa::Isa;
use crate::kv::CacheSalt;
use crate::model::Adapter;
use crate::model::adapter::{Row, Use};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u32);

/// Adapters with their scales, in the order in which they are added: whoever asks for the same gets the same bits, in whatever order
/// they were loaded or named.
pub(super) type Blend = Vec<(Arc<Adapter>, f32)>;

fn key(adapter: &Adapter) -> (u64, u32) {
    (adapter.mark, adapter.id)
}

/// What keys and values depend on besides their tokens.
pub(super) fn root(blend: &Blend) -> CacheSalt {
    let one = |(adapter, scale): &(Arc<Adapter>, f32)| u64::from(adapter.id) << 32 | u64::from(scale.to_bits());
    CacheSalt::new(blend.iter().map(one).collect())
}

/// Says which model it was, and with which adapters.
pub(super) fn marked(fingerprint: u64, blend: &Blend) -> u64 {
    let marks = blend.iter().flat_map(|(adapter, scale)| [adapter.mark, u64::from(scale.to_bits())]);
    marks.fold(fingerprint, mixed)
}

impl<I: Isa> Engine<I> {
    /// Makes an adapter known to whoever asks for it by its number.
    pub fn add_adapter(&mut self, mut adapter: Adapter) -> Result<AdapterId> {
        self.forward.reserve_adapter(adapter.width)?;
        adapter.id = self.fresh();
        let id = AdapterId(adapter.id);
        self.adapters.push(Arc::new(adapter));
        Ok(id)
    }

    /// Nobody can ask for it any more. Sessions that have it keep it until they have others or close; then its memory is free.
    pub fn remove_adapter(&mut self, id: AdapterId) {
        self.adapters.retain(|adapter| adapter.id != id.0);
    }

    /// Goes on with an idle session with these adapters alone; a scale of 0 is none. If it had others, what it holds is computed anew.
    pub fn adapt(&mut self, id: SessionId, adapters: &[(AdapterId, f32)]) -> Result<()> {
        self.refuse_busy(id)?;
        let blend = self.blend(adapters)?;
        let root = root(&blend);
        let session = self.session(id)?;
        let table = session.table;
        session.blend = blend;
        if *self.cache.salt(table) != root {
            self.session(id)?.cached = 0;
            self.cache.set_salt(table, root);
            // As where a session is cut: a pass may still write to its blocks.
            if self.running.is_none() {
                self.cache.truncate(table, 0);
            }
        }
        Ok(())
    }

    pub(super) fn blend(&self, adapters: &[(AdapterId, f32)]) -> Result<Blend> {
        let wrong = |reason: &str| Error::new(ErrorKind::InvalidArgument, reason).option("adapters");
        let mut blend = Blend::new();
        for &(id, scale) in adapters {
            if !scale.is_finite() {
                return Err(wrong("out of range").expected("a finite scale", scale));
            }
            let known = self.adapters.iter().find(|adapter| adapter.id == id.0);
            let adapter = known.ok_or_else(|| wrong("there is no such adapter"))?;
            let at = blend.partition_point(|(other, _)| key(other) < key(adapter));
            if blend.get(at).is_some_and(|(other, _)| other.id == id.0) {
                return Err(wrong("an adapter is named twice"));
            }
            if scale != 0.0 {
                blend.insert(at, (Arc::clone(adapter), scale));
            }
        }
        Ok(blend)
    }

    /// Which adapters work on which rows of a batch, by the requests that these serve.
    pub(super) fn uses(&self, owners: &[RequestId]) -> Vec<Use> {
        let mut uses: Vec<Use> = Vec::new();
        for (row, owner) in owners.iter().enumerate() {
            for (adapter, scale) in &self.sessions[&self.requests[owner].session].blend {
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
