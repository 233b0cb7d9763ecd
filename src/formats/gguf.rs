//! GGUF, versions 2 and 3, little-endian: magic, counts, metadata pairs, tensor table, padding, data.
//!
//! The format is described in ggml's `docs/gguf.md`. Arrays (a vocabulary, its merges) are not copied: [`Value::Array`] says
//! which bytes of the header they take, and the tokenizer code reads them there.

mod metadata;

pub use metadata::{Array, Metadata, Value};

use super::{Parsed, Tensor, limits, refuse_overlap, repeated, values};
use crate::bytes::{Reader, Short};
use crate::error::{Error, ErrorKind, Result};
use crate::quant::{self, Content, Storage};

/// The first bytes of a GGUF file.
pub const MAGIC: &[u8] = b"GGUF";

/// A parsed GGUF header.
#[derive(Debug)]
pub struct Gguf {
    /// The metadata.
    pub metadata: Metadata,
    /// The tensor table, in file order.
    pub tensors: Vec<Tensor>,
    /// The length of the header in bytes, without the padding before the data.
    pub header_len: u64,
}

/// Parses the header of a file of `total` bytes, given its first bytes.
///
/// # Errors
/// `BadMagic`, `UnsupportedVersion`, `BadHeader`, `BadValue` or `Truncated`, with the offset, key or tensor.
pub fn parse(prefix: &[u8], total: u64) -> Result<Parsed<Gguf>> {
    Parsed::from_short(read(Reader::new(prefix, total)))
}

/// Parses the whole header. It exceeds 60 lines because it follows the file from start to end.
fn read(mut reader: Reader) -> Result<Gguf, Short> {
    let magic = reader.array::<4>()?;
    if magic != *MAGIC {
        return Err(Error::new(ErrorKind::BadMagic, "not a GGUF file")
            .expected("GGUF", String::from_utf8_lossy(&magic).escape_default())
            .offset(0)
            .into());
    }
    let version = reader.u32()?;
    if !matches!(version, 2 | 3) {
        let big_endian = matches!(version.swap_bytes(), 2 | 3);
        let reason = if big_endian { "the file is big-endian" } else { "this version is not supported" };
        return Err(Error::new(ErrorKind::UnsupportedVersion, reason)
            .expected("GGUF version 2 or 3, little-endian", if big_endian { version.swap_bytes() } else { version })
            .offset(4)
            .into());
    }
    let tensor_count = capped(&mut reader, "tensors", limits::TENSORS)?;
    let pair_count = capped(&mut reader, "metadata pairs", limits::PAIRS)?;

    let (mut pairs, mut offsets) = (Vec::new(), Vec::new());
    for _ in 0..pair_count {
        let at = reader.offset();
        let key = string(&mut reader, limits::NAME)?;
        let kind = reader.u32()?;
        let keeps = !key.starts_with("tokenizer.");
        let value = value(&mut reader, kind, keeps).map_err(|short| at_key(short, &key))?;
        pairs.push((key, value));
        offsets.push(at);
    }
    if let Some(twice) = repeated(pairs.iter().map(|(key, _)| key.as_str()).collect()) {
        let error = Error::new(ErrorKind::BadHeader, "the key occurs twice").key(&pairs[twice].0);
        return Err(error.offset(offsets[twice]).into());
    }
    let metadata = Metadata::from_iter(pairs);

    let mut entries = Vec::new();
    for _ in 0..tensor_count {
        entries.push(entry(&mut reader)?);
    }
    if let Some(twice) = repeated(entries.iter().map(|entry: &Entry| &*entry.name).collect()) {
        let Entry { name, at, .. } = &entries[twice];
        return Err(Error::new(ErrorKind::BadHeader, "the tensor occurs twice").tensor(name).offset(*at).into());
    }
    let alignment = metadata.uint("general.alignment")?.unwrap_or(32);
    if !alignment.is_power_of_two() || alignment > limits::ALIGNMENT {
        return Err(Error::new(ErrorKind::BadValue, "wrong alignment")
            .key("general.alignment")
            .expected(format_args!("a power of two up to {}", limits::ALIGNMENT), alignment)
            .into());
    }
    let header_len = reader.offset();
    let data = header_len.next_multiple_of(alignment);
    let total = header_len + reader.left();
    let q2_0 = q2_0_layout(&entries, alignment, total.saturating_sub(data))?;
    let mut tensors = Vec::with_capacity(entries.len());
    for entry in entries {
        tensors.push(place(entry, data, alignment, total, q2_0)?);
    }
    refuse_overlap(&tensors)?;
    Ok(Gguf { metadata, tensors, header_len })
}

