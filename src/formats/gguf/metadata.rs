//! The metadata of a GGUF: typed values by key.

use crate::error::{Error, ErrorKind, Result};

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer of any width and signedness; i128 represents all of them.
    Int(i128),
    /// A float of either width.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Str(String),
    /// An array, whose elements stay in the header.
    Array(Array),
}

/// The place of an array in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// GGUF's value type of the elements, for example 6 for f32 and 8 for strings.
    pub element: u32,
    /// The number of elements.
    pub count: u64,
    /// The offset of the first element in the file, in bytes.
    pub offset: u64,
    /// The length of all elements in bytes.
    pub len: u64,
    /// The elements as they stand in the file, of an array that describes the model. Those of the tokenizer, which are large, are left out.
    pub bytes: Vec<u8>,
}

impl Array {
    /// The elements, where they are integers or booleans.
    pub fn ints(&self) -> Option<Vec<i64>> {
        let (bytes, width) = (&self.bytes[..], self.len.checked_div(self.count).unwrap_or(1) as usize);
        let int = |element: &[u8]| {
            let signed = matches!(self.element, 1 | 3 | 5 | 11);
            let fill = if signed && element.last()? & 0x80 != 0 { 0xff } else { 0 };
            let mut word = [fill; 8];
            word.get_mut(..element.len())?.copy_from_slice(element);
            Some(i64::from_le_bytes(word))
        };
        let known = matches!(self.element, 0..=5 | 7 | 10 | 11) && bytes.len() as u64 == self.len;
        if known { bytes.chunks_exact(width.max(1)).map(int).collect() } else { None }
    }

    /// The elements, where they are strings.
    pub fn strings(&self) -> Option<Vec<&str>> {
        let (mut rest, mut strings) = (&self.bytes[..], Vec::new());
        if self.element != 8 || rest.len() as u64 != self.len {
            return None;
        }
        while let Some((len, text)) = rest.split_first_chunk::<8>() {
            let (text, after) = text.split_at_checked(u64::from_le_bytes(*len) as usize)?;
            strings.push(std::str::from_utf8(text).ok()?);
            rest = after;
        }
        Some(strings)
    }
}

/// The metadata of a GGUF file, in the order of its keys.
#[derive(Clone, Debug, Default)]
pub struct Metadata(Vec<(String, Value)>);

impl FromIterator<(String, Value)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self(pairs)
    }
}

impl Metadata {
    /// Iterates over all pairs, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let at = self.0.binary_search_by(|(own, _)| own.as_str().cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Returns the string of a key, if there is one.
    ///
    /// # Errors
    /// `BadValue` if the value has another type.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |value| match value {
            Value::Str(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Returns the non-negative integer of a key, if there is one.
    ///
    /// # Errors
    /// `BadValue` if the value has another type or range.
    pub fn uint(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a non-negative integer", |value| match value {
            Value::Int(int) => u64::try_from(*int).ok(),
            _ => None,
        })
    }

    /// Returns the number of a key, if there is one.
    ///
    /// # Errors
    /// `BadValue` if the value is no finite number.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a finite number", |value| match value {
            Value::Float(float) => float.is_finite().then_some(*float),
            Value::Int(int) => Some(*int as f64),
            _ => None,
        })
    }

    /// Returns the boolean of a key, if there is one.
    ///
    /// # Errors
    /// `BadValue` if the value has another type.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", |value| match value {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        })
    }

    /// Returns the integers or booleans of a key, if there are any.
    ///
    /// # Errors
    /// `BadValue` if the value is no array of them.
    pub fn ints(&self, key: &str) -> Result<Option<Vec<i64>>> {
        self.typed(key, "an array of integers", |value| match value {
            Value::Array(array) => array.ints(),
            _ => None,
        })
    }

    /// Returns the strings of a key, if there are any.
    ///
    /// # Errors
    /// `BadValue` if the value is no array of them.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(array) => array.strings(),
            _ => None,
        })
    }

    fn typed<'a, T>(&'a self, key: &str, what: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        self.get(key)
            .map(|value| {
                read(value).ok_or_else(|| {
                    Error::new(ErrorKind::BadValue, "wrong metadata value").key(key).expected(what, value.describe())
                })
            })
            .transpose()
    }
}

impl Value {
    fn describe(&self) -> String {
        match self {
            Self::Int(int) => int.to_string(),
            Self::Float(float) => float.to_string(),
            Self::Bool(bool) => bool.to_string(),
            Self::Str(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
            Self::Array(array) => format!("an array of {} elements", array.count),
        }
    }
}
