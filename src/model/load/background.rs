//! A load in the background: while the team packs some chunks, the caller receives the next ones. While no chunk waits, it computes a
//! prompt as far as the layers have come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{EarlyPrefill, Loader};
use crate::error::{Error, ErrorKind, Result};
use crate::model::plan::Plan;
use crate::model::weights::Model;
use crate::team::{BackgroundTask, Team};

/// Buffers: chunks that wait to be packed or are being packed, and the one that the caller fills. With several, neither side waits
/// whenever the other is briefly late.
const BUFFERS: usize = 4;

/// A [`Loader`] that packs in the background.
pub struct BackgroundLoader {
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
    early: Option<EarlyPrefill>,
}

impl Work {
    /// Runs an operation of the prompt; `false` where there is none to run.
    fn advance(&mut self, team: &Team) -> Result<bool> {
        let Self { loader, early } = self;
        early.as_mut().map_or(Ok(false), |early| early.advance(team, loader))
    }
}

#[derive(Default)]
struct Queue(Mutex<Chunks>);

#[derive(Default)]
struct Chunks {
    waiting: VecDeque<Chunk>,
    /// Buffers whose chunk is packed.
    free: Vec<Vec<u8>>,
    /// Whether a background task runs, which takes what waits.
    running: bool,
    /// Whether somebody waits for the background task to end: it leaves the prompt for later.
    awaited: bool,
}

struct Chunk {
    file: usize,
    offset: u64,
    bytes: Vec<u8>,
    len: usize,
}

impl BackgroundLoader {
    /// Takes a loader and the team that packs for it.
    pub fn new(loader: Loader, team: Team) -> Self {
        let work = Work { loader, early: None };
        Self { state: Some(State::Idle(team, Box::new(work))), queue: Arc::default(), buffers: 1 }
    }

    /// Computes the keys and values of a prompt from now on: beside the caller, between chunks, or in a team of one in
    /// [`Self::advance`].
    ///
    /// # Errors
    /// As [`Self::feed`]; [`ErrorKind::InvalidArgument`] or [`ErrorKind::ContextFull`] for tokens that are no prompt of this model. The
    /// load then goes on without.
    pub fn prefill(&mut self, tokens: Vec<u32>) -> Result<()> {
        let (team, mut work) = self.join()?;
        let early = EarlyPrefill::new(work.loader.plan(), tokens);
        let outcome = early.map(|early| work.early = Some(early));
        self.spawn(team, work, true);
        outcome
    }

    /// Runs an operation of the prompt. Returns whether the weights for another one may have come.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn advance(&mut self) -> Result<bool> {
        let (team, mut work) = self.join()?;
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
            let (team, work) = self.join()?;
            self.spawn(team, work, false);
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
            None => Err(self.join().err().unwrap_or_else(failed)),
        }
    }

    /// Packs what waits, in the background. `more`: weights for the prompt may have come before.
    fn spawn(&mut self, team: Team, mut work: Box<Work>, more: bool) {
        let queue = Arc::clone(&self.queue);
        self.queue.lock().running = true;
        self.state = Some(State::Packing(team.spawn(move |team| {
            let outcome = queue.run(team, &mut work, more);
            (work, outcome)
        })));
    }

    /// The loader, after everything that has been fed.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn loader(&mut self) -> Result<&Loader> {
        let (team, work) = self.join()?;
        let State::Idle(_, work) = self.state.insert(State::Idle(team, work)) else { unreachable!("just put there") };
        Ok(&work.loader)
    }

    /// The model, the team that loaded it, and the prompt as far as it is computed.
    ///
    /// # Errors
    /// As [`Self::feed`] and [`Loader::finish`].
    pub fn finish(mut self) -> Result<(Model, Plan, Team, Option<EarlyPrefill>)> {
        let (team, work) = self.join()?;
        let Work { loader, mut early } = *work;
        let (model, plan, rounding_changed) = loader.assemble_all()?;
        if let Some(early) = early.as_mut().filter(|_| rounding_changed) {
            early.prefill.restart();
        }
        Ok((model, plan, team, early))
    }

    /// Waits until everything that was fed is packed. Takes the state out: the caller puts it back.
    fn join(&mut self) -> Result<(Team, Box<Work>)> {
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
        chunks.running
    }

    fn free_buffer(&self) -> Option<Vec<u8>> {
        self.lock().free.pop()
    }

    /// Packs what waits, until nothing does. A team of several computes the prompt beside its caller, whenever no chunk waits.
    fn run(&self, team: &Team, work: &mut Work, more: bool) -> Result<()> {
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
            chunks.running = outcome.is_ok();
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
        chunks.running = chunk.is_some() || more && !chunks.awaited;
        chunks.running.then_some(chunk)
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::InvalidArgument, "the load has failed before")
}
