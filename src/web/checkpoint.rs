//! Headers: bytes in, a table of contents out.

use std::collections::BTreeMap;

use js_sys::Object;
use wasm_bindgen::prelude::*;

use super::{Js, exact, from_js, thrown, to_js};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::gguf::{Array, Metadata, Value};
use crate::formats::{Format, Parsed, Tensor, gguf, safetensors, shards};
use crate::model::Config;
#[cfg(not(feature = "convert"))]
use crate::model::adapter;
#[cfg(not(feature = "convert"))]
use crate::model::config::Terms;
use crate::model::describe::Description;
use crate::model::{Options, Plan};

/// The files of a model, as far as their headers tell. Files have the numbers that the caller gives them, from 0 on.
#[wasm_bindgen]
#[derive(Default)]
pub struct Checkpoint {
    files: BTreeMap<usize, File>,
    config: Option<Vec<u8>>,
    warnings: Vec<String>,
}

struct File {
    /// Of a GGUF.
    metadata: Option<Metadata>,
    tensors: Vec<Tensor>,
}

#[wasm_bindgen]
impl Checkpoint {
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the beginning of file number `file`, which has `total` bytes. Answers how many bytes from its start are needed, or
    /// 0 when the header is complete.
    pub fn parse(&mut self, file: usize, total: f64, prefix: &[u8]) -> Js<f64> {
        let total = exact(total)?;
        self.parse_file(file, total, prefix).map(|need| need as f64).map_err(thrown)
    }

    /// The text of `config.json`.
    #[wasm_bindgen(js_name = setConfig)]
    pub fn set_config(&mut self, json: Vec<u8>) {
        self.config = Some(json);
    }

    /// Compares file number `file` with the names of the tensors that an index says it has.
    #[wasm_bindgen(js_name = checkIndex)]
    pub fn check_index(&mut self, file: usize, names: Vec<String>) -> Js<()> {
        let tensors = self.files.get(&file).map_or(&[][..], |file| &file.tensors);
        self.warnings.extend(shards::check_index(tensors, &names).map_err(thrown)?);
        Ok(())
    }

    /// The number of the file that has the model's metadata, once the files have turned out to be one model.
    pub fn first(&self) -> Js<usize> {
        self.first_file().map_err(thrown)
    }

    /// A GGUF's metadata: numbers, booleans and strings by key; arrays as `{ elementType, count, offset, length }`, where their
    /// bytes lie in the first file. Undefined for other formats.
    pub fn metadata(&self) -> Js<JsValue> {
        let Some(metadata) = self.first_metadata().map_err(thrown)? else { return Ok(JsValue::UNDEFINED) };
        let object = Object::new();
        for (key, value) in metadata.iter() {
            let value = match value {
                Value::Int(int) => JsValue::from_f64(*int as f64),
                Value::Float(float) => JsValue::from_f64(*float),
                Value::Bool(bool) => JsValue::from_bool(*bool),
                Value::Str(text) => JsValue::from_str(text),
                Value::Array(Array { element, count, offset, len }) => {
                    let array = Object::new();
                    for (name, number) in [
                        ("elementType", f64::from(*element)),
                        ("count", *count as f64),
                        ("offset", *offset as f64),
                        ("length", *len as f64),
                    ] {
                        js_sys::Reflect::set(&array, &name.into(), &number.into())?;
                    }
                    array.into()
                }
            };
            js_sys::Reflect::set(&object, &key.into(), &value)?;
        }
        Ok(object.into())
    }

    /// What the headers tell: a `Description` without tokenizer and template.
    pub fn describe(&self, options: JsValue) -> Js<JsValue> {
        let plan = self.plan(from_js(options)?).map_err(thrown)?;
        to_js(&Description::new(self.format(), &plan, None, &BTreeMap::new()))
    }
}

impl Checkpoint {
    fn parse_file(&mut self, file: usize, total: u64, prefix: &[u8]) -> Result<u64> {
        let format = match Format::sniff(prefix, total)? {
            Parsed::Done(format) => format,
            Parsed::Need(bytes) => return Ok(bytes),
        };
        let (metadata, mut tensors) = match format {
            Format::Gguf => match gguf::parse(prefix, total)? {
                Parsed::Need(bytes) => return Ok(bytes),
                Parsed::Done(parsed) => (Some(parsed.metadata), parsed.tensors),
            },
            Format::Safetensors => match safetensors::parse(prefix, total)? {
                Parsed::Need(bytes) => return Ok(bytes),
                Parsed::Done(parsed) => (None, parsed.tensors),
            },
        };
        tensors.iter_mut().for_each(|tensor| tensor.file = file);
        self.files.insert(file, File { metadata, tensors });
        Ok(0)
    }

    pub(super) fn format(&self) -> Format {
        let gguf = self.files.values().any(|file| file.metadata.is_some());
        if gguf { Format::Gguf } else { Format::Safetensors }
    }

    fn first_file(&self) -> Result<usize> {
        let parts: Vec<shards::Part> =
            self.files.values().filter_map(|file| Some((file.metadata.as_ref()?, file.tensors.len()))).collect();
        if !parts.is_empty() && parts.len() < self.files.len() {
            return Err(Error::new(ErrorKind::BadHeader, "GGUF and safetensors are not parts of one model"));
        }
        let first = if parts.is_empty() { 0 } else { shards::first_part(&parts)? };
        shards::refuse_twice(self.files.values().flat_map(|file| &file.tensors))?;
        Ok(self.files.keys().nth(first).copied().unwrap_or(0))
    }

    fn first_metadata(&self) -> Result<Option<&Metadata>> {
        Ok(self.files.get(&self.first_file()?).and_then(|file| file.metadata.as_ref()))
    }

    /// What its header says of an adapter for such a model; of safetensors with the text of `adapter_config.json`.
    #[cfg(not(feature = "convert"))]
    pub(super) fn adapter(&self, config: &Config) -> Result<adapter::Loader> {
        let tensors: Vec<Tensor> = self.files.values().flat_map(|file| file.tensors.iter().cloned()).collect();
        let terms = match (self.first_metadata()?, &self.config) {
            (Some(metadata), _) => Terms::from_gguf(metadata, config)?,
            (None, text) => Terms::from_peft(text.as_deref().unwrap_or_default())?,
        };
        adapter::Loader::new(config, &terms, &tensors)
    }

    pub(super) fn plan(&self, options: Options) -> Result<Plan> {
        let tensors: Vec<Tensor> = self.files.values().flat_map(|file| file.tensors.iter().cloned()).collect();
        let config = match (&self.config, self.first_metadata()?) {
            (_, Some(metadata)) => {
                let embedding = tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
                Config::from_gguf(metadata, embedding.and_then(|tensor| tensor.shape.first().copied()))?
            }
            (Some(json), None) => Config::from_json(json)?,
            (None, None) => {
                return Err(
                    Error::new(ErrorKind::MissingKey, "safetensors need a config.json beside them").file("config.json")
                );
            }
        };
        let mut plan = Plan::new(config, &tensors, options)?;
        plan.warnings.extend(self.warnings.iter().cloned());
        Ok(plan)
    }
}
