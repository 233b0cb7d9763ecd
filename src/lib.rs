//! ternlight: an engine for 1-bit and ternary language models, made for WebAssembly.
