//! ternlight: an engine for 1-bit and ternary language models, made for WebAssembly.
//!
//! ```text
//! Source ──▶ Checkpoint ──▶ Model ──▶ Session ──▶ Event ──▶ Generation
//! bytes      header +       packed     tokens +    token      text
//! (TS)       tensor table   weights    KV cache    ids        (TS)
//! ```
//!
//! This crate owns everything between bytes and token ids; the TypeScript in `pkg/` owns where bytes come from and what ids mean.
//! It does no I/O, reads no clock and knows no text: a parser returns how many more bytes it needs, a plan names byte ranges, a
//! loader is fed chunks in any order, and the engine computes step by step.
//!
//! The modules, from the ground up; each uses only those before it (`tests/architecture.rs` checks this):
//!
//! - [`error`], [`bytes`], [`rng`] – used by all other modules
//! - [`observe`] – what a step reports to an observer
//! - [`team`](crate::team) – threads
//! - [`quant`] – storage types, block to values
//! - [`formats`] – GGUF and safetensors headers
//! - [`kernels`] – arithmetic on packed weights, for every instruction set
//! - [`bench`] – what the machine can do at best
//! - [`kv`] – keys and values of past positions
//! - [`model`] – what a model is, its loading, one pass of a batch
//! - [`sampling`] – logits to token
//! - [`engine`] – sessions and requests, step by step
//! - `bindings` – the edge to JavaScript, as far as every wasm module shares it
//! - `web` – the engine's own classes at that edge
//!
//! Logits are the same bits for every instruction set, thread count, batch and chunk size.

// Builds with threads rebuild std on the pinned stable toolchain, which opens its unstable features to them anyway.
#![cfg_attr(all(target_arch = "wasm32", target_feature = "atomics"), feature(stdarch_wasm_atomic_wait))]

pub mod bench;
#[cfg(target_arch = "wasm32")]
pub mod bindings;
pub mod bytes;
pub mod engine;
pub mod error;
pub mod formats;
pub mod kernels;
pub mod kv;
pub mod model;
pub mod observe;
pub mod quant;
pub mod rng;
pub mod sampling;
pub mod team;
#[cfg(all(target_arch = "wasm32", feature = "web"))]
pub mod web;
