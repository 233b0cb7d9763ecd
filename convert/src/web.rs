//! Converting: a new file's tensors and keys out, the source's bytes in, the new bytes out.

#![allow(clippy::missing_errors_doc, reason = "whatever fails is thrown as `{ code, message, detail }`")]

use js_sys::{Array, Uint8Array};
use serde::{Deserialize, Serialize};
use ternlight::bindings::{Checkpoint, Js, JsRange, decide, fitting, from_js, out_of_order, ranges, thrown, to_js};
use ternlight::error::{Error, ErrorKind};
use ternlight::formats::Format;
use ternlight::model::head::TYPES;
use ternlight::model::options::{Options, i2s};
use ternlight::model::plan;
use ternlight::quant::{self, Interleave, Storage};
use wasm_bindgen::prelude::*;

use super::kind::Kind;
use super::plan::{self as output, Wish};
use super::{Converter as Conversion, Write, keys};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsOptions {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    embedding: Option<String>,
    #[serde(default)]
    head: Option<String>,
    #[serde(default, deserialize_with = "i2s")]
    i2s: Option<Interleave>,
}

#[derive(Serialize)]
struct JsTensor<'a> {
    name: &'a str,
    dims: &'a [u64],
    #[serde(rename = "type")]
    kind: u32,
    bytes: u64,
    reads: Vec<JsRange>,
}

fn refused(option: &str, expected: &str, found: &str) -> JsValue {
    thrown(Error::new(ErrorKind::InvalidArgument, "no such type").option(option).expected(expected, found))
}

fn kind(name: Option<String>) -> Js<Option<Kind>> {
    Ok(match name.as_deref() {
        None | Some("keep") => None,
        Some("tq2_0") => Some(Kind::Tq2),
        Some("tq1_0") => Some(Kind::Tq1),
        Some("q1_0") => Some(Kind::Q1),
        Some("i2_s") => Some(Kind::I2s),
        Some(other) => return Err(refused("type", "tq2_0, tq1_0, q1_0, i2_s or keep", other)),
    })
}

