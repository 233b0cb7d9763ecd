//! Containers: the beginning of a file in, a table of tensors out.
//!
//! A parser sees a prefix of its file and answers [`Parsed::Need`] (come back with at least so many bytes) or
//! [`Parsed::Done`]. It keeps nothing between calls: a header is parsed again from its start when more of it is here, which
//! costs milliseconds and leaves no state to get wrong.
//!
//! [`gguf`] is one file with metadata; [`safetensors`] are tensors alone, whose model is told by a `config.json`. Either may be
//! cut into several files, which [`shards`] fits together.

pub mod gguf;
pub mod limits;
pub mod safetensors;
pub mod shards;

use crate::bytes::Short;
use crate::error::{Error, ErrorKind, Result};
use crate::quant::{self, Content, Storage};

/// What a header parser answers.
#[derive(Debug)]
pub enum Parsed<T> {
    /// Bytes from the start of the file.
    Need(u64),
    Done(T),
}

impl<T> Parsed<T> {
    /// The parsers' own `Result<_, Short>` as callers see it.
    fn from_short(result: Result<T, Short>) -> Result<Self> {
        match result {
            Ok(done) => Ok(Self::Done(done)),
            Err(Short::Need(bytes)) if bytes > limits::HEADER => {
                Err(Error::new(ErrorKind::BadHeader, "the header is too long")
                    .expected(format_args!("at most {} bytes", limits::HEADER), bytes))
            }
            Err(Short::Need(bytes)) => Ok(Self::Need(bytes)),
            Err(Short::Bad(error)) => Err(error),
        }
    }
}

/// One entry of a tensor table, checked against the length of its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: String,
    /// `None` for a type that is known or unknown, but not run.
    pub storage: Option<&'static Storage>,
    /// Why it is not run.
    pub refusal: &'static str,
    /// As the file says it.
    pub type_name: String,
    /// Rows first: a matrix is `[out, in]`.
    pub shape: Vec<u64>,
    /// Which file of the checkpoint, and where in it.
    pub file: usize,
    pub offset: u64,
    pub len: u64,
}

impl Tensor {
    pub fn values(&self) -> u64 {
        self.shape.iter().product()
    }

    /// What its bytes hold, of a type that is run.
    pub fn content(&self) -> Option<Content> {
        self.storage.map(|storage| storage.content)
    }

    pub fn is_dense(&self) -> bool {
        matches!(self.content(), Some(Content::Dense(_)))
    }

    /// The storage type, or the refusal that names it.
    pub fn runnable(&self) -> Result<&'static Storage> {
        self.storage.ok_or_else(|| {
            let reason = format!("storage type {} is not supported: {}", self.type_name, self.refusal);
            Error::new(ErrorKind::UnsupportedType, reason)
                .tensor(&self.name)
                .expected(quant::SUPPORTED, &self.type_name)
        })
    }
}

/// The containers that can be told by their first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Gguf,
    Safetensors,
}

impl Format {
    /// GGUF has a magic; a safetensors file begins with the length of a JSON object and its brace.
    pub fn sniff(prefix: &[u8], total: u64) -> Result<Parsed<Self>> {
        if prefix.starts_with(gguf::MAGIC) {
            return Ok(Parsed::Done(Self::Gguf));
        }
        if prefix.len() < 9 && (prefix.len() as u64) < total {
            return Ok(Parsed::Need(total.min(9)));
        }
        if prefix.get(8) == Some(&b'{') {
            return Ok(Parsed::Done(Self::Safetensors));
        }
        let found: Vec<String> = prefix.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Err(Error::new(ErrorKind::BadMagic, "this is neither GGUF nor safetensors")
            .expected(
                "GGUF, or a length and {",
                if found.is_empty() { "an empty file".into() } else { found.join(" ") },
            )
            .offset(0))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Gguf => "gguf",
            Self::Safetensors => "safetensors",
        }
    }
}

/// The product of some dimensions, kept below the cap; so is every dimension, for a 0 hides the others.
fn values(shape: &[u64]) -> Option<u64> {
    let fits = |n: &u64| *n <= limits::VALUES;
    shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim).filter(fits).filter(|_| fits(dim)))
}

/// Not inlined: a sort is kilobytes of code.
#[inline(never)]
fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

/// Refuses tensors that share bytes of a file: no writer makes them, and they would count memory twice.
fn refuse_overlap(tensors: &[Tensor]) -> Result<()> {
    let mut order: Vec<&Tensor> = tensors.iter().filter(|tensor| tensor.len > 0).collect();
    order.sort_by_key(|tensor| tensor.offset);
    for pair in order.windows(2) {
        let end = pair[0].offset + pair[0].len;
        if pair[1].offset < end {
            return Err(Error::new(ErrorKind::BadHeader, format!("overlaps tensor {}", pair[0].name))
                .tensor(&pair[1].name)
                .expected(format_args!("an offset of at least {end}"), pair[1].offset)
                .offset(pair[1].offset));
        }
    }
    Ok(())
}
