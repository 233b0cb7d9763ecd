//! The error of the whole crate: its kind, what it concerns, what was expected and what was found.

use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Serialize, Serializer};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What went wrong. The names are stable: they are the `code` that JavaScript sees.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $name,)* }

        impl ErrorKind {
            /// The name, which is the `code` that JavaScript sees.
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

kinds! {
    /// The bytes end before what they announce.
    Truncated,
    /// A required file is absent.
    NotFound,
    /// The file has a format that is not known.
    BadMagic,
    /// A known container of a version that is not supported.
    UnsupportedVersion,
    /// A header that contradicts itself, its limits or the length of its file.
    BadHeader,
    /// A storage type that is not supported.
    UnsupportedType,
    /// A model architecture that is not supported.
    UnsupportedArchitecture,
    /// A known architecture with a setting that is not supported.
    UnsupportedSetting,
    /// A required metadata key or config field is absent.
    MissingKey,
    /// A metadata value or config field of a wrong type or out of range.
    BadValue,
    /// A required tensor is absent.
    MissingTensor,
    /// A tensor whose shape does not fit the model.
    ShapeMismatch,
    /// A NaN or an infinity among weights, scales or results.
    NonFinite,
    /// The data contradict the layout that was chosen by a few rows; the option that is named settles it.
    LayoutContradicted,
    /// There is not enough memory for the model or a request.
    OutOfMemory,
    /// The conversation is longer than its context.
    ContextFull,
    /// The queue is full: as many requests wait as may wait.
    QueueFull,
    /// The bytes of a saved session have changed.
    Damaged,
    /// A saved session belongs to another model.
    WrongModel,
    /// A caller's value is of a wrong type or out of range.
    InvalidArgument,
    /// No step can run any more: a thread of the team has died.
    TeamPoisoned,
}

/// What the crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What an error concerns. Only the fields that apply are set.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Place {
    /// The file's name, without its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// As its file has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// Of a GGUF's metadata, or of `config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// As JavaScript spells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// Bytes from the start of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Bytes that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed: Option<u64>,
    /// Bytes that could be had, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<u64>,
}

/// One pointer, because every result that may be an error carries room for one.
#[derive(Clone, Debug, PartialEq)]
pub struct Error(Box<Details>);

/// What an [`Error`] says.
#[derive(Clone, Debug, PartialEq)]
pub struct Details {
    pub kind: ErrorKind,
    pub place: Place,
    reason: String,
}

impl Deref for Error {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

impl DerefMut for Error {
    fn deref_mut(&mut self) -> &mut Details {
        &mut self.0
    }
}

impl Error {
    /// An error that concerns nothing yet. A reason of more than 1024 bytes is cut.
    pub fn new(kind: ErrorKind, reason: impl AsRef<str>) -> Self {
        Self::made(kind, reason.as_ref())
    }

    /// The part that all callers share, in one copy.
    #[cold]
    #[inline(never)]
    fn made(kind: ErrorKind, reason: &str) -> Self {
        Self(Box::new(Details { kind, place: Place::default(), reason: clipped(reason) }))
    }

    /// Names the file, unless an inner call has.
    pub fn file(self, name: impl AsRef<str>) -> Self {
        self.placed(name.as_ref(), |place| &mut place.file)
    }

    /// Names the tensor, unless an inner call has.
    pub fn tensor(self, name: impl AsRef<str>) -> Self {
        self.placed(name.as_ref(), |place| &mut place.tensor)
    }

    /// Names the key, unless an inner call has.
    pub fn key(self, name: impl AsRef<str>) -> Self {
        self.placed(name.as_ref(), |place| &mut place.key)
    }

    /// Names the option, unless an inner call has.
    pub fn option(self, name: impl AsRef<str>) -> Self {
        self.placed(name.as_ref(), |place| &mut place.option)
    }

    #[cold]
    #[inline(never)]
    fn placed(mut self, name: &str, field: fn(&mut Place) -> &mut Option<String>) -> Self {
        field(&mut self.place).get_or_insert_with(|| name.to_owned());
        self
    }

    /// Tells the byte of the file, unless an inner call has.
    pub fn offset(mut self, offset: u64) -> Self {
        self.place.offset.get_or_insert(offset);
        self
    }

