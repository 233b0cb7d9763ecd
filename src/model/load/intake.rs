//! A load beside what else its caller does: while one chunk is packed the next one comes.

use super::Loader;
use crate::error::{Error, ErrorKind, Result};
use crate::model::plan::Plan;
use crate::model::weights::Model;
use crate::team::{Errand, Team};

pub struct Intake {
    /// None while it changes, and after an error.
    state: Option<State>,
}

enum State {
    Here(Team, Box<Loader>),
    Away(Errand<(Box<Loader>, Vec<u8>, Result<()>)>),
}

impl Intake {
    pub fn new(loader: Loader, team: Team) -> Self {
        Self { state: Some(State::Here(team, Box::new(loader))) }
    }

    /// Takes the first `len` bytes of a chunk as [`Loader::feed`] does, after the one before: its error comes now, and its
    /// buffer back.
    pub fn feed(&mut self, file: usize, offset: u64, chunk: Vec<u8>, len: usize) -> Result<Vec<u8>> {
        let (team, mut loader, spare) = self.here()?;
        self.state = Some(State::Away(team.errand(move |team| {
            let outcome = loader.feed(team, file, offset, &chunk[..len]);
            (loader, chunk, outcome)
        })));
        Ok(spare)
    }

    /// The loader, after everything that has been fed.
    pub fn loader(&mut self) -> Result<&Loader> {
        let (team, loader, _) = self.here()?;
        let State::Here(_, loader) = self.state.insert(State::Here(team, loader)) else {
            unreachable!("just put there")
        };
        Ok(loader)
    }

    /// The model and the team that loaded it.
    pub fn finish(mut self) -> Result<(Model, Plan, Team)> {
        let (team, loader, _) = self.here()?;
        let (model, plan) = loader.finish()?;
        Ok((model, plan, team))
    }

    fn here(&mut self) -> Result<(Team, Box<Loader>, Vec<u8>)> {
        match self.state.take() {
            None => Err(Error::new(ErrorKind::InvalidArgument, "the load has failed before")),
            Some(State::Here(team, loader)) => Ok((team, loader, Vec::new())),
            Some(State::Away(errand)) => {
                let (team, (loader, chunk, outcome)) = errand.wait();
                outcome?;
                Ok((team, loader, chunk))
            }
        }
    }
}
