//! Loading: a plan's ranges out, chunks in, an engine at the end.

use js_sys::Array;
use litemap::LiteMap;
use wasm_bindgen::prelude::*;

use super::bench::now;
use super::{Engine, team};
use crate::bindings::{Checkpoint, Js, decide, exact, fitting, from_js, out_of_order, ranges, thrown, to_js};
use crate::error::reserve;
use crate::formats::Format;
use crate::kernels::isa::Active;
use crate::kernels::linear;
use crate::model::describe::Description;
use crate::model::plan::{Memory, Plan};
use crate::model::{self, BackgroundLoader, tune};

/// A load under way. The order of calls is: `decide` with the bytes of the probes, `reserve`, `feed` for every range, `finish`.
#[wasm_bindgen]
pub struct Loader {
    format: Format,
    state: LoadState,
    /// The buffer into which JavaScript copies the bytes of a chunk.
    chunk: Vec<u8>,
}

/// Bytes of chunks and of rows that are being packed, at most.
const LOAD_BYTES: u64 = 24 << 20;

/// Grows the memory by all that the engine and this load will need, before threads run. JavaScript sees a later growth late, and in some
/// versions of WebKit the threads do too.
fn grow(bytes: u64) -> Js<()> {
    // No single allocation may take half of what can be addressed.
    let mut held = Vec::new();
    for from in (0..bytes).step_by(GROWTH as usize) {
        held.push(reserve::<u8>("weights, keys, values and scratch", GROWTH.min(bytes - from)).map_err(thrown)?);
    }
    Ok(())
}

/// Bytes by which the memory grows at once: one allocation cannot have half of what 32 bits address.
const GROWTH: u64 = 1 << 30;

enum LoadState {
    Planned(Box<Plan>),
    Loading(BackgroundLoader),
    /// The memory could not be reserved.
    Failed,
}

#[wasm_bindgen]
impl Loader {
    #[wasm_bindgen(constructor)]
    pub fn new(checkpoint: &Checkpoint, settings: JsValue) -> Js<Loader> {
        let checkpoint = checkpoint.inner();
        let plan = checkpoint.plan(from_js(settings)?).map_err(thrown)?;
        Ok(Self { format: checkpoint.format(), state: LoadState::Planned(Box::new(plan)), chunk: Vec::new() })
    }

    /// Ranges `{ file, offset, length }` that must be read before anything is reserved; often none.
    pub fn probes(&self) -> Js<JsValue> {
        let LoadState::Planned(plan) = &self.state else { return Err(out_of_order()) };
        ranges(plan.probes().iter().map(|probe| probe.range))
    }

    /// The bytes of the probes, as Uint8Arrays in their order.
    pub fn decide(&mut self, rows: Array) -> Js<()> {
        let LoadState::Planned(plan) = &mut self.state else { return Err(out_of_order()) };
        decide(plan, &rows)
    }

    /// Bytes that the model will take: `{ weights, kv, states, scratch, total }`; `states` is 0 unless the model is a hybrid.
    pub fn memory(&self) -> Js<JsValue> {
        let LoadState::Planned(plan) = &self.state else { return Err(out_of_order()) };
        to_js(&plan.memory())
    }

    /// What [`Self::memory`] would be with other settings for the context, the cache and the batches.
    #[wasm_bindgen(js_name = memoryWith)]
    pub fn memory_with(&self, settings: JsValue) -> Js<JsValue> {
        let LoadState::Planned(plan) = &self.state else { return Err(out_of_order()) };
        to_js(&plan.memory_with(&from_js(settings)?).map_err(thrown)?)
    }

    /// Counts memory for a prompt of up to so many tokens, see [`Self::prefill`]. Returns the tensor that comes too late in the files for a
    /// prompt to be computed while they come; often none.
    #[wasm_bindgen(js_name = expectPrefill)]
    pub fn expect_prefill(&mut self, tokens: usize) -> Option<String> {
        let LoadState::Planned(plan) = &mut self.state else { return None };
        plan.expect_prefill(tokens);
        plan.late_tensor().map(|tensor| tensor.name.clone())
    }

    /// The longest context that the model was trained for, in tokens.
    #[wasm_bindgen(js_name = trainedContext)]
    pub fn trained_context(&self) -> Js<usize> {
        let LoadState::Planned(plan) = &self.state else { return Err(out_of_order()) };
        Ok(plan.config.context)
    }