    /// What was wanted and what came; they replace earlier ones.
    pub fn expected(self, what: impl fmt::Display, found: impl fmt::Display) -> Self {
        self.compared(&what, &found)
    }

    #[cold]
    #[inline(never)]
    fn compared(mut self, what: &dyn fmt::Display, found: &dyn fmt::Display) -> Self {
        self.place.expected = Some(clipped(&what.to_string()));
        self.place.found = Some(clipped(&found.to_string()));
        self
    }

    /// Bytes that were asked for, and those that could be had, where that is known; they replace earlier ones.
    pub fn bytes(mut self, needed: u64, available: Option<u64>) -> Self {
        self.place.needed = Some(needed);
        self.place.available = available;
        self
    }
}

/// Messages quote the file, and a hostile file may have names of megabytes.
fn clipped(text: &str) -> String {
    const MOST: usize = 1024;
    if text.len() <= MOST {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MOST)])
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        for (what, name) in
            [("", &place.file), ("tensor ", &place.tensor), ("key ", &place.key), ("option ", &place.option)]
        {
            if let Some(name) = name {
                write!(f, "{what}{name}: ")?;
            }
        }
        f.write_str(&self.reason)?;
        if let (Some(expected), Some(found)) = (&place.expected, &place.found) {
            write!(f, ": expected {expected}, found {found}")?;
        }
        if let Some(offset) = place.offset {
            write!(f, " (at byte {offset})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// The form in which an error crosses into JavaScript: `{ code, message, detail }`.
impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("Error", 3)?;
        out.serialize_field("code", self.kind.code())?;
        out.serialize_field("message", &self.to_string())?;
        out.serialize_field("detail", &self.place)?;
        out.end()
    }
}

/// Allocates a buffer whose size an input determines: too large a size is an error instead of an abort. The length has 64 bits, so that
/// a product that exceeds the 32 bits of wasm's addresses is not cut.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`] with the bytes that were needed.
pub fn reserve<T>(what: &str, len: u64) -> Result<Vec<T>> {
    let mut buffer = Vec::new();
    usize::try_from(len).ok().and_then(|len| buffer.try_reserve_exact(len).ok()).ok_or_else(|| {
        let bytes = len.saturating_mul(size_of::<T>() as u64);
        Error::new(ErrorKind::OutOfMemory, format!("no room for {bytes} bytes of {what}")).bytes(bytes, None)
    })?;
    Ok(buffer)
}

/// Allocates as [`reserve`] does and fills the buffer with a value.
///
/// # Errors
/// As [`reserve`].
pub fn filled<T: Clone>(what: &str, len: u64, value: T) -> Result<Vec<T>> {
    let mut buffer = reserve(what, len)?;
    buffer.resize(len as usize, value);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_message_says_where_expected_and_found() {
        let error = Error::new(ErrorKind::ShapeMismatch, "wrong size")
            .tensor("blk.3.attn_q.weight")
            .expected("1310720 bytes", "655360")
            .offset(4096);
        assert_eq!(
            error.to_string(),
            "tensor blk.3.attn_q.weight: wrong size: expected 1310720 bytes, found 655360 (at byte 4096)"
        );
        let data = serde_json::to_value(&error).unwrap();
        assert_eq!(data["code"], "ShapeMismatch");
        assert_eq!(data["detail"]["tensor"], "blk.3.attn_q.weight");
        assert_eq!(data["detail"]["offset"], 4096);
        assert!(data["detail"].get("key").is_none());
    }

    #[test]
    fn no_size_is_too_large_to_be_refused() {
        for len in [u64::MAX, 1 << 62, 1 << 47] {
            let error = reserve::<u64>("x", len).unwrap_err();
            assert_eq!((error.kind, error.place.needed), (ErrorKind::OutOfMemory, Some(len.saturating_mul(8))));
        }
    }

    #[test]
    fn a_message_stays_short() {
        let error = Error::new(ErrorKind::BadValue, "é".repeat(1 << 20)).expected("a word", "a".repeat(1 << 20));
        assert!(error.to_string().len() < 3000);
    }

    #[test]
    fn the_innermost_place_stays() {
        let error = Error::new(ErrorKind::BadValue, "x").tensor("a").tensor("b");
        assert_eq!(error.place.tensor.as_deref(), Some("a"));
    }
}
