//! Weights on their way into the cache.

use crate::kernels::packed::Matrix;

/// Brings weights into the cache before they are due.
///
/// WebAssembly has no prefetch, and a core's own stops at every page. Every [`BURST_STEP`] bytes, a line of each of the eight pages
/// after the next 32 kB boundary is read: many misses under way at once, one linear stream as far as the kernel can see. Pages
/// are the machine's: counted from where the weights begin instead, decode at 2B shape takes a seventh longer.
pub(super) struct WeightPrefetch<'a> {
    bytes: &'a [u8],
    /// Where the first byte lies in its window.
    phase: usize,
    next: usize,
    seen: u8,
}

pub(super) const BURST_STEP: usize = PAGES * 64;
const PAGE: usize = 4096;
const PAGES: usize = 8;
const WINDOW: usize = PAGE * PAGES;
/// Bytes that a burst reaches over: looked up once, its reads have no checks of their own.
const BURST_SPAN: usize = (PAGES - 1) * PAGE + 1;

impl<'a> WeightPrefetch<'a> {
    #[inline]
    pub fn new(matrix: &'a Matrix, tile: usize, wanted: bool) -> Self {
        let bytes = matrix.codes();
        let phase = bytes.as_ptr().addr() % WINDOW;
        let next = if wanted { (phase + tile * matrix.shape.tile_bytes()) / BURST_STEP } else { usize::MAX };
        Self { bytes, phase, next, seen: 0 }
    }

    /// The kernel will read up to byte `at`.
    #[inline(always)]
    pub fn touch(&mut self, at: usize) {
        while self.next <= (self.phase + at) / BURST_STEP {
            self.burst();
        }
    }

    /// Apart, so that the registers of the loops around it stay theirs.
    #[inline(never)]
    fn burst(&mut self) {
        let at = self.next * BURST_STEP;
        let line = (at / WINDOW + 1) * WINDOW + at % WINDOW / PAGES - self.phase;
        let rest = self.bytes.get(line..).unwrap_or_default();
        if let Some(pages) = rest.first_chunk::<BURST_SPAN>() {
            for page in 0..PAGES {
                self.seen ^= pages[page * PAGE];
            }
        } else {
            rest.chunks(PAGE).for_each(|page| self.seen ^= page[0]);
        }
        self.next += 1;
    }
}

impl Drop for WeightPrefetch<'_> {
    /// A read that nobody uses would not be done.
    fn drop(&mut self) {
        std::hint::black_box(self.seen);
    }
}
