//! Weights on their way into the cache.

use crate::kernels::packed::Matrix;

/// Brings weights into the cache before they are due.
///
/// WebAssembly has no prefetch, and a core's own stops at every page. Every [`CHUNK`] bytes, two lines of each of the eight pages
/// after the next 32 kB boundary are read: many misses under way at once, one linear stream as far as the kernel can see.
pub(super) struct Ahead<'a> {
    bytes: &'a [u8],
    next: usize,
    seen: u8,
}

pub(super) const CHUNK: usize = 1024;
const PAGE: usize = 4096;
const PAGES: usize = 8;
const WINDOW: usize = PAGE * PAGES;
const LINE: usize = 64;

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
        let at = self.next * CHUNK;
        let line = (at / WINDOW + 1) * WINDOW + at % WINDOW / PAGES;
        let end = self.bytes.len().min(line + (PAGES - 1) * PAGE + CHUNK / PAGES);
        let Some(pages) = self.bytes.get(line..end) else { return self.next = usize::MAX };
        for page in pages.chunks(PAGE) {
            self.seen = page.iter().take(CHUNK / PAGES).step_by(LINE).fold(self.seen, |seen, byte| seen ^ byte);
        }
        self.next += 1;
    }
}

impl Drop for Ahead<'_> {
    /// A read that nobody uses would not be done.
    fn drop(&mut self) {
        std::hint::black_box(self.seen);
    }
}
