//! Options as JavaScript spells them.

use serde::Deserialize;
use wasm_bindgen::prelude::*;

use crate::bindings::{I2s, Js, from_js};
use crate::kernels::act::Precision;
use crate::kv::Codec;
use crate::model::plan::Options;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsOptions {
    #[serde(default)]
    activations: Option<Activations>,
    #[serde(default)]
    kv: Option<String>,
    #[serde(default)]
    context_length: Option<usize>,
    #[serde(default)]
    prefill_chunk: Option<usize>,
    #[serde(default)]
    max_sequences: Option<usize>,
    #[serde(default)]
    max_batch_tokens: Option<usize>,
    #[serde(default)]
    max_queue: Option<usize>,
    #[serde(default)]
    cache_tokens: Option<usize>,
    #[serde(default)]
    prefix_reuse: Option<bool>,
    #[serde(default)]
    first_come: bool,
    #[serde(default)]
    layout: Option<Layout>,
    #[serde(default)]
    i2s: Option<I2s>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Activations {
    Auto,
    Int8,
    Int14,
    Float,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Layout {
    Auto,
    Stored,
}

pub(super) fn options(options: JsValue) -> Js<Options> {
    let options: JsOptions = from_js(options)?;
    let usual = Options::default();
    Ok(Options {
        activations: options.activations.and_then(|activations| match activations {
            Activations::Auto => None,
            Activations::Int8 => Some(Precision::Int8),
            Activations::Int14 => Some(Precision::Int14),
            Activations::Float => Some(Precision::Float),
        }),
        // JavaScript has checked it: only `auto` is no codec.
        kv: options.kv.as_deref().and_then(Codec::from_name),
        context: options.context_length,
        batch: options.prefill_chunk.unwrap_or(usual.batch),
        batch_tokens: options.max_batch_tokens.unwrap_or(usual.batch_tokens),
        sequences: options.max_sequences.unwrap_or(usual.sequences),
        queue: options.max_queue.unwrap_or(usual.queue),
        positions: options.cache_tokens,
        reuse: options.prefix_reuse.unwrap_or(usual.reuse),
        first_come: options.first_come,
        stored: matches!(options.layout, Some(Layout::Stored)),
        i2s: options.i2s.and_then(I2s::asked),
    })
}
