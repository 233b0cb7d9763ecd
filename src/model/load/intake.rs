//! A load in the background: while the team packs some chunks, the caller receives the next ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Loader;
use crate::error::{Error, ErrorKind, Result};
use crate::model::plan::Plan;
use crate::model::weights::Model;
use crate::team::{BackgroundTask, Team};

/// Buffers: chunks that wait to be packed or are being packed, and the one that the caller fills. With several, neither side waits
/// whenever the other is briefly late.
const BUFFERS: usize = 4;

/// A [`Loader`] that packs in the background.
pub struct Intake {
    /// `None` while it changes, and after an error.
    state: Option<State>,
    queue: Arc<Queue>,
    /// Buffers that exist, the caller's included.
    buffers: usize,
}

enum State {
    /// Everything that was fed is packed.
    Idle(Team, Box<Loader>),
    Packing(BackgroundTask<(Box<Loader>, Result<()>)>),
}

#[derive(Default)]
struct Queue(Mutex<Chunks>);

#[derive(Default)]
struct Chunks {
    waiting: VecDeque<Chunk>,
    /// Buffers whose chunk is packed.
    free: Vec<Vec<u8>>,
    /// Whether a background task takes what waits.
    served: bool,
}

struct Chunk {
    file: usize,
    offset: u64,
    bytes: Vec<u8>,
    len: usize,
}

impl Intake {
    /// Takes a loader and the team that packs for it.
    pub fn new(loader: Loader, team: Team) -> Self {
        Self { state: Some(State::Idle(team, Box::new(loader))), queue: Arc::default(), buffers: 1 }
    }

    /// Queues the first `len` bytes of a chunk for [`Loader::feed`]. Returns a buffer for the next chunk, which is empty while there are
    /// fewer than there may be; waits for one otherwise. What is wrong with a chunk is the error of a later call.
    ///
    /// # Errors
    /// The error of an earlier chunk, as [`Loader::feed`]; after it every call fails.
    pub fn feed(&mut self, file: usize, offset: u64, bytes: Vec<u8>, len: usize) -> Result<Vec<u8>> {
        if !self.queue.add(Chunk { file, offset, bytes, len }) {
            let (team, mut loader) = self.here()?;
            let queue = Arc::clone(&self.queue);
            self.queue.lock().served = true;
            self.state = Some(State::Packing(team.spawn(move |team| {
                let outcome = queue.serve(team, &mut loader);
                (loader, outcome)
            })));
        }
        if let Some(buffer) = self.queue.free_buffer() {
            return Ok(buffer);
        }
        if self.buffers < BUFFERS {
            self.buffers += 1;
            return Ok(Vec::new());
        }
        if let Some(State::Packing(task)) = &self.state {
            task.wait_for(|| !self.queue.lock().free.is_empty());
        }
        match self.queue.free_buffer() {
            Some(buffer) => Ok(buffer),
            None => Err(self.here().err().unwrap_or_else(failed)),
        }
    }

    /// The loader, after everything that has been fed.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn loader(&mut self) -> Result<&Loader> {
        let (team, loader) = self.here()?;
        let State::Idle(_, loader) = self.state.insert(State::Idle(team, loader)) else {
            unreachable!("just put there")
        };
        Ok(loader)
    }

    /// The model and the team that loaded it.
    ///
    /// # Errors
    /// As [`Self::feed`] and [`Loader::finish`].
    pub fn finish(mut self) -> Result<(Model, Plan, Team)> {
        let (team, loader) = self.here()?;
        let (model, plan) = loader.finish()?;
        Ok((model, plan, team))
    }

    fn here(&mut self) -> Result<(Team, Box<Loader>)> {
        match self.state.take() {
            None => Err(failed()),
            Some(State::Idle(team, loader)) => Ok((team, loader)),
            Some(State::Packing(task)) => {
                let (team, (loader, outcome)) = task.wait();
                outcome?;
                Ok((team, loader))
            }
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Chunks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a chunk. Returns whether a background task will take it.
    fn add(&self, chunk: Chunk) -> bool {
        let mut chunks = self.lock();
        chunks.waiting.push_back(chunk);
        chunks.served
    }

    fn free_buffer(&self) -> Option<Vec<u8>> {
        self.lock().free.pop()
    }

    /// Packs what waits, until nothing does.
    fn serve(&self, team: &Team, loader: &mut Loader) -> Result<()> {
        while let Some(Chunk { file, offset, bytes, len }) = self.next() {
            let outcome = loader.feed(team, file, offset, &bytes[..len]);
            let mut chunks = self.lock();
            chunks.served = outcome.is_ok();
            outcome?;
            chunks.free.push(bytes);
            drop(chunks);
            team.notify();
        }
        Ok(())
    }

    fn next(&self) -> Option<Chunk> {
        let mut chunks = self.lock();
        let chunk = chunks.waiting.pop_front();
        chunks.served = chunk.is_some();
        chunk
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::InvalidArgument, "the load has failed before")
}
