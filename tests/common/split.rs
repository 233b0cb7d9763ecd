//! A model that is split by layers, as one engine: what a host does between the parts.

use std::ops::{Deref, DerefMut};

use ternlight::engine::{AdapterId, Event, SessionId};
use ternlight::error::Result;
use ternlight::model::Options;
use ternlight::team::Team;

use super::{Files, TestEngine};

pub struct Split {
    first: TestEngine,
    others: Vec<TestEngine>,
    /// Which of the others has the pass under way.
    at: Option<usize>,
}

impl Deref for Split {
    type Target = TestEngine;

    fn deref(&self) -> &TestEngine {
        &self.first
    }
}

impl DerefMut for Split {
    fn deref_mut(&mut self) -> &mut TestEngine {
        &mut self.first
    }
}

impl Split {
    /// Splits before the layers of these numbers.
    pub fn load(files: &Files, options: &Options, cuts: &[usize], team: impl Fn() -> Team) -> Result<Self> {
        let layers = files.plan(options.clone())?.config.layers;
        let starts = [0].iter().chain(cuts);
        let ends = cuts.iter().chain([&layers]);
        let engine = |(&first_layer, &end): (&usize, &usize)| {
            files.engine(Options { first_layer, end_layer: Some(end), ..options.clone() }, team())
        };
        let mut engines = starts.zip(ends).map(engine).collect::<Result<Vec<_>>>()?;
        let all = engines.iter_mut().map(|engine| engine.agree(true)).fold(true, |a, b| a & b);
        for engine in &mut engines {
            engine.agree(all);
        }
        let others = engines.split_off(1);
        Ok(Self { first: engines.remove(0), others, at: None })
    }

    pub fn add_adapter(&mut self, files: &Files) -> Result<AdapterId> {
        let id = self.first.add_adapter(files.adapter(&self.first.model().config)?, None)?;
        for other in &mut self.others {
            other.add_adapter(files.adapter(&other.model().config)?, Some(id))?;
        }
        Ok(id)
    }

    pub fn step(&mut self, expired: &mut dyn FnMut() -> bool) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            // A pass that nobody waits for any more is left.
            self.at = self.at.filter(|_| self.first.awaits_parts());
            if let Some(at) = self.at {
                if self.others[at].busy() {
                    self.others[at].step(expired)?;
                }
                if self.others[at].busy() {
                    return Ok(events);
                }
                let hidden = self.others[at].hidden().to_vec();
                if let Some(next) = self.others.get_mut(at + 1) {
                    next.hidden().copy_from_slice(&hidden);
                    self.at = Some(at + 1);
                    continue;
                }
                self.first.hidden().copy_from_slice(&hidden);
                self.first.continue_pass();
                self.at = None;
            }
            events.extend(self.first.step(expired)?);
            let handover = self.first.handover(None)?;
            if handover.is_empty() {
                return Ok(events);
            }
            self.others.iter_mut().for_each(|other| other.follow(&handover));
            self.others[0].hidden().copy_from_slice(self.first.hidden());
            self.at = Some(0);
        }
    }

    /// Sends the table of a session to the others. Returns its table, its computed tokens, and its blocks.
    fn send_table(&mut self, id: SessionId) -> Result<(u32, usize, usize)> {
        let numbers = self.first.handover(Some(id))?;
        self.others.iter_mut().for_each(|other| other.follow(&numbers));
        let row = &numbers[2 + 3 * numbers[1] as usize + 1..];
        Ok((row[0], row[1] as usize, row[4] as usize))
    }

    pub fn save(&mut self, id: SessionId, fingerprint: u64) -> Result<Vec<u8>> {
        let (table, cached, _) = self.send_table(id)?;
        let parts = self.others.iter().map(|other| other.part(table, cached)).collect::<Result<Vec<_>>>()?;
        let parts: Vec<Saved> = parts.iter().map(|part| Saved::read(part)).collect();
        let blocks = parts.first().map_or(0, |part| part.blocks.len());
        let bytes = (0..blocks).flat_map(|index| parts.iter().flat_map(move |part| part.blocks[index]));
        let rest: Vec<u8> = bytes.chain(parts.iter().flat_map(|part| part.state)).copied().collect();
        self.first.save(id, fingerprint, &rest)
    }

    pub fn restore(&mut self, bytes: &[u8], fingerprint: u64, adapters: &[(AdapterId, f32)]) -> Result<SessionId> {
        let id = self.first.restore(bytes, fingerprint, adapters)?;
        let (table, _, kept) = self.send_table(id)?;
        let saved = Saved::read(bytes);
        let empty = self.others.iter().map(|other| other.part(table, 0)).collect::<Result<Vec<_>>>()?;
        let sizes: Vec<(usize, usize)> =
            empty.iter().map(|part| Saved::read(part)).map(|part| (part.block, part.state.len())).collect();
        let mut at = saved.block - sizes.iter().map(|(block, _)| block).sum::<usize>();
        let mut state_at = saved.state.len().saturating_sub(sizes.iter().map(|(_, state)| state).sum());
        for (other, (block, state)) in self.others.iter_mut().zip(sizes) {
            let blocks = saved.blocks[..kept].iter().flat_map(|bytes| &bytes[at..at + block]);
            other.take_part(table, &blocks.chain(&saved.state[state_at..][..state]).copied().collect::<Vec<u8>>());
            at += block;
            state_at += state;
        }
        Ok(id)
    }
}

/// The parts of a saved session.
struct Saved<'a> {
    block: usize,
    blocks: Vec<&'a [u8]>,
    state: &'a [u8],
}

impl<'a> Saved<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let number = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
        let (version, tokens, blocks, block) = (number(8), number(12), number(16), number(20));
        let from = 32 + 4 * tokens;
        let end = from + blocks * block;
        let state = if version == 4 { &bytes[end + 4..bytes.len() - 8] } else { &[] };
        Self { block, blocks: (0..blocks).map(|index| &bytes[from + index * block..][..block]).collect(), state }
    }
}