/// Reads a count, which may exceed neither the cap nor the bytes behind it: every element takes at least one byte.
fn capped(reader: &mut Reader, what: &str, cap: u64) -> Result<u64, Short> {
    let at = reader.offset();
    let count = reader.u64()?;
    if count > cap {
        return Err(Error::new(ErrorKind::BadHeader, format!("too many {what}"))
            .expected(format_args!("at most {cap}"), count)
            .offset(at)
            .into());
    }
    if count > reader.left() {
        return Err(Error::new(ErrorKind::Truncated, format!("the file ends before its {what}"))
            .expected(format_args!("{count} of them"), format_args!("{} bytes", reader.left()))
            .offset(at)
            .into());
    }
    Ok(count)
}

fn string(reader: &mut Reader, cap: u64) -> Result<String, Short> {
    let at = reader.offset();
    let len = reader.u64()?;
    if len > cap {
        return Err(Error::new(ErrorKind::BadHeader, "a string is too long")
            .expected(format_args!("at most {cap} bytes"), len)
            .offset(at)
            .into());
    }
    let bytes = reader.take(len)?;
    String::from_utf8(bytes.to_vec())
        .map_err(|_| Error::new(ErrorKind::BadHeader, "a string is not UTF-8").offset(at).into())
}

/// Reads a value; `keeps` says whether the elements of an array are kept.
fn value(reader: &mut Reader, kind: u32, keeps: bool) -> Result<Value, Short> {
    let at = reader.offset();
    Ok(match kind {
        0 => Value::Int(u8::from_le_bytes(reader.array()?).into()),
        1 => Value::Int(i8::from_le_bytes(reader.array()?).into()),
        2 => Value::Int(u16::from_le_bytes(reader.array()?).into()),
        3 => Value::Int(i16::from_le_bytes(reader.array()?).into()),
        4 => Value::Int(reader.u32()?.into()),
        5 => Value::Int(i32::from_le_bytes(reader.array()?).into()),
        6 => Value::Float(f32::from_le_bytes(reader.array()?).into()),
        7 => Value::Bool(reader.array::<1>()?[0] != 0),
        8 => Value::Str(string(reader, limits::HEADER)?),
        9 => Value::Array(array(reader, keeps)?),
        10 => Value::Int(reader.u64()?.into()),
        11 => Value::Int(i64::from_le_bytes(reader.array()?).into()),
        12 => Value::Float(f64::from_le_bytes(reader.array()?)),
        _ => {
            return Err(Error::new(ErrorKind::BadHeader, "unknown value type")
                .expected("0 to 12", kind)
                .offset(at - 4)
                .into());
        }
    })
}

fn array(reader: &mut Reader, keeps: bool) -> Result<Array, Short> {
    let at = reader.offset();
    let element = reader.u32()?;
    let count = capped(reader, "array elements", limits::HEADER)?;
    let offset = reader.offset();
    let width = match element {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        8 => {
            for _ in 0..count {
                let at = reader.offset();
                let len = reader.u64()?;
                reader.take(len).map_err(|short| match short {
                    Short::Bad(error) => Short::Bad(error.offset(at)),
                    need @ Short::Need(_) => need,
                })?;
            }
            0
        }
        _ => {
            return Err(Error::new(ErrorKind::BadHeader, "unknown array element type")
                .expected("0 to 8 or 10 to 12", element)
                .offset(at)
                .into());
        }
    };
    reader.take(count * width)?;
    let len = reader.offset() - offset;
    let bytes = if keeps && len <= limits::ARRAY { reader.since(offset).to_vec() } else { Vec::new() };
    Ok(Array { element, count, offset, len, bytes })
}

fn at_key(short: Short, key: &str) -> Short {
    match short {
        Short::Bad(error) => Short::Bad(error.key(key)),
        need @ Short::Need(_) => need,
    }
}

/// An entry of the tensor table as the file has it.
struct Entry {
    name: String,
    /// Innermost dimension first.
    dims: Vec<u64>,
    kind: u32,
    /// The offset of the data from the start of the data section.
    offset: u64,
    /// The offset of the entry in the file, for messages.
    at: u64,
}

fn entry(reader: &mut Reader) -> Result<Entry, Short> {
    let at = reader.offset();
    let name = string(reader, limits::NAME)?;
    let count = reader.u32()?;
    if count > limits::DIMS {
        return Err(Error::new(ErrorKind::BadHeader, "too many dimensions")
            .tensor(name)
            .expected(format_args!("at most {}", limits::DIMS), count)
            .offset(at)
            .into());
    }
    let dims = (0..count).map(|_| reader.u64()).collect::<Result<_, _>>()?;
    Ok(Entry { name, dims, kind: reader.u32()?, offset: reader.u64()?, at })
}

