//! Prefetching of weights in a language that has no prefetch instruction.
//!
//! A decode step multiplies one token, so every weight byte is used once and the kernel is bound by memory. A core's own
//! prefetcher follows a linear stream but stops at each 4 KiB page, and a single stream then reaches only a part of what the
//! memory can deliver. WebAssembly cannot ask for a cache line. An ordinary load can, provided its value is used: the core
//! executes it ahead of the arithmetic and lets several misses run at once.
//!
//! Weights are therefore cut into windows of eight pages. While the kernel works in one window, a *burst* every 512 bytes loads
//! one line from each of the eight pages of the next:
//!
//! ```text
//! window n       │ page 0 │ page 1 │ … │ page 7 │      32 KiB, the kernel reads it from left to right
//!                 ▲ after each 512 bytes, burst i (i = 0 … 63)
//! window n + 1   │ i · 64 │ i · 64 │ … │ i · 64 │      one 64-byte line of each page: eight misses in flight
//! ```
//!
//! After 64 bursts the next window has been touched completely, and eight page streams have been started at once. The kernel
//! itself still reads one linear stream. The bytes are combined with XOR into a value that the destructor hides from the
//! optimiser, because a load whose result is unused may be dropped, and in one engine it gave no gain.
//!
//! Nearer loads ([`Ahead::Near`]) bring the eight lines that lie 2 KiB ahead instead. They begin no new pages but are read soon.
//!
//! Windows are aligned to the machine's pages, not to the start of the weights; counted from the start, decode at 2B shape took
//! a seventh longer.
//!
//! # What was tried, and what is doubtful
//!
//! On an Emerald Rapids server, one thread reading 2-bit weights went from 6.1 to 12.2 GB/s (Node 26). Touching ahead in one
//! linear stream gained nothing at any distance; bursts over 4, 6, 16 or 32 pages, of two lines a page, or of every second line
//! were no faster. On an AMD Zen 5 the core's prefetchers cross pages, one stream already reads 26 to 36 GB/s, and the bursts,
//! with the chunks that they cut a row into, *cost* a third of the ternary decode speed while they double that of the Q6_K
//! head as it was then. On a Zen 4 they cost every kernel 5 to 35 %. On a Xeon (family 6, model 167) they double the decode speed of
//! an f16 head (benches/results/head.md, "Floats loaded ahead"). The right choice depends on the processor and the kernel, so [`set`]
//! makes it for each [`Kind`] of weights, after a measurement ([`tune`](crate::model::tune)).

use std::sync::atomic::{AtomicU8, Ordering};

use crate::kernels::packed::{Matrix, MatrixShape, Packing};
use crate::quant::{Codes, Float, Layout};

/// A kind of packed weights, which kernels read at a rate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integer codes under float scales.
    Ints(Codes),
    /// Integer codes in super-blocks, those of K-quants.
    SuperBlocks(Codes),
    /// Floats.
    Floats(Float),
}

/// The kinds that have a choice.
pub const KINDS: [Kind; 11] = [
    Kind::Ints(Codes::B1),
    Kind::Ints(Codes::B2),
    Kind::Ints(Codes::B4),
    Kind::Ints(Codes::B6),
    Kind::Ints(Codes::I8),
    Kind::SuperBlocks(Codes::B2),
    Kind::SuperBlocks(Codes::B4),
    Kind::SuperBlocks(Codes::B6),
    Kind::Floats(Float::F32),
    Kind::Floats(Float::F16),
    Kind::Floats(Float::BF16),
];

/// Which lines are loaded ahead of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// None.
    Off,
    /// Those that the kernel reads next but a few.
    Near,
    /// One of each of eight pages.
    Pages,
}

impl Ahead {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Near, Self::Pages];

    /// The name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Near => "near",
            Self::Pages => "pages",
        }
    }
}

/// One choice a kind for the process: what suits a machine suits all models on it.
static CHOSEN: [AtomicU8; KINDS.len()] = [const { AtomicU8::new(Ahead::Pages as u8) }; KINDS.len()];

impl Kind {
    /// The kind of a matrix.
    pub fn of(shape: &MatrixShape) -> Self {
        match shape.packing {
            Packing::Ints(Layout { codes, .. }) if shape.has_super_blocks() => Self::SuperBlocks(codes),
            Packing::Ints(Layout { codes, .. }) => Self::Ints(codes),
            Packing::Dense(float) => Self::Floats(float),
        }
    }

