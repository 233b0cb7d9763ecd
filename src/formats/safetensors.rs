//! safetensors: the length of the header (u64), the header (a JSON object of tensors), then the tensors' bytes.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Parsed, Tensor, limits, refuse_overlap, repeated, values};
use crate::bytes::{Reader, Short};
use crate::error::{Error, ErrorKind, Result};
use crate::quant::{self, Content, Storage};

/// A parsed safetensors header.
#[derive(Debug)]
pub struct Safetensors {
    /// The tensor table, in the order of the header.
    pub tensors: Vec<Tensor>,
    /// The length of the header in bytes, its length field included.
    pub header_len: u64,
}

/// Parses the header of a file of `total` bytes, given its first bytes.
///
/// # Errors
/// `BadHeader`, `UnsupportedType` or `Truncated`, with the offset or tensor.
pub fn parse(prefix: &[u8], total: u64) -> Result<Parsed<Safetensors>> {
    Parsed::from_short(read(Reader::new(prefix, total)))
}

fn read(mut reader: Reader) -> Result<Safetensors, Short> {
    let len = reader.u64()?;
    if len > limits::HEADER {
        return Err(Error::new(ErrorKind::BadHeader, "the header is too long")
            .expected(format_args!("at most {} bytes", limits::HEADER), len)
            .offset(0)
            .into());
    }
    let json = reader.take(len)?;
    let at_json = |error: serde_json::Error| {
        // A header is usually one line, so that the column is the offset.
        let offset = if error.line() == 1 { 8 + error.column().saturating_sub(1) as u64 } else { 8 };
        Error::new(ErrorKind::BadHeader, format!("the header is no table of tensors: {error}")).offset(offset)
    };
    let Header(entries) = serde_json::from_slice(json).map_err(at_json)?;
    let header_len = reader.offset();
    let total = header_len + reader.left();
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        tensors.push(place(name, entry, header_len, total)?);
    }
    refuse_overlap(&tensors)?;
    Ok(Safetensors { tensors, header_len })
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Dims,
    data_offsets: (u64, u64),
}

/// A shape. Its length is limited while it is read, because a list of numbers takes more memory than its text.
struct Dims(Vec<u64>);

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Dims;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Dims, A::Error> {
                use serde::de::Error as _;
                let mut dims = Vec::new();
                while let Some(dim) = list.next_element()? {
                    if dims.len() == limits::DIMS as usize {
                        return Err(A::Error::custom(format_args!("a shape of at most {} dimensions", limits::DIMS)));
                    }
                    dims.push(dim);
                }
                Ok(Dims(dims))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// The header's pairs in file order. With serde's own maps a second tensor of the same name would silently replace the first.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                use serde::de::Error as _;
                let mut names = Vec::new();
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name.len() as u64 > limits::NAME || names.len() as u64 >= limits::TENSORS {
                        return Err(A::Error::custom("too many tensors, or a name too long"));
                    }
                    names.push(name.clone());
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                match repeated(names.iter().map(String::as_str).collect()) {
                    Some(twice) => Err(A::Error::custom(format_args!("{:?} occurs twice", names[twice]))),
                    None => Ok(Header(entries)),
                }
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Returns the storage type of a dtype, if it is supported, and the bytes of an element.
fn dtype(name: &str) -> Option<(Option<&'static Storage>, u64)> {
    Some(match name {
        "F32" => (Some(&quant::F32), 4),
        "F16" => (Some(&quant::F16), 2),
        "BF16" => (Some(&quant::BF16), 2),
        "U8" => (Some(&quant::U8X4), 1),
        "BOOL" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => (None, 1),
        "I16" | "U16" => (None, 2),
        "U32" => (Some(&quant::U32), 4),
        "I32" => (None, 4),
        "F64" | "I64" | "U64" | "C64" => (None, 8),
        _ => return None,
    })
}

fn place(name: String, entry: Entry, header_len: u64, total: u64) -> Result<Tensor> {
    let Entry { dtype: type_name, shape: Dims(mut shape), data_offsets: (begin, end) } = entry;
    let at = header_len.saturating_add(begin);
    let bad = |reason: &str| Error::new(ErrorKind::BadHeader, reason).tensor(&name).offset(at);
    let (storage, width) = dtype(&type_name).ok_or_else(|| {
        Error::new(ErrorKind::UnsupportedType, "unknown dtype")
            .tensor(&name)
            .expected("F32, F16, BF16, U8 …", &type_name)
            .offset(at)
    })?;
    let Some(expected) = values(&shape).map(|values| values * width) else {
        return Err(bad("the shape is too large").expected("at most 2^40 values", format_args!("{shape:?}")));
    };
    let len = end.checked_sub(begin).ok_or_else(|| bad("the data end before they begin").expected(begin, end))?;
    if len != expected {
        return Err(bad("the shape does not fit the data").expected(format_args!("{expected} bytes"), len));
    }
    if end > total - header_len {
        return Err(Error::new(ErrorKind::Truncated, "the file ends inside the tensor")
            .tensor(&name)
            .expected(format_args!("{end} bytes of data"), total - header_len)
            .offset(at));
    }
    // A byte holds four rows. From here on the shape is the matrix's.
    if storage.is_some_and(|storage| matches!(storage.content, Content::HfPacked))
        && let Some(rows) = shape.first_mut()
    {
        *rows *= 4;
    }
    let type_name = storage.map_or(type_name, |storage| storage.name.to_owned());
    Ok(Tensor {
        name,
        storage,
        refusal: "weights are dense floats or packed U8",
        type_name,
        shape,
        file: 0,
        offset: at,
        len,
    })
}
