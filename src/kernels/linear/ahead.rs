//! Weights on their way into the cache.

use crate::kernels::packed::Matrix;

/// Brings weights into the cache before they are due.
///
/// WebAssembly has no prefetch, and a core's own stops at every page. Every [`CHUNK`] bytes, one line of each of the eight pages
/// after the next 32 kB boundary is read: eight misses under way at once, one linear stream as far as the kernel can see.
pub(super) struct Ahead<'a> {
    bytes: &'a [u8],
    next: usize,
    seen: u8,
}

pub(super) const CHUNK: usize = 512;
const PAGE: usize = 4096;
const PAGES: usize = 8;

impl<'a> Ahead<'a> {
    pub fn new(matrix: &'a Matrix, tile: usize, wanted: bool) -> Self {
        let next = if wanted { tile * matrix.shape.tile_bytes() / CHUNK } else { usize::MAX };
        Self { bytes: matrix.codes(), next, seen: 0 }
    }

    /// The kernel will read up to byte `at`.
    #[inline(always)]
    pub fn touch(&mut self, at: usize) {
        while self.next <= at / CHUNK {
            self.burst();
        }
    }

    /// Apart, so that the registers of the loops around it stay theirs.
    #[inline(never)]
    fn burst(&mut self) {
        let window = self.next * CHUNK / (PAGE * PAGES) + 1;
        let line = window * PAGE * PAGES + self.next % PAGES.pow(2) * 64;
        let end = self.bytes.len().min(line + (PAGES - 1) * PAGE + 1);
        let Some(pages) = self.bytes.get(line..end) else { return self.next = usize::MAX };
        self.seen = pages.iter().step_by(PAGE).fold(self.seen, |seen, byte| seen ^ byte);
        self.next += 1;
    }
}

impl Drop for Ahead<'_> {
    /// A read that nobody uses would not be done.
    fn drop(&mut self) {
        std::hint::black_box(self.seen);
    }
}
