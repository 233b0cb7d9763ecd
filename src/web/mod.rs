//! The edge to JavaScript: options come in, events and errors go out. No logic lives here.
//!
//! Every failure is thrown as `{ code, message, detail }`. File offsets are exact numbers below 2⁵³.

#[cfg(not(feature = "convert"))]
mod adapter;
#[cfg(not(feature = "convert"))]
mod bench;
mod checkpoint;
#[cfg(feature = "convert")]
mod convert;
#[cfg(not(feature = "convert"))]
mod engine;
#[cfg(not(feature = "convert"))]
mod loader;

#[cfg(not(feature = "convert"))]
pub use adapter::AdapterLoader;
#[cfg(not(feature = "convert"))]
pub use bench::Roofline;
pub use checkpoint::Checkpoint;
#[cfg(feature = "convert")]
pub use convert::Converter;
#[cfg(not(feature = "convert"))]
pub use engine::Engine;
#[cfg(not(feature = "convert"))]
pub use loader::Loader;

use js_sys::{Array, Uint8Array};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_wasm_bindgen::Serializer;
use wasm_bindgen::prelude::*;

use crate::error::{Error, ErrorKind, filled};
use crate::model::plan::{Plan, Range};
use crate::team;

#[cfg(feature = "threads")]
pub use wasm_bindgen_rayon::init_thread_pool;

type Js<T> = Result<T, JsValue>;

/// Runs once per thread.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|info| {
        // First, so that nobody waits for this thread while the message is written.
        team::poison();
        console_error_panic_hook::hook(info);
    }));
}

/// Tells every thread that one of them has died, which ends their waits.
#[wasm_bindgen]
pub fn poison() {
    team::poison();
}

/// The instruction set that this build's kernels use.
#[wasm_bindgen]
pub fn kernel() -> String {
    use crate::kernels::isa::{Active, Isa};
    Active::NAME.to_owned()
}

fn thrown(error: Error) -> JsValue {
    to_js(&error).unwrap_or_else(|_| JsValue::from_str(&error.to_string()))
}

fn to_js(value: &impl Serialize) -> Js<JsValue> {
    value.serialize(&Serializer::json_compatible()).map_err(JsValue::from)
}

/// Options from JavaScript; an unknown one is refused by its name.
fn from_js<T: DeserializeOwned>(value: JsValue) -> Js<T> {
    serde_wasm_bindgen::from_value(value)
        .map_err(|error| thrown(Error::new(ErrorKind::InvalidArgument, error.to_string())))
}

/// An exact integer from JavaScript's number.
fn exact(number: f64) -> Js<u64> {
    if number >= 0.0 && number <= (1u64 << 53) as f64 && number.fract() == 0.0 {
        return Ok(number as u64);
    }
    Err(thrown(
        Error::new(ErrorKind::InvalidArgument, "not a byte count").expected("an integer from 0 to 2^53", number),
    ))
}

/// Bytes of a file.
#[derive(Serialize)]
struct JsRange {
    file: usize,
    offset: u64,
    length: u64,
}

impl From<Range> for JsRange {
    fn from(Range { file, offset, len }: Range) -> Self {
        Self { file, offset, length: len }
    }
}

fn ranges(ranges: impl Iterator<Item = Range>) -> Js<JsValue> {
    let ranges: Vec<JsRange> = ranges.map(JsRange::from).collect();
    to_js(&ranges)
}

/// Gives a plan the rows that it asked for.
fn answer(plan: &mut Plan, rows: &Array) -> Js<()> {
    let rows: Vec<Vec<u8>> = rows.iter().map(|row| Uint8Array::new(&row).to_vec()).collect();
    let fits = rows.len() == plan.probes().len()
        && rows.iter().zip(plan.probes()).all(|(row, probe)| row.len() as u64 == probe.range.len);
    if !fits {
        return Err(thrown(Error::new(ErrorKind::InvalidArgument, "the probes' bytes do not fit")));
    }
    plan.decide(&rows).map_err(thrown)
}

/// Makes a buffer for chunks long enough.
fn fitting(chunk: &mut Vec<u8>, length: usize) -> Js<()> {
    if chunk.len() < length {
        *chunk = Vec::new();
        *chunk = filled("a chunk", length as u64, 0).map_err(thrown)?;
    }
    Ok(())
}

fn out_of_order() -> JsValue {
    thrown(Error::new(ErrorKind::InvalidArgument, "the load is at another stage"))
}

/// The caller and the pool that the host has started before.
#[cfg(feature = "threads")]
fn team(threads: usize) -> Js<team::Team> {
    team::Team::new(threads).map_err(thrown)
}

#[cfg(not(any(feature = "threads", feature = "convert")))]
fn team(threads: usize) -> Js<team::Team> {
    if threads == 1 {
        return Ok(team::Team::solo());
    }
    let error = Error::new(ErrorKind::InvalidArgument, "this build has no threads").option("threads");
    Err(thrown(error.expected(1, threads)))
}
