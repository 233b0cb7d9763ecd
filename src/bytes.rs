//! A checked little-endian reader over a prefix of a file.

use crate::error::{Error, ErrorKind, Result};

/// Reads forward over the part of a file that is here. Reading past that part says how many bytes from the start of the
/// file would have been enough: [`Short::Need`] while the file has them, an error when it ends before.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    total: u64,
}

/// Why a read has no result.
#[derive(Debug)]
pub enum Short {
    /// This many bytes from the start of the file are needed.
    Need(u64),
    Bad(Error),
}

impl From<Error> for Short {
    fn from(error: Error) -> Self {
        Self::Bad(error)
    }
}

impl<'a> Reader<'a> {
    /// `total` is the length of the whole file, of which `bytes` is the beginning.
    pub fn new(bytes: &'a [u8], total: u64) -> Self {
        Self { bytes, at: 0, total }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.at as u64
    }

    /// What was read since some offset.
    pub fn since(&self, offset: u64) -> &'a [u8] {
        &self.bytes[(offset as usize).min(self.at)..self.at]
    }

    /// Bytes of the file after this point, whether they are here or not.
    pub fn left(&self) -> u64 {
        self.total - self.at as u64
    }

    /// Reads the next `len` bytes.
    ///
    /// # Errors
    /// [`Short::Need`] if the file has them and they are not here, else [`ErrorKind::Truncated`].
    pub fn take(&mut self, len: u64) -> Result<&'a [u8], Short> {
        if len > self.left() {
            return Err(Error::new(ErrorKind::Truncated, "the file ends inside its header")
                .expected(format_args!("{len} more bytes"), self.left())
                .offset(self.offset())
                .into());
        }
        let end = self.at as u64 + len;
        let taken = usize::try_from(end).ok().and_then(|end| self.bytes.get(self.at..end)).ok_or(Short::Need(end))?;
        self.at += taken.len();
        Ok(taken)
    }

    /// Reads the next `N` bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let bytes = self.take(N as u64)?;
        bytes.try_into().map_err(|_| Short::Need(self.at as u64))
    }

    /// Reads a little-endian number of four bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a little-endian number of eight bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }
}

/// A hash of bytes that changes whenever any one word of 8 bytes does. It detects damage, not forgery.
#[inline(never)]
pub fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(bytes.len() as u64, |hash, word| mixed(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, &byte| mixed(hash, u64::from(byte)))
}

/// Mixes a word into a hash. For each hash it is one-to-one in the word, and for each word in the hash.
pub fn mixed(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_need_from_truncation() {
        let mut reader = Reader::new(&[1, 0, 0, 0, 9], 8);
        assert_eq!(reader.u32().unwrap(), 1);
        assert!(matches!(reader.u32(), Err(Short::Need(8))));
        assert!(matches!(reader.u64(), Err(Short::Bad(e)) if e.kind == ErrorKind::Truncated));
        assert_eq!(reader.take(1).unwrap(), [9]);
        assert!(matches!(reader.take(u64::MAX), Err(Short::Bad(_))));
    }
}
