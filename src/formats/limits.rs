//! Limits of what a header may claim. Each is far above any real model, and makes a hostile file cheap to refuse.

/// The largest header in bytes. Vocabularies of 300k tokens with merges take about 20 MB; safetensors' own cap is 100 MB.
pub const HEADER: u64 = 100 << 20;
/// The largest `config.json` in bytes. Real ones have some thousands; parsed values take up to fifty times their text.
pub const CONFIG: usize = 1 << 20;
/// The largest number of metadata pairs. Real files have fewer than 100.
pub const PAIRS: u64 = 1 << 16;
/// The largest number of tensors. The largest published models have some thousands.
pub const TENSORS: u64 = 1 << 16;
/// The longest array of metadata that is kept, in bytes. Signs of a rotation take about 100 kB.
pub const ARRAY: u64 = 4 << 20;
/// The longest key or tensor name in bytes; ggml's own limit for names is 64.
pub const NAME: u64 = 1 << 10;
/// The largest number of dimensions of a tensor, as in ggml; no supported model needs more than 3.
pub const DIMS: u32 = 4;
/// The largest number of values along a dimension or in a tensor, so that products and sums of sizes stay far within u64.
pub const VALUES: u64 = 1 << 40;
/// The largest alignment of tensor data in bytes. 32 is usual; page sizes occur.
pub const ALIGNMENT: u64 = 1 << 20;
