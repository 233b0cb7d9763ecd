//! A session as bytes: its tokens, and the keys and values of its whole blocks. The few positions behind the last whole block are
//! computed again.
//!
//! ```text
//! magic 8 · version u32 · tokens u32 · blocks u32 · bytes of a block u32 · fingerprint u64 · tokens · blocks · checksum u64
//! ```
//!
//! All little-endian. A fingerprint is taken of logits: the same bits everywhere mean that what a model computes says which
//! one it is, with its settings, in every build and runtime.

use crate::bytes::{checksum, mixed};
use crate::error::{Error, ErrorKind, Result, reserve};
use crate::kernels::rows::KV_BLOCK;
use crate::kv::{Cache, TableId};

const MAGIC: [u8; 8] = *b"TLSESSN\n";
const VERSION: u32 = 1;
const HEAD: usize = 32;

pub(super) fn save(cache: &Cache, table: TableId, tokens: &[u32], cached: usize, fingerprint: u64) -> Result<Vec<u8>> {
    let blocks = cached / KV_BLOCK;
    let len = HEAD + 4 * tokens.len() + blocks * cache.block_bytes() + 8;
    let mut out = reserve("a saved session", len as u64)?;
    out.extend(MAGIC);
    for number in [VERSION, tokens.len() as u32, blocks as u32, cache.block_bytes() as u32] {
        out.extend(number.to_le_bytes());
    }
    out.extend(fingerprint.to_le_bytes());
    tokens.iter().for_each(|token| out.extend(token.to_le_bytes()));
    cache.bytes(table, blocks).for_each(|bytes| out.extend(bytes));
    out.extend(checksum(&out).to_le_bytes());
    Ok(out)
}

/// The tokens, how many of them are computed, and their table.
pub(super) fn restore(
    cache: &mut Cache,
    bytes: &[u8],
    fingerprint: u64,
    vocab: usize,
    context: usize,
) -> Result<(Vec<u32>, usize, TableId)> {
    let Some(rest) = bytes.strip_prefix(&MAGIC) else {
        return Err(Error::new(ErrorKind::BadMagic, "not a saved session").option("restore"));
    };
    let (numbers, _) = rest.as_chunks::<4>();
    let number = |at: usize| numbers.get(at).map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
    let (version, count, blocks, block) = (number(0), number(1), number(2), number(3));
    if version != VERSION as usize {
        let error = Error::new(ErrorKind::UnsupportedVersion, "a session saved by another version").option("restore");
        return Err(error.expected(format_args!("version {VERSION}"), version));
    }
    let damaged = |what: &str| Error::new(ErrorKind::Damaged, what).option("restore");
    let len = HEAD as u64 + 4 * count as u64 + blocks as u64 * block as u64 + 8;
    if len != bytes.len() as u64 {
        return Err(damaged("of another length than it says").expected(format_args!("{len} bytes"), bytes.len()));
    }
    let (content, sum) = bytes.split_at(bytes.len() - 8);
    if sum != checksum(content).to_le_bytes() {
        return Err(damaged("its checksum is another"));
    }
    let (head, rest) = content.split_at(HEAD);
    if head[24..] != fingerprint.to_le_bytes() || block != cache.block_bytes() {
        let reason = "the session was saved by another model, or with other adapters or settings of kv, activations or head";
        return Err(Error::new(ErrorKind::WrongModel, reason).option("restore"));
    }
    let (tokens, blocks_bytes) = rest.split_at(4 * count);
    let tokens: Vec<u32> = tokens.as_chunks::<4>().0.iter().map(|token| u32::from_le_bytes(*token)).collect();
    if blocks * KV_BLOCK > count || tokens.iter().any(|&token| token as usize >= vocab) {
        return Err(damaged("it contradicts itself"));
    }
    if count > context {
        return Err(Error::new(ErrorKind::ContextFull, "the session is longer than the context")
            .option("contextLength")
            .expected(format_args!("at most {context} tokens"), count));
    }
    let (table, kept) = cache.restore(blocks_bytes.chunks_exact(block));
    Ok((tokens, kept * KV_BLOCK, table))
}

/// Says which model it was that computed these logits.
pub fn fingerprint(logits: &[f32]) -> u64 {
    logits.iter().fold(logits.len() as u64, |hash, logit| mixed(hash, u64::from(logit.to_bits())))
}
