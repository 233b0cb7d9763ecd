//! Loading adapters: a header comes in, ranges go out, tensors come in, and the adapter gets its number.

use wasm_bindgen::prelude::*;

use super::Engine;
use crate::bindings::{Checkpoint, Js, ranges, thrown};
use crate::engine::AdapterId;
use crate::model::adapter;

/// An adapter on its way to an engine's model.
#[wasm_bindgen]
pub struct AdapterLoader(adapter::Loader);

#[wasm_bindgen]
impl AdapterLoader {
    #[wasm_bindgen(constructor)]
    pub fn new(checkpoint: &Checkpoint, engine: &Engine) -> Js<AdapterLoader> {
        checkpoint.inner().adapter(engine.config()).map(Self).map_err(thrown)
    }

    /// The bytes of every tensor.
    pub fn ranges(&self) -> Js<JsValue> {
        ranges(self.0.ranges())
    }

    /// Bytes that it will hold, its largest rank, and how many matrices it adds to.
    pub fn summary(&self) -> Vec<f64> {
        vec![self.0.bytes as f64, self.0.rank as f64, self.0.matrices as f64]
    }

    /// Takes the bytes of one range.
    pub fn feed(&mut self, index: usize, bytes: Vec<u8>) -> Js<()> {
        self.0.feed(index, bytes).map_err(thrown)
    }

    /// The adapter's number, once all tensors have come. A part of a split model that is not the first is given it,
    /// and the first 0.
    pub fn finish(self, engine: &mut Engine, id: u32) -> Js<u32> {
        engine.add_adapter(self.0.finish().map_err(thrown)?, id).map_err(thrown)
    }
}

/// Numbers and scales in turns.
pub(super) fn pairs(flat: &[f64]) -> Vec<(AdapterId, f32)> {
    flat.as_chunks::<2>().0.iter().map(|&[id, scale]| (AdapterId(id as u32), scale as f32)).collect()
}
