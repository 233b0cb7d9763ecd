//! What every wasm module of this project shares at its edge to JavaScript: errors, numbers, byte ranges, and the [`Checkpoint`] class.
//!
//! Every failure is thrown as `{ code, message, detail }`. File offsets are exact numbers up to 2⁵³. The engine's own classes are
//! in `web`, the converter's in a crate of its own: a wasm module exports all classes that are linked into it.

mod checkpoint;

pub use checkpoint::Checkpoint;

use js_sys::{Array, Uint8Array};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_wasm_bindgen::Serializer;
use wasm_bindgen::prelude::*;

use crate::error::{Error, ErrorKind, filled};
use crate::model::plan::{ByteRange, Plan};
use crate::team;

/// The largest integer up to which JavaScript's numbers are exact.
const MAX_EXACT: u64 = 1 << 53;

/// A result whose error JavaScript catches.
pub type Js<T> = Result<T, JsValue>;

/// Runs once per thread.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|info| {
        // The team is poisoned first, so that no other thread waits for this one while the message is written.
        team::poison();
        console_error_panic_hook::hook(info);
    }));
}

/// An error as JavaScript gets it: `{ code, message, detail }`. Numbers that are none of JavaScript's stand in its message alone.
pub fn thrown(mut error: Error) -> JsValue {
    let place = &mut error.place;
    for number in [&mut place.offset, &mut place.needed, &mut place.available] {
        *number = number.filter(|number| *number <= MAX_EXACT);
    }
    to_js(&error).unwrap_or_else(|_| JsValue::from_str(&error.to_string()))
}

/// Any value as plain objects, arrays, strings and numbers.
///
/// # Errors
/// The serialiser's message.
pub fn to_js(value: &impl Serialize) -> Js<JsValue> {
    value.serialize(&Serializer::json_compatible()).map_err(JsValue::from)
}

/// Options from JavaScript.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] with the name of an unknown option, or of one of a wrong type.
pub fn from_js<T: DeserializeOwned>(value: JsValue) -> Js<T> {
    serde_wasm_bindgen::from_value(value)
        .map_err(|error| thrown(Error::new(ErrorKind::InvalidArgument, error.to_string())))
}

/// An exact integer from JavaScript's number.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a fraction, and for a number below 0 or above 2⁵³.
pub fn exact(number: f64) -> Js<u64> {
    if number >= 0.0 && number <= MAX_EXACT as f64 && number.fract() == 0.0 {
        return Ok(number as u64);
    }
    Err(thrown(
        Error::new(ErrorKind::InvalidArgument, "not a byte count").expected("an integer from 0 to 2^53", number),
    ))
}

/// Bytes of a file, as JavaScript spells them: `{ file, offset, length }`.
#[derive(Serialize)]
pub struct JsRange {
    file: usize,
    offset: u64,
    length: u64,
}

impl From<ByteRange> for JsRange {
    fn from(ByteRange { file, offset, len }: ByteRange) -> Self {
        Self { file, offset, length: len }
    }
}

/// An array of [`JsRange`].
///
/// # Errors
/// As [`to_js`].
pub fn ranges(ranges: impl Iterator<Item = ByteRange>) -> Js<JsValue> {
    let ranges: Vec<JsRange> = ranges.map(JsRange::from).collect();
    to_js(&ranges)
}

/// Gives a plan the rows that it asked for, as Uint8Arrays in the order of its probes.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if their number or a length is another, and as [`Plan::decide`].
pub fn decide(plan: &mut Plan, rows: &Array) -> Js<()> {
    let rows: Vec<Vec<u8>> = rows.iter().map(|row| Uint8Array::new(&row).to_vec()).collect();
    let fits = rows.len() == plan.probes().len()
        && rows.iter().zip(plan.probes()).all(|(row, probe)| row.len() as u64 == probe.range.len);
    if !fits {
        return Err(thrown(Error::new(ErrorKind::InvalidArgument, "the probes' bytes do not fit")));
    }
    plan.decide(&rows).map_err(thrown)
}

/// Makes a buffer for chunks at least `length` bytes long.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`].
pub fn fitting(chunk: &mut Vec<u8>, length: usize) -> Js<()> {
    if chunk.len() < length {
        *chunk = Vec::new();
        *chunk = filled("a chunk", length as u64, 0).map_err(thrown)?;
    }
    Ok(())
}

/// The error of a call that comes before or after its turn.
pub fn out_of_order() -> JsValue {
    thrown(Error::new(ErrorKind::InvalidArgument, "the load is at another stage"))
}
