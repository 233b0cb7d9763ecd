//! Measurements of the machine's own limits; the host times them.

use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::*;
use web_sys::Performance;

use super::team;
use crate::bench;
use crate::bindings::{Js, thrown};
use crate::error::filled;
use crate::kernels::isa::Active;
use crate::kernels::linear::{self, DotProduct};
use crate::team::Team;

/// A team, and memory for it to read.
#[wasm_bindgen]
pub struct Roofline {
    team: Team,
    memory: Vec<u8>,
}

#[wasm_bindgen]
impl Roofline {
    /// `threads` counts the caller. The memory is written to: pages that never were are one and the same to a system.
    #[wasm_bindgen(constructor)]
    pub fn new(threads: usize, bytes: usize) -> Js<Roofline> {
        Ok(Self { memory: filled("a buffer", bytes as u64, 1).map_err(thrown)?, team: team(threads)? })
    }

    /// Reads all memory once, in `streams` streams a thread; returns the sum of its words.
    pub fn read(&self, streams: usize) -> u32 {
        let (lines, _) = self.memory.as_chunks();
        bench::read::<Active>(&self.team, lines, streams)
    }

    /// Multiplies in registers; returns how many products were made, each of which is 1.
    pub fn multiply(&self, rounds: usize) -> Js<f64> {
        let (products, sum) = bench::multiply::<Active>(&self.team, rounds);
        // A sum of 32 bits proves them but for its overflow.
        if sum == products as u32 { Ok(products as f64) } else { Err("the dot product is wrong".into()) }
    }
}

thread_local! {
    /// The clock that pages, workers and servers have alike, as a property of the global object.
    static CLOCK: Performance =
        js_sys::Reflect::get(&js_sys::global(), &"performance".into()).unwrap_or(JsValue::UNDEFINED).unchecked_into();
}

/// Milliseconds since the thread began.
pub(super) fn now() -> f64 {
    CLOCK.with(Performance::now)
}

/// Chooses the dot product of this name from now on, for `expected` the likely one, or the faster one for any other name; returns its name.
#[wasm_bindgen(js_name = dotProduct)]
pub fn dot_product(name: &str) -> String {
    let named = DotProduct::ALL.into_iter().find(|dots| dots.name() == name);
    let dots = match name {
        "expected" => bench::expected::<Active>(),
        _ => named.unwrap_or_else(|| bench::fastest::<Active>(now)),
    };
    linear::choose(dots);
    dots.name().to_owned()
}
