//! A session as bytes: its tokens, and the keys and values of its whole blocks. The few positions behind the last whole block are
//! computed again.
//!
//! ```text
//! magic 8 · version u32 · tokens u32 · blocks u32 · bytes of a block u32 · fingerprint u64 · tokens · blocks · checksum u64
//! ```
//!
//! On a hybrid the version is 4, the block behind the last whole one comes as well, and behind the blocks how many positions are computed
//! (u32), and the state behind them.
//!
//! All little-endian. A fingerprint is taken of logits: the same bits everywhere mean that what a model computes says which
//! one it is, with its settings, in every build and runtime.

use crate::bytes::{checksum, mixed};
use crate::error::{Error, ErrorKind, Result, reserve};
use crate::kernels::isa::Isa;
use crate::kernels::rows::KV_BLOCK;
use crate::kv::{Cache, TableId};

const MAGIC: [u8; 8] = *b"TLSESSN\n";
// Versions 1 and 2 had f16 codes in another order.
const VERSION: u32 = 3;
const VERSION_WITH_STATE: u32 = 4;
const HEAD: usize = 32;

fn version(cache: &Cache) -> u32 {
    if cache.has_states() { VERSION_WITH_STATE } else { VERSION }
}

/// `rest` is what the other parts of a split model have of it: the blocks, then the state.
pub(super) fn save<I: Isa>(
    cache: &Cache,
    table: TableId,
    tokens: &[u32],
    cached: usize,
    fingerprint: u64,
    rest: &[u8],
) -> Result<Vec<u8>> {
    let blocks = if cache.has_states() { cached.div_ceil(KV_BLOCK) } else { cached / KV_BLOCK };
    let (own, block) = cache.block_bytes();
    let others = |index: usize| rest.get(index * (block - own)..(index + 1) * (block - own)).unwrap_or_default();
    let mut out = reserve("a saved session", len(cache, tokens.len(), blocks, block))?;
    out.extend(MAGIC);
    for number in [version(cache), tokens.len() as u32, blocks as u32, block as u32] {
        out.extend(number.to_le_bytes());
    }
    out.extend(fingerprint.to_le_bytes());
    tokens.iter().for_each(|token| out.extend(token.to_le_bytes()));
    for (index, bytes) in cache.bytes(table, cached / KV_BLOCK).enumerate() {
        out.extend(bytes);
        out.extend(others(index));
    }
    if cache.has_states() {
        cache.last_words::<I>(table, cached).iter().for_each(|word| out.extend(word.to_le_bytes()));
        if blocks > cached / KV_BLOCK {
            out.extend(others(cached / KV_BLOCK));
        }
        out.extend((cached as u32).to_le_bytes());
        out.extend(cache.saved_state(table));
        out.extend(rest.get(blocks * (block - own)..).unwrap_or_default());
    }
    out.extend(checksum(&out).to_le_bytes());
    Ok(out)
}

/// What a session of so many tokens and blocks takes.
fn len(cache: &Cache, tokens: usize, blocks: usize, block: usize) -> u64 {
    let state = match (cache.has_states(), blocks) {
        (false, _) => 0,
        (true, 0) => 4,
        (true, _) => 4 + cache.state_bytes().1,
    };
    HEAD as u64 + 4 * tokens as u64 + blocks as u64 * block as u64 + state + 8
}

/// The tokens, how many of them are computed, and their table.
pub(super) fn restore(
    cache: &mut Cache,
    bytes: &[u8],
    fingerprint: u64,
    vocab: usize,
    context: usize,
) -> Result<(Vec<u32>, usize, TableId)> {
    let (count, blocks, rest) = checked(cache, bytes, fingerprint)?;
    let (own, block) = cache.block_bytes();
    let (tokens, blocks_bytes) = rest.split_at(4 * count);
    let tokens: Vec<u32> = tokens.as_chunks::<4>().0.iter().map(|token| u32::from_le_bytes(*token)).collect();
    let (blocks_bytes, state) = blocks_bytes.split_at(blocks * block);
    let (cached, state) = state
        .split_first_chunk()
        .map_or((blocks * KV_BLOCK, state), |(cached, state)| (u32::from_le_bytes(*cached) as usize, state));
    if cached > count || cached.div_ceil(KV_BLOCK) != blocks || tokens.iter().any(|&token| token as usize >= vocab) {
        return Err(damaged("the saved session contradicts itself"));
    }
    if count > context {
        return Err(Error::new(ErrorKind::ContextFull, "the session is longer than the context")
            .option("contextLength")
            .expected(format_args!("at most {context} tokens"), count));
    }
    // Other parts of a split model take what is theirs.
    let (table, kept) = cache.restore(blocks_bytes.chunks_exact(block.max(1)).map(|bytes| &bytes[..own]));
    let state = &state[..state.len().min(cache.state_bytes().0 as usize)];
    let mut kept = cached.min(kept * KV_BLOCK);
    // A state is of use with all that comes before it.
    if cached > 0 && cache.has_states() && (kept < cached || !cache.restore_state(table, state)) {
        cache.truncate(table, 0);
        kept = 0;
    }
    Ok((tokens, kept, table))
}

/// The number of tokens, that of blocks, and what stands behind the head of a session of this model.
fn checked<'a>(cache: &Cache, bytes: &'a [u8], fingerprint: u64) -> Result<(usize, usize, &'a [u8])> {
    let Some(rest) = bytes.strip_prefix(&MAGIC) else {
        return Err(Error::new(ErrorKind::BadMagic, "not a saved session").option("restore"));
    };
    let (numbers, _) = rest.as_chunks::<4>();
    let number = |at: usize| numbers.get(at).map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
    let (version, count, blocks, block) = (number(0), number(1), number(2), number(3));
    let own = self::version(cache);
    if ![VERSION, VERSION_WITH_STATE].contains(&(version as u32)) {
        return Err(Error::new(ErrorKind::UnsupportedVersion, "a session saved by another version")
            .option("restore")
            .expected(format_args!("version {own}"), version));
    }
    let Some((content, sum)) = bytes.split_last_chunk().filter(|(content, _)| content.len() >= HEAD) else {
        return Err(damaged("the saved session is cut off"));
    };
    let len = len(cache, count, blocks, block);
    let (head, rest) = content.split_at(HEAD);
    let (_, all) = cache.block_bytes();
    let fits = version == own as usize && len == bytes.len() as u64;
    if *sum != checksum(content).to_le_bytes() {
        let error = damaged("bytes of the saved session have changed or are missing");
        return Err(if fits { error } else { error.expected(len, bytes.len()) });
    }
    if !fits || head[24..] != fingerprint.to_le_bytes() || block != all {
        let reason =
            "the session was saved by another model, or with other adapters or settings of kv, activations or head";
        return Err(Error::new(ErrorKind::WrongModel, reason).option("restore"));
    }
    Ok((count, blocks, rest))
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, what).option("restore")
}

/// Says which model it was that computed these logits.
pub fn fingerprint(logits: &[f32]) -> u64 {
    logits.iter().fold(logits.len() as u64, |hash, logit| mixed(hash, u64::from(logit.to_bits())))
}
