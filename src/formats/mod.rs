//! Container formats: from the beginning of a file to a table of its tensors.
//!
//! A parser gets a prefix of its file and returns [`Parsed::Need`], the number of bytes that it needs at least, or
//! [`Parsed::Done`]. It keeps no state between calls: a header is parsed again from its start when more of it has arrived,
//! which costs milliseconds. Files come from strangers, so every count and length is checked against [`limits`] and against the
//! bytes that are there.
//!
//! A [`gguf`] file has metadata and tensors; a [`safetensors`] file has tensors alone, and a `config.json` describes the model.
//! Either may be split into several files, which [`shards`] checks.

pub mod gguf;
pub mod limits;
pub mod safetensors;
pub mod shards;

use crate::bytes::Short;
use crate::error::{Error, ErrorKind, Result};
use crate::quant::{self, Content, Storage};

/// The result of a header parser.
#[derive(Debug)]
pub enum Parsed<T> {
    /// The parser needs a prefix of at least so many bytes.
    Need(u64),
    /// The header is complete.
    Done(T),
}

impl<T> Parsed<T> {
    /// Converts the parsers' internal result.
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

/// An entry of a tensor table. Its bytes have been checked to lie within the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The name in the file.
    pub name: String,
    /// The storage type, or `None` if it is not supported.
    pub storage: Option<&'static Storage>,
    /// Why an unsupported type is refused.
    pub refusal: &'static str,
    /// The name of the type in the file.
    pub type_name: String,
    /// The shape, outermost dimension first: a matrix is `[out, in]`.
    pub shape: Vec<u64>,
    /// The index of the file in the checkpoint.
    pub file: usize,
    /// The offset of the data in the file, in bytes.
    pub offset: u64,
    /// The length of the data in bytes.
    pub len: u64,
}

impl Tensor {
    /// The number of values.
    pub fn values(&self) -> u64 {
        self.shape.iter().product()
    }

    /// What the bytes contain, if the type is supported.
    pub fn content(&self) -> Option<Content> {
        self.storage.map(|storage| storage.content)
    }

    /// Tells whether the tensor holds floats.
    pub fn is_dense(&self) -> bool {
        matches!(self.content(), Some(Content::Dense(_)))
    }

    /// Returns the storage type.
    ///
    /// # Errors
    /// `UnsupportedType`, with the reason and the supported types.
    pub fn runnable(&self) -> Result<&'static Storage> {
        self.storage.ok_or_else(|| {
            let reason = format!("storage type {} is not supported: {}", self.type_name, self.refusal);
            Error::new(ErrorKind::UnsupportedType, reason)
                .tensor(&self.name)
                .expected(quant::SUPPORTED, &self.type_name)
        })
    }
}

/// A container format, recognised by a file's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// GGUF, version 2 or 3.
    Gguf,
    /// safetensors.
    Safetensors,
}

impl Format {
    /// Recognises the format of a file of `total` bytes. GGUF has a magic number; a safetensors file begins with the length of
    /// a JSON object and its brace.
    ///
    /// # Errors
    /// `BadMagic` if the file is neither.
    ///
    /// ```
    /// use ternlight::formats::{Format, Parsed};
    ///
    /// assert!(matches!(Format::sniff(b"GGUF\x03\0\0\0", 1000), Ok(Parsed::Done(Format::Gguf))));
    /// assert!(matches!(Format::sniff(b"\x40\0", 1000), Ok(Parsed::Need(9))));
    /// assert!(Format::sniff(b"PK\x03\x04 an archive", 1000).is_err());
    /// ```
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

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gguf => "gguf",
            Self::Safetensors => "safetensors",
        }
    }
}

/// Returns the product of some dimensions, or `None` if it or any dimension exceeds the cap; a dimension of 0 would hide the
/// others.
fn values(shape: &[u64]) -> Option<u64> {
    let fits = |n: &u64| *n <= limits::VALUES;
    shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim).filter(fits).filter(|_| fits(dim)))
}

/// Sorts names. It is not inlined, because a sort is kilobytes of code.
#[inline(never)]
fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

/// The place of the last name that another one equals, if there is any.
fn repeated(names: Vec<&str>) -> Option<usize> {
    let in_order = sorted(names.clone());
    let [twice, _] = in_order.array_windows().find(|[first, second]| first == second)?;
    names.iter().rposition(|name| name == twice)
}

/// Refuses tensors that share bytes of a file. No writer makes them, and their memory would be counted twice.
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