/// The wish of this name; `typed` is what a type that rounds means.
fn wish(option: &str, name: &str, typed: fn(&'static Storage) -> Wish) -> Js<Wish> {
    let found = TYPES.into_iter().find(|(known, _)| *known == name);
    match (name, found) {
        ("keep", _) => Ok(Wish::Keep),
        ("f16", _) => Ok(Wish::Exactly(&quant::F16)),
        (_, Some((_, storage))) => Ok(typed(storage)),
        _ => Err(refused(option, "keep, f16, q8_0, q6_k or q4_0", name)),
    }
}

/// A conversion under way: for each tensor begin, feed its reads one after another, end.
#[wasm_bindgen]
pub struct Converter {
    stage: Stage,
    format: Format,
    chunk: Vec<u8>,
}

enum Stage {
    Planned(Box<plan::Plan>, output::Options),
    Converting(Box<Conversion>),
    /// The model cannot be converted as asked.
    Failed,
}

impl Converter {
    fn converter(&mut self) -> Js<&mut Conversion> {
        match &mut self.stage {
            Stage::Converting(converter) => Ok(converter),
            Stage::Planned(..) | Stage::Failed => Err(out_of_order()),
        }
    }
}

#[wasm_bindgen]
impl Converter {
    #[wasm_bindgen(constructor)]
    pub fn new(checkpoint: &Checkpoint, options: JsValue) -> Js<Converter> {
        let options: JsOptions = from_js(options)?;
        let stored = Options { repack: false, i2s: options.i2s, mtp: true, ..Default::default() };
        let wishes = output::Options {
            keep: options.kind.as_deref() == Some("keep"),
            kind: kind(options.kind)?,
            embedding: options.embedding.map(|name| wish("embedding", &name, Wish::Exactly)).transpose()?,
            head: wish("head", options.head.as_deref().unwrap_or("keep"), Wish::AtMost)?,
        };
        let plan = checkpoint.inner().plan(stored).map_err(thrown)?;
        let stage = Stage::Planned(Box::new(plan), wishes);
        Ok(Self { stage, format: checkpoint.inner().format(), chunk: Vec::new() })
    }

    /// Ranges `{ file, offset, length }` that must be read before anything else; often none.
    pub fn probes(&self) -> Js<JsValue> {
        let Stage::Planned(plan, _) = &self.stage else { return Err(out_of_order()) };
        ranges(plan.probes().iter().map(|probe| probe.range))
    }

    /// The bytes of the probes, as Uint8Arrays in their order.
    pub fn decide(&mut self, rows: Array) -> Js<()> {
        let (mut plan, wishes) = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Planned(plan, wishes) => (plan, wishes),
            other => {
                self.stage = other;
                return Err(out_of_order());
            }
        };
        decide(&mut plan, &rows)?;
        let converter = Conversion::new(*plan, wishes).map_err(thrown)?;
        self.stage = Stage::Converting(Box::new(converter));
        Ok(())
    }

    /// The name of the type that the layers' matrices get; undefined where each keeps its own.
    #[wasm_bindgen(getter)]
    pub fn kind(&mut self) -> Js<Option<String>> {
        Ok(self.converter()?.kind().map(|kind| kind.storage().name.to_owned()))
    }

    /// Rows of the embedding.
    #[wasm_bindgen(getter)]
    pub fn vocab(&mut self) -> Js<usize> {
        Ok(self.converter()?.plan().config.vocab)
    }

    /// The new file's tensors `{ name, dims, type, bytes, reads: [{ file, offset, length }] }`, in their order.
    pub fn tensors(&mut self) -> Js<JsValue> {
        let tensors: Vec<JsTensor> = self
            .converter()?
            .outputs()
            .iter()
            .map(|output| JsTensor {
                name: &output.name,
                dims: &output.dims,
                kind: quant::ggml_id(output.storage).unwrap_or(u32::MAX),
                bytes: output.bytes,
                reads: output.ranges().map(JsRange::from).collect(),
            })
            .collect();
        to_js(&tensors)
    }

    /// The model's keys `{ key, value: { type, value } }`; undefined where the source's own say it.
    pub fn keys(&mut self) -> Js<JsValue> {
        match self.format {
            Format::Gguf => Ok(JsValue::UNDEFINED),
            Format::Safetensors => to_js(&keys::keys(&self.converter()?.plan().config).map_err(thrown)?),
        }
    }

    /// What a reader should know, once all is done.
    pub fn warnings(&mut self) -> Js<Vec<String>> {
        Ok(self.converter()?.warnings())
    }

    /// The address of a buffer for chunks of up to `length` bytes; valid until the next call.
    pub fn buffer(&mut self, length: usize) -> Js<*mut u8> {
        fitting(&mut self.chunk, length)?;
        Ok(self.chunk.as_mut_ptr())
    }

    /// Begins a tensor by its number. Returns writes as `feed` does.
    pub fn begin(&mut self, tensor: usize) -> Js<Array> {
        Ok(writes(self.converter()?.begin(tensor)))
    }

    /// Takes the first `length` bytes of the buffer, the next of one read. Returns pairs of an offset in the tensor and
    /// the bytes to be written there.
    pub fn feed(&mut self, length: usize) -> Js<Array> {
        let chunk = self.chunk.get(..length).ok_or_else(out_of_order)?;
        let Stage::Converting(converter) = &mut self.stage else { return Err(out_of_order()) };
        converter.feed(chunk).map(writes).map_err(thrown)
    }

    /// Ends the tensor. Returns writes as `feed` does.
    pub fn end(&mut self) -> Js<Array> {
        self.converter()?.end().map(writes).map_err(thrown)
    }
}

fn writes(writes: Vec<Write>) -> Array {
    writes
        .into_iter()
        .map(|Write { offset, bytes }| Array::of2(&JsValue::from_f64(offset as f64), &Uint8Array::from(&bytes[..])))
        .collect()
}