    /// Its place in [`KINDS`].
    pub fn index(self) -> usize {
        match self {
            Self::Ints(codes) => codes as usize,
            Self::SuperBlocks(codes) => 4 + codes as usize,
            Self::Floats(float) => 8 + float as usize,
        }
    }

    fn choice(self) -> &'static AtomicU8 {
        &CHOSEN[self.index()]
    }
}

/// Sets which weights of this kind kernels for few tokens load ahead from now on. Results do not change.
pub fn set(kind: Kind, ahead: Ahead) {
    kind.choice().store(ahead as u8, Ordering::Relaxed);
}

/// What they load ahead for a matrix; [`Ahead::Pages`] at first.
pub fn chosen(shape: &MatrixShape) -> Ahead {
    Ahead::ALL[usize::from(Kind::of(shape).choice().load(Ordering::Relaxed))]
}

/// Loads weights into the cache before the kernel reads them; see the module's documentation.
pub(super) struct WeightPrefetch<'a> {
    /// All tiles of the matrix, so that a tile's last bursts reach into the next tile.
    bytes: &'a [u8],
    /// The offset of the first byte in its window.
    phase: usize,
    /// The number of the next burst, counted from the start of the first window; `usize::MAX` for none.
    next: usize,
    /// The XOR of what was loaded.
    seen: u8,
    near: bool,
}

/// Bytes that the kernel reads between two bursts.
pub(super) const BURST_STEP: usize = PAGES * 64;
const PAGE: usize = 4096;
const PAGES: usize = 8;
const WINDOW: usize = PAGE * PAGES;
/// The bytes that a burst spans. They are bounds-checked once, so that its loads have no checks of their own.
const BURST_SPAN: usize = (PAGES - 1) * PAGE + 1;
/// How far ahead of the kernel a burst of neighbouring lines is.
const NEAR: usize = 2048;

impl<'a> WeightPrefetch<'a> {
    /// Begins at a tile; `wanted` is false where the tile is in the cache already. A call of its own, or every kernel would hold a copy.
    #[inline(never)]
    pub fn new(matrix: &'a Matrix, tile: usize, wanted: bool) -> Self {
        let bytes = matrix.codes();
        let phase = bytes.as_ptr().addr() % WINDOW;
        let ahead = chosen(&matrix.shape);
        let wanted = wanted && ahead != Ahead::Off;
        let next = if wanted { (phase + tile * matrix.shape.tile_bytes()) / BURST_STEP } else { usize::MAX };
        Self { bytes, phase, next, seen: 0, near: ahead == Ahead::Near }
    }

    /// Whether there are bursts at all.
    #[inline(always)]
    pub fn wanted(&self) -> bool {
        self.next != usize::MAX
    }

    /// Runs the bursts that are due when the kernel reads up to byte `at` of the matrix.
    #[inline(always)]
    pub fn touch(&mut self, at: usize) {
        let until = (self.phase + at) / BURST_STEP;
        if self.next <= until {
            self.bursts(until);
        }
    }

    /// A call of its own, so that it takes no registers from the loops around it.
    #[inline(never)]
    fn bursts(&mut self, until: usize) {
        while self.next <= until {
            self.burst();
        }
    }

    fn burst(&mut self) {
        let at = self.next * BURST_STEP;
        self.next += 1;
        if self.near {
            let rest = self.bytes.get(at + NEAR - self.phase..).unwrap_or_default();
            if let Some(lines) = rest.first_chunk::<BURST_STEP>() {
                for line in 0..PAGES {
                    self.seen ^= lines[line * 64];
                }
            }
            return;
        }
        let line = (at / WINDOW + 1) * WINDOW + at % WINDOW / PAGES - self.phase;
        let rest = self.bytes.get(line..).unwrap_or_default();
        if let Some(pages) = rest.first_chunk::<BURST_SPAN>() {
            for page in 0..PAGES {
                self.seen ^= pages[page * PAGE];
            }
        } else {
            rest.chunks(PAGE).for_each(|page| self.seen ^= page[0]);
        }
    }
}

impl Drop for WeightPrefetch<'_> {
    /// Makes the loads count as used: an unused one would be removed.
    fn drop(&mut self) {
        std::hint::black_box(self.seen);
    }
}
