//! Loading: a plan's ranges out, chunks in, an engine at the end.

use std::collections::BTreeMap;

use js_sys::Array;
use wasm_bindgen::prelude::*;

use super::{Checkpoint, Engine, Js, answer, exact, fitting, out_of_order, ranges, team, thrown, to_js};
use crate::formats::Format;
use crate::model;
use crate::model::describe::Description;
use crate::model::plan::Plan;

/// A load under way: answer the probes, reserve, feed every range, finish.
#[wasm_bindgen]
pub struct Loader {
    format: Format,
    stage: Stage,
    /// Where JavaScript puts the bytes of a chunk.
    chunk: Vec<u8>,
}

enum Stage {
    Planned(Box<Plan>),
    Loading(Box<model::Loader>),
}

#[wasm_bindgen]
impl Loader {
    #[wasm_bindgen(constructor)]
    pub fn new(checkpoint: &Checkpoint, options: JsValue) -> Js<Loader> {
        let plan = checkpoint.plan(super::options::options(options)?).map_err(thrown)?;
        Ok(Self { format: checkpoint.format(), stage: Stage::Planned(Box::new(plan)), chunk: Vec::new() })
    }

    /// Ranges `{ file, offset, length }` that must be read before anything is reserved; often none.
    pub fn probes(&self) -> Js<JsValue> {
        let Stage::Planned(plan) = &self.stage else { return Err(out_of_order()) };
        ranges(plan.probes().iter().map(|probe| probe.range))
    }

    /// The bytes of the probes, as Uint8Arrays in their order.
    pub fn decide(&mut self, rows: Array) -> Js<()> {
        let Stage::Planned(plan) = &mut self.stage else { return Err(out_of_order()) };
        answer(plan, &rows)
    }

    /// Bytes that the model will take: `{ weights, kv, scratch, total }`.
    pub fn memory(&self) -> Js<JsValue> {
        to_js(&match &self.stage {
            Stage::Planned(plan) => plan.memory(),
            Stage::Loading(loader) => loader.memory(),
        })
    }

    /// Reserves the weights' memory; with `survey` nothing is kept and zeros are counted instead.
    pub fn reserve(&mut self, survey: bool) -> Js<()> {
        let Stage::Planned(plan) = &self.stage else { return Err(out_of_order()) };
        let plan = (**plan).clone();
        let loader = if survey { model::Loader::survey(plan) } else { model::Loader::new(plan) };
        self.stage = Stage::Loading(Box::new(loader.map_err(thrown)?));
        Ok(())
    }

    /// The weights' ranges `{ file, offset, length }`, in file order.
    pub fn ranges(&self) -> Js<JsValue> {
        let Stage::Loading(loader) = &self.stage else { return Err(out_of_order()) };
        ranges(loader.ranges().into_iter())
    }

    /// The address of a buffer for chunks of up to `length` bytes; valid until the next call.
    pub fn buffer(&mut self, length: usize) -> Js<*mut u8> {
        fitting(&mut self.chunk, length)?;
        Ok(self.chunk.as_mut_ptr())
    }

    /// Takes the first `length` bytes of the buffer, which lie at `offset` of a file.
    pub fn feed(&mut self, file: usize, offset: f64, length: usize) -> Js<()> {
        let offset = exact(offset)?;
        let Stage::Loading(loader) = &mut self.stage else { return Err(out_of_order()) };
        let chunk = self.chunk.get(..length).ok_or_else(out_of_order)?;
        loader.feed(file, offset, chunk).map_err(thrown)
    }

    /// What a survey found: a `Description` with zero shares.
    pub fn describe(&self) -> Js<JsValue> {
        match &self.stage {
            Stage::Planned(plan) => to_js(&Description::new(self.format, plan, None, &BTreeMap::new())),
            Stage::Loading(loader) => {
                let zeros = loader.zero_shares().map_err(thrown)?;
                to_js(&Description::new(self.format, loader.plan(), loader.precision(), &zeros))
            }
        }
    }

    /// The engine, once everything has come. `threads` counts the caller.
    pub fn finish(self, threads: usize) -> Js<Engine> {
        let Stage::Loading(loader) = self.stage else { return Err(out_of_order()) };
        drop(self.chunk);
        let (model, plan) = loader.finish().map_err(thrown)?;
        let team = team(threads)?;
        Engine::new(self.format, model, plan, team).map_err(thrown)
    }
}
