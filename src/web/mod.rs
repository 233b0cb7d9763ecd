//! The engine's classes at the edge to JavaScript: options come in, events and errors go out. No logic lives here.

#![allow(clippy::missing_errors_doc, reason = "whatever fails is thrown as `{ code, message, detail }`")]

mod adapter;
mod bench;
mod engine;
mod loader;
mod split;

pub use adapter::AdapterLoader;
pub use bench::Roofline;
pub use engine::Engine;
pub use loader::Loader;

use wasm_bindgen::prelude::*;

use crate::bindings::{Js, thrown};
use crate::team;

#[cfg(feature = "threads")]
pub use wasm_bindgen_rayon::init_thread_pool;

/// Reports to every thread that one of them has died, which ends their waits.
#[wasm_bindgen]
pub fn poison() {
    team::poison();
}

/// A team of the caller and of the pool that the host has started before.
#[cfg(feature = "threads")]
fn team(threads: usize) -> Js<team::Team> {
    team::Team::new(threads).map_err(thrown)
}

#[cfg(not(feature = "threads"))]
fn team(threads: usize) -> Js<team::Team> {
    use crate::error::{Error, ErrorKind};
    if threads == 1 {
        return Ok(team::Team::solo());
    }
    let error = Error::new(ErrorKind::InvalidArgument, "this build has no threads").option("threads");
    Err(thrown(error.expected(1, threads)))
}
