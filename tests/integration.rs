//! The engine as its users have it, in one program: each file of its own would compile the kernels that it calls once more. Tests that
//! count what the whole process allocates, or set what all of it uses, are programs of their own (see `Cargo.toml`).

mod common;

mod activations;
mod adapters;
mod architecture;
mod engine;
mod golden;
mod head;
mod hooks;
mod hostile;
mod hybrid;
mod interleave;
mod largest;
mod lossless;
mod mtp;
mod numerics;
mod options;
mod packing;
// A load that computes a prompt makes an engine of the build's own instruction set, which in wasm is not the tests'.
#[cfg(not(target_arch = "wasm32"))]
mod prefill;
mod schedules;
mod scheduling;
mod split;
mod types;
