//! ternlight: an engine for 1-bit and ternary language models, made for WebAssembly.

pub mod bytes;
pub mod engine;
pub mod error;
pub mod formats;
pub mod kernels;
pub mod kv;
pub mod model;
pub mod quant;
pub mod rng;
pub mod sampling;
pub mod team;
