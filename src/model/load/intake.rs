//! A load in the background: while the team packs some chunks, the caller receives the next ones. While no chunk waits, it computes a
//! prompt as far as the layers have come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Begun, Loader};
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
    Idle(Team, Box<Work>),
    Packing(BackgroundTask<(Box<Work>, Result<()>)>),
}

struct Work {
    loader: Loader,
    begun: Option<Begun>,
}

impl Work {
    /// Runs an operation of the prompt; `false` where there is none to run.
    fn advance(&mut self, team: &Team) -> Result<bool> {
        let Self { loader, begun } = self;
        begun.as_mut().map_or(Ok(false), |begun| begun.advance(team, loader))
    }
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
    /// Whether somebody waits for the background task to end: it leaves the prompt for later.
    awaited: bool,
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
        let work = Work { loader, begun: None };
        Self { state: Some(State::Idle(team, Box::new(work))), queue: Arc::default(), buffers: 1 }
    }

    /// Computes the keys and values of a prompt from now on: beside the caller, between chunks, or in a team of one in
    /// [`Self::advance`].
    ///
    /// # Errors
    /// As [`Self::feed`]; [`ErrorKind::InvalidArgument`] or [`ErrorKind::ContextFull`] for tokens that are no prompt of this model. The
    /// load then goes on without.
    pub fn prefill(&mut self, tokens: Vec<u32>) -> Result<()> {
        let (team, mut work) = self.here()?;
        let begun = Begun::new(work.loader.plan(), tokens);
        let outcome = begun.map(|begun| work.begun = Some(begun));
        self.serve(team, work, true);
        outcome
    }

    /// Runs an operation of the prompt. Returns whether the weights for another one may have come.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn advance(&mut self) -> Result<bool> {
        let (team, mut work) = self.here()?;
        let more = work.advance(&team)?;
        self.state = Some(State::Idle(team, work));
        Ok(more)
    }

    /// Queues the first `len` bytes of a chunk for [`Loader::feed`]. Returns a buffer for the next chunk, which is empty while there are
    /// fewer than there may be; waits for one otherwise. What is wrong with a chunk is the error of a later call.
    ///
    /// # Errors
    /// The error of an earlier chunk, as [`Loader::feed`]; after it every call fails.
    pub fn feed(&mut self, file: usize, offset: u64, bytes: Vec<u8>, len: usize) -> Result<Vec<u8>> {
        if !self.queue.add(Chunk { file, offset, bytes, len }) {
            let (team, work) = self.here()?;
            self.serve(team, work, false);
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

    /// Packs what waits, in the background. `more`: weights for the prompt may have come before.
    fn serve(&mut self, team: Team, mut work: Box<Work>, more: bool) {
        let queue = Arc::clone(&self.queue);
        self.queue.lock().served = true;
        self.state = Some(State::Packing(team.spawn(move |team| {
            let outcome = queue.serve(team, &mut work, more);
            (work, outcome)
        })));
    }

    /// The loader, after everything that has been fed.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn loader(&mut self) -> Result<&Loader> {
        let (team, work) = self.here()?;
        let State::Idle(_, work) = self.state.insert(State::Idle(team, work)) else { unreachable!("just put there") };
        Ok(&work.loader)
    }

    /// The model, the team that loaded it, and the prompt as far as it is computed.
    ///
    /// # Errors
    /// As [`Self::feed`] and [`Loader::finish`].
    pub fn finish(mut self) -> Result<(Model, Plan, Team, Option<Begun>)> {
        let (team, work) = self.here()?;
        let Work { loader, mut begun } = *work;
        let (model, plan, rounded) = loader.assemble()?;
        if let Some(begun) = begun.as_mut().filter(|_| rounded) {
            begun.prefill.restart();
        }
        Ok((model, plan, team, begun))
    }

    fn here(&mut self) -> Result<(Team, Box<Work>)> {
        match self.state.take() {
            None => Err(failed()),
            Some(State::Idle(team, work)) => Ok((team, work)),
            Some(State::Packing(task)) => {
                self.queue.lock().awaited = true;
                let (team, (work, outcome)) = task.wait();
                self.queue.lock().awaited = false;
                outcome?;
                Ok((team, work))
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

    /// Packs what waits, until nothing does. A team of several computes the prompt beside its caller, whenever no chunk waits.
    fn serve(&self, team: &Team, work: &mut Work, more: bool) -> Result<()> {
        let beside = team.members() > 1;
        let mut more = more && beside;
        while let Some(chunk) = self.next(more) {
            let outcome = match &chunk {
                Some(Chunk { file, offset, bytes, len }) => {
                    work.loader.feed(team, *file, *offset, &bytes[..*len]).map(|()| beside)
                }
                None => work.advance(team),
            };
            let mut chunks = self.lock();
            chunks.served = outcome.is_ok();
            more = outcome?;
            chunks.free.extend(chunk.map(|chunk| chunk.bytes));
            drop(chunks);
            team.notify();
        }
        Ok(())
    }

    /// The next chunk, or an empty turn for the prompt if there may be `more` of it to compute. `None` ends the task.
    fn next(&self, more: bool) -> Option<Option<Chunk>> {
        let mut chunks = self.lock();
        let chunk = chunks.waiting.pop_front();
        chunks.served = chunk.is_some() || more && !chunks.awaited;
        chunks.served.then_some(chunk)
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::InvalidArgument, "the load has failed before")
}
