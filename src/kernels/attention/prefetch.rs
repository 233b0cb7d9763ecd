//! Prefetching of rows, in the way of `kernels::linear::prefetch`.

/// Loads rows of one or two heads into the cache while others are multiplied: the same line of all their pages together, because a core's
/// own prefetcher may work within a page, and only after it has noticed a stream.
pub(super) struct RowPrefetch<'a> {
    rows: [&'a [u32]; 2],
    /// The next line of every page.
    next: usize,
    /// The XOR of what was loaded.
    seen: u32,
}

/// A cache line and a page, in words; and the lines of a page.
const LINE: usize = 16;
const PAGE: usize = 1024;
const LINES: usize = PAGE / LINE;
/// Four misses at a time are fewer than a core can wait for.
const FEW_PAGES: usize = 4;

/// How many heads are loaded together: of so few pages that two have more of them at once.
pub(super) fn heads_together(rows: &[u32]) -> usize {
    if rows.len() <= FEW_PAGES * PAGE { 2 } else { 1 }
}

impl<'a> RowPrefetch<'a> {
    pub fn new(rows: [&'a [u32]; 2]) -> Self {
        Self { rows, next: if rows[0].is_empty() { LINES } else { 0 }, seen: 0 }
    }

    /// Loads one of `parts` equal parts of the rows, as long as any are left.
    #[inline(always)]
    pub fn touch(&mut self, parts: usize) {
        if self.next < LINES {
            self.load(parts);
        }
    }

    /// A call of its own, so that it takes no registers from the loops around it.
    #[inline(never)]
    fn load(&mut self, parts: usize) {
        let end = self.next + LINES.div_ceil(parts);
        for line in self.next..end {
            for rows in self.rows {
                let mut at = line * LINE;
                while let Some(word) = rows.get(at) {
                    self.seen ^= word;
                    at += PAGE;
                }
            }
        }
        self.next = end;
    }
}

impl Drop for RowPrefetch<'_> {
    /// Makes the loads count as used: an unused one would be removed.
    fn drop(&mut self) {
        std::hint::black_box(self.seen);
    }
}
