//! The edge to JavaScript. What is refused is thrown as a string: its place, a line feed, the reason.

#![allow(
    clippy::missing_errors_doc,
    reason = "every error is thrown as the string that the first line of this file describes"
)]

use wasm_bindgen::prelude::*;

use crate::{Format, Refusal};

/// The library measures itself by a clock that wasm does not have. Its measurements are not read.
#[unsafe(no_mangle)]
extern "C" fn now() -> f64 {
    0.0
}

/// One model's tokens, shared by every constraint on it.
#[wasm_bindgen]
pub struct Vocabulary(crate::Vocabulary);

#[wasm_bindgen]
impl Vocabulary {
    /// All tokens' bytes in a row, the length of each, and which of them are special or end an answer.
    #[wasm_bindgen(constructor)]
    pub fn new(bytes: &[u8], lengths: &[u32], special: &[u32], ends: &[u32]) -> Vocabulary {
        let mut rest = bytes;
        let mut id = 0;
        let tokens = lengths.iter().map(|&length| {
            let (token, after) = rest.split_at(length as usize);
            rest = after;
            id += 1;
            (token, special.binary_search(&(id - 1)).is_ok())
        });
        Vocabulary(crate::Vocabulary::new(tokens, ends))
    }

    /// `kind` is `json_schema`, `regex`, `regexp`, `grammar` or `both`.
    pub fn constraint(&self, kind: &str, source: &str) -> Result<Constraint, JsValue> {
        let format = match kind {
            "json_schema" => Format::JsonSchema(source),
            "regex" => Format::Regex(source),
            "regexp" => Format::RegExp(source),
            "grammar" => Format::Grammar(source),
            _ => Format::Both(source),
        };
        self.0
            .constraint(format)
            .map(Constraint)
            .map_err(|Refusal { place, reason }| format!("{place}\n{reason}").into())
    }
}

/// One answer under way.
#[wasm_bindgen]
pub struct Constraint(crate::Constraint);

#[wasm_bindgen]
impl Constraint {
    /// One bit for each token that may come next, from the lowest of the first number; none where only an end may.
    pub fn mask(&mut self) -> Result<Vec<u32>, JsValue> {
        self.0.mask().map_err(JsValue::from)
    }

    pub fn accept(&mut self, token: u32) -> Result<(), JsValue> {
        self.0.accept(token).map_err(JsValue::from)
    }

    /// Whether nothing but an end may follow.
    pub fn done(&self) -> bool {
        self.0.done()
    }

    /// Whether the text is whole as it is.
    pub fn complete(&mut self) -> bool {
        self.0.complete()
    }
}