const TYPE_Q2_0: u32 = 42;

/// Determines the layout of type 42, which is blocks of 64 values, or in older files of 128: 36 or 34 bytes for 128 values. The
/// distance to the next tensor shows which. Alignment hides the difference for the smallest tensors, for which the others then
/// decide.
fn q2_0_layout(entries: &[Entry], alignment: u64, data_len: u64) -> Result<&'static Storage> {
    let mut starts: Vec<u64> = entries.iter().map(|entry| entry.offset).collect();
    starts.sort_unstable();
    let mut found: Option<&'static Storage> = None;
    for entry in entries.iter().filter(|entry| entry.kind == TYPE_Q2_0) {
        let after = starts.partition_point(|&start| start <= entry.offset);
        let next = starts.get(after).copied().unwrap_or(data_len);
        let room = next.saturating_sub(entry.offset);
        let size = |storage: &'static Storage| values(&entry.dims).and_then(|values| storage.size(values));
        let fits = |storage: &'static Storage| {
            size(storage).is_some_and(|size| size <= room && room <= size.next_multiple_of(alignment))
        };
        let layout = match (fits(&quant::Q2_0), fits(&quant::PQ2_0)) {
            (true, false) => &quant::Q2_0,
            (false, true) => &quant::PQ2_0,
            (true, true) => continue,
            // The file ends within the tensor, which is refused later for that.
            (false, false) if after == starts.len() && size(&quant::Q2_0).is_some_and(|size| room < size) => continue,
            (false, false) => {
                return Err(Error::new(ErrorKind::BadHeader, "its size is that of neither Q2_0 layout")
                    .tensor(&entry.name)
                    .expected("18 bytes for 64 values or 34 for 128", format_args!("room for {room} bytes"))
                    .offset(entry.at));
            }
        };
        if found.is_some_and(|found| found != layout) {
            return Err(Error::new(ErrorKind::BadHeader, "this file mixes both Q2_0 layouts")
                .tensor(&entry.name)
                .offset(entry.at));
        }
        found = Some(layout);
    }
    Ok(found.unwrap_or(&quant::Q2_0))
}

/// Checks an entry against the file and computes its place.
fn place(entry: Entry, data: u64, alignment: u64, total: u64, q2_0: &'static Storage) -> Result<Tensor> {
    let Entry { name, dims, kind, offset, at } = entry;
    let bad = |reason: &str| Error::new(ErrorKind::BadHeader, reason).tensor(&name).offset(at);
    let values = values(&dims)
        .ok_or_else(|| bad("the shape is too large").expected("at most 2^40 values", format_args!("{dims:?}")))?;
    let storage = if kind == TYPE_Q2_0 { Some(q2_0) } else { quant::by_ggml_id(kind) };
    let (type_name, refusal) = match storage {
        Some(storage) => (storage.name.to_owned(), ""),
        None => quant::refused_ggml_id(kind),
    };
    if !offset.is_multiple_of(alignment) {
        return Err(bad("the offset is not aligned").expected(format_args!("a multiple of {alignment}"), offset));
    }
    let start = data.checked_add(offset).filter(|&start| start <= total);
    let start = start.ok_or_else(|| {
        Error::new(ErrorKind::Truncated, "the data begin past the end of the file")
            .tensor(&name)
            .expected(format_args!("an offset of at most {}", total.saturating_sub(data)), offset)
            .offset(at)
    })?;
    let len = match storage {
        None => 0,
        Some(storage) => {
            let row = dims.first().copied().unwrap_or(1);
            let fits = matches!(storage.content, Content::I2s) || row.is_multiple_of(storage.block as u64);
            let len = if fits { storage.size(values) } else { None };
            let len = len.ok_or_else(|| {
                bad("the rows are not whole blocks")
                    .expected(format_args!("a multiple of {} values for {}", storage.block, storage.name), row)
            })?;
            if matches!(storage.content, Content::I2s) { len + quant::I2S_TAIL } else { len }
        }
    };
    // The padding behind an I2_S scale may be missing at the end of a file; the scale may not.
    let needed =
        if storage.is_some_and(|s| matches!(s.content, Content::I2s)) { len - quant::I2S_TAIL + 4 } else { len };
    if needed > total - start {
        return Err(Error::new(ErrorKind::Truncated, "the file ends inside the tensor")
            .tensor(&name)
            .expected(format_args!("{len} bytes"), total - start)
            .offset(start));
    }
    let shape = dims.into_iter().rev().collect();
    Ok(Tensor { name, storage, refusal, type_name, shape, file: 0, offset: start, len: len.min(total - start) })
}
