//! Headers: bytes in, a table of contents out.

#![allow(clippy::missing_errors_doc, reason = "whatever fails is thrown as `{ code, message, detail }`")]

use js_sys::{Object, Reflect};
use wasm_bindgen::prelude::*;

use super::{Js, exact, thrown};
use crate::formats::Parsed;
use crate::formats::gguf::{Array, Value};
use crate::model;

/// The files of a model, as far as their headers describe them. The caller numbers the files, from 0 on.
#[wasm_bindgen]
#[derive(Default)]
pub struct Checkpoint(model::Checkpoint);

impl Checkpoint {
    /// The checkpoint itself, for the classes that are made from it.
    pub fn inner(&self) -> &model::Checkpoint {
        &self.0
    }
}

#[wasm_bindgen]
impl Checkpoint {
    /// A checkpoint without files.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the beginning of file number `file`, which has `total` bytes. Returns how many bytes from its start are needed, or
    /// 0 when the header is complete.
    pub fn parse(&mut self, file: usize, total: f64, prefix: &[u8]) -> Js<f64> {
        match self.0.parse(file, exact(total)?, prefix).map_err(thrown)? {
            Parsed::Need(bytes) => Ok(bytes as f64),
            Parsed::Done(()) => Ok(0.0),
        }
    }

    /// The text of `config.json`.
    #[wasm_bindgen(js_name = setConfig)]
    pub fn set_config(&mut self, json: Vec<u8>) {
        self.0.set_config(json);
    }

    /// Compares file number `file` with the names of the tensors that an index promises.
    #[wasm_bindgen(js_name = checkIndex)]
    pub fn check_index(&mut self, file: usize, names: Vec<String>) -> Js<()> {
        self.0.check_index(file, &names).map_err(thrown)
    }

    /// The number of the file that has the model's metadata, once the files have turned out to be one model.
    pub fn first(&self) -> Js<usize> {
        self.0.first_file().map_err(thrown)
    }

    /// A GGUF's metadata: numbers, booleans and strings by key; arrays as `{ elementType, count, offset, length }`, which says where
    /// their bytes lie in the first file. Undefined for other formats.
    pub fn metadata(&self) -> Js<JsValue> {
        let Some(metadata) = self.0.metadata().map_err(thrown)? else { return Ok(JsValue::UNDEFINED) };
        let object = Object::new();
        for (key, value) in metadata.iter() {
            let value = match value {
                Value::Int(int) => JsValue::from_f64(*int as f64),
                Value::Float(float) => JsValue::from_f64(*float),
                Value::Bool(bool) => JsValue::from_bool(*bool),
                Value::Str(text) => JsValue::from_str(text),
                Value::Array(array) => described(array)?,
            };
            Reflect::set(&object, &key.into(), &value)?;
        }
        Ok(object.into())
    }
}

fn described(&Array { element, count, offset, len, .. }: &Array) -> Js<JsValue> {
    let object = Object::new();
    for (name, number) in [
        ("elementType", f64::from(element)),
        ("count", count as f64),
        ("offset", offset as f64),
        ("length", len as f64),
    ] {
        Reflect::set(&object, &name.into(), &number.into())?;
    }
    Ok(object.into())
}