    /// The weights' ranges `{ file, offset, length }`, in file order or in order of execution.
    pub fn ranges(&self, by_stage: bool) -> Js<JsValue> {
        let LoadState::Planned(plan) = &self.state else { return Err(out_of_order()) };
        ranges(if by_stage { plan.ranges_by_stage() } else { plan.ranges() }.into_iter())
    }

    /// Reserves the weights' memory, for the dot product that was chosen; with `survey` nothing is kept and zeros are counted instead.
    /// `threads` counts the caller. Where the options leave open how ternary codes are packed, `five` says what an earlier load measured:
    /// whether five to a byte were no slower.
    pub fn reserve(&mut self, survey: bool, threads: usize, five: Option<bool>) -> Js<()> {
        let mut plan = match std::mem::replace(&mut self.state, LoadState::Failed) {
            LoadState::Planned(plan) => plan,
            other => {
                self.state = other;
                return Err(out_of_order());
            }
        };
        let (team, loader) = if survey {
            (team(threads)?, model::Loader::survey(*plan))
        } else {
            let Memory { weights, total, .. } = plan.memory();
            grow(total + if threads > 1 { weights.min(LOAD_BYTES) } else { 0 })?;
            let team = team(threads)?;
            tune::choose_packing::<Active>(&mut plan, linear::chosen(), five, &team, &now).map_err(thrown)?;
            (team, model::Loader::new(*plan))
        };
        let loader = loader.map_err(thrown)?;
        self.state = LoadState::Loading(BackgroundLoader::new(loader, team));
        Ok(())
    }

    /// The address of a buffer for chunks of up to `length` bytes; valid until it is fed.
    pub fn buffer(&mut self, length: usize) -> Js<*mut u8> {
        fitting(&mut self.chunk, length)?;
        Ok(self.chunk.as_mut_ptr())
    }

    /// Takes the first `length` bytes of the buffer, which lie at `offset` of a file. They are packed while the next ones come:
    /// what is wrong with them is thrown by a later call.
    pub fn feed(&mut self, file: usize, offset: f64, length: usize) -> Js<()> {
        let offset = exact(offset)?;
        let LoadState::Loading(loading) = &mut self.state else { return Err(out_of_order()) };
        if length > self.chunk.len() {
            return Err(out_of_order());
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.chunk = loading.feed(file, offset, chunk, length).map_err(thrown)?;
        Ok(())
    }

    /// Computes the keys and values of a prompt from now on, as far as the layers have come: beside the caller, or without threads in
    /// [`Self::advance`].
    pub fn prefill(&mut self, tokens: Vec<u32>) -> Js<()> {
        let LoadState::Loading(loading) = &mut self.state else { return Err(out_of_order()) };
        loading.prefill(tokens).map_err(thrown)
    }

    /// Runs one operation of the prompt. Returns whether the weights for another one may have come.
    pub fn advance(&mut self) -> Js<bool> {
        let LoadState::Loading(loading) = &mut self.state else { return Err(out_of_order()) };
        loading.advance().map_err(thrown)
    }

    /// Returns when all that was fed is packed.
    pub fn settle(&mut self) -> Js<()> {
        let LoadState::Loading(loading) = &mut self.state else { return Err(out_of_order()) };
        loading.loader().map(drop).map_err(thrown)
    }

    /// What a survey found: a `Description` with zero shares.
    pub fn describe(&mut self) -> Js<JsValue> {
        match &mut self.state {
            LoadState::Planned(plan) => to_js(&Description::new(self.format, plan, None, &LiteMap::new())),
            LoadState::Loading(loading) => {
                let loader = loading.loader().map_err(thrown)?;
                let zeros = loader.zero_shares().map_err(thrown)?;
                to_js(&Description::new(self.format, loader.plan(), loader.precision(), &zeros))
            }
            LoadState::Failed => Err(out_of_order()),
        }
    }

    /// The engine, once everything has come.
    pub fn finish(self) -> Js<Engine> {
        let LoadState::Loading(loading) = self.state else { return Err(out_of_order()) };
        drop(self.chunk);
        let (model, plan, team, early) = loading.finish().map_err(thrown)?;
        Engine::new(self.format, model, plan, team, early).map_err(thrown)
    }
}
