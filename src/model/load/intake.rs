//! A load beside what else its caller does: while some chunks are packed the next ones come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Loader;
use crate::error::{Error, ErrorKind, Result};
use crate::model::plan::Plan;
use crate::model::weights::Model;
use crate::team::{BackgroundTask, Team};

/// Chunks that wait to be packed or are being packed, and the one that comes: neither side waits for the other's every hiccup.
const BUFFERS: usize = 4;

pub struct Intake {
    /// None while it changes, and after an error.
    state: Option<State>,
    queue: Arc<Queue>,
    /// Buffers under way, the caller's included.
    buffers: usize,
}

enum State {
    Here(Team, Box<Loader>),
    Away(BackgroundTask<(Box<Loader>, Result<()>)>),
}

#[derive(Default)]
struct Queue(Mutex<Stock>);

#[derive(Default)]
struct Stock {
    waiting: VecDeque<Chunk>,
    spare: Vec<Vec<u8>>,
    /// Whether somebody takes what waits.
    served: bool,
}

struct Chunk {
    file: usize,
    offset: u64,
    bytes: Vec<u8>,
    len: usize,
}

impl Intake {
    pub fn new(loader: Loader, team: Team) -> Self {
        Self { state: Some(State::Here(team, Box::new(loader))), queue: Arc::default(), buffers: 1 }
    }

    /// Takes the first `len` bytes of a chunk as [`Loader::feed`] does, after those before. Gives a buffer back, which is empty as
    /// long as there are few; waits where there are enough. What is wrong with a chunk is the error of a later call.
    pub fn feed(&mut self, file: usize, offset: u64, bytes: Vec<u8>, len: usize) -> Result<Vec<u8>> {
        if !self.queue.add(Chunk { file, offset, bytes, len }) {
            let (team, mut loader) = self.here()?;
            let queue = Arc::clone(&self.queue);
            self.queue.stock().served = true;
            self.state = Some(State::Away(team.spawn(move |team| {
                let outcome = queue.serve(team, &mut loader);
                (loader, outcome)
            })));
        }
        if let Some(spare) = self.queue.spare() {
            return Ok(spare);
        }
        if self.buffers < BUFFERS {
            self.buffers += 1;
            return Ok(Vec::new());
        }
        if let Some(State::Away(errand)) = &self.state {
            errand.wait_for(|| !self.queue.stock().spare.is_empty());
        }
        match self.queue.spare() {
            Some(spare) => Ok(spare),
            None => Err(self.here().err().unwrap_or_else(failed)),
        }
    }

    /// The loader, after everything that has been fed.
    pub fn loader(&mut self) -> Result<&Loader> {
        let (team, loader) = self.here()?;
        let State::Here(_, loader) = self.state.insert(State::Here(team, loader)) else {
            unreachable!("just put there")
        };
        Ok(loader)
    }

    /// The model and the team that loaded it.
    pub fn finish(mut self) -> Result<(Model, Plan, Team)> {
        let (team, loader) = self.here()?;
        let (model, plan) = loader.finish()?;
        Ok((model, plan, team))
    }

    fn here(&mut self) -> Result<(Team, Box<Loader>)> {
        match self.state.take() {
            None => Err(failed()),
            Some(State::Here(team, loader)) => Ok((team, loader)),
            Some(State::Away(errand)) => {
                let (team, (loader, outcome)) = errand.wait();
                outcome?;
                Ok((team, loader))
            }
        }
    }
}

impl Queue {
    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody will take it without being called.
    fn add(&self, chunk: Chunk) -> bool {
        let mut stock = self.stock();
        stock.waiting.push_back(chunk);
        stock.served
    }

    fn spare(&self) -> Option<Vec<u8>> {
        self.stock().spare.pop()
    }

    /// Packs what waits until nothing does.
    fn serve(&self, team: &Team, loader: &mut Loader) -> Result<()> {
        while let Some(Chunk { file, offset, bytes, len }) = self.next() {
            let outcome = loader.feed(team, file, offset, &bytes[..len]);
            let mut stock = self.stock();
            stock.served = outcome.is_ok();
            outcome?;
            stock.spare.push(bytes);
            drop(stock);
            team.notify();
        }
        Ok(())
    }

    fn next(&self) -> Option<Chunk> {
        let mut stock = self.stock();
        let chunk = stock.waiting.pop_front();
        stock.served = chunk.is_some();
        chunk
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::InvalidArgument, "the load has failed before")
}
