//! How much room a plan makes for conversations.

use std::ops::Range;

use super::config::{Config, Hybrid};
use super::options::Options;
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::delta;
use crate::kernels::rows::KV_BLOCK;
use crate::kv::{Codec, KvShape, StateShape};

/// The context that is reserved unless the caller asks for another.
const CONTEXT: usize = 4096;
/// Bytes that keys and values take unless the caller asks for more. They are kept as f32 where a conversation of full context fits, else as f16.
const KV_BUDGET: u64 = 256 << 20;
/// Bytes that the states of a hybrid's conversations take together unless the caller asks for more, and their numbers.
const STATES_BUDGET: u64 = 256 << 20;
const MIN_STATES: u64 = 2;
const MAX_STATES: u64 = 64;
/// Conversations that can be full at once, as far as [`KV_BUDGET`] allows.
const FULL: usize = 4;

/// What one position takes in the KV cache of an engine with these layers; the first one has an MTP head.
pub(super) fn kv_shape(config: &Config, layers: Range<usize>) -> KvShape {
    let mtp = usize::from(config.drafts && layers.start == 0);
    KvShape { layers: config.layer_kinds(layers).0 + mtp, heads: config.kv_heads, dim: config.head }
}

/// What a conversation on a hybrid takes besides.
pub(super) fn state_shape(config: &Config, layers: Range<usize>) -> StateShape {
    let layer = |net: &Hybrid| {
        net.conv_heads() * delta::history_len(net.head, net.kernel) + net.value_heads * delta::state_len(net.head)
    };
    let (_, layers) = config.layer_kinds(layers);
    StateShape { layers, layer: config.hybrid.as_ref().map_or(0, layer) }
}

/// Those of the model's layers alone: how they are stored does not depend on an MTP head.
fn kv_bytes(config: &Config, positions: usize, codec: Codec) -> u64 {
    KvShape { layers: config.layer_kinds(0..config.layers).0, ..kv_shape(config, 0..config.layers) }
        .bytes(positions, codec)
}

/// How many positions the cache holds, and how.
pub(super) struct CacheSize {
    pub context: usize,
    pub kv: Codec,
    pub positions: usize,
    pub states: usize,
}

impl CacheSize {
    /// What the options ask for, and where they leave it open what suits the model.
    pub fn of(config: &Config, options: &Options) -> Result<Self> {
        options.check(config)?;
        let context = options.context_length.unwrap_or(config.context.min(CONTEXT));
        let one = kv_bytes(config, context, Codec::F32);
        let kv = options.kv_cache_type.unwrap_or(if one <= KV_BUDGET { Codec::F32 } else { Codec::F16 });
        let each = kv_bytes(config, context, kv).max(1);
        let full = (KV_BUDGET / each).clamp(1, FULL as u64) as usize;
        let positions = options.kv_cache_tokens.unwrap_or(full * context.next_multiple_of(KV_BLOCK));
        if positions < context {
            return Err(Error::new(ErrorKind::InvalidArgument, "fewer than one conversation may hold")
                .option("kvCacheTokens")
                .expected(format_args!("at least {context}"), positions));
        }
        let states = match state_shape(config, 0..config.layers).bytes() {
            0 => 0,
            each => options.recurrent_states.unwrap_or((STATES_BUDGET / each).clamp(MIN_STATES, MAX_STATES) as usize),
        };
        Ok(Self { context, kv, positions: positions.next_multiple_of(KV_BLOCK), states })
    }
}
