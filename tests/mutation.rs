//! Golden files with random damage. No panic, no hang, no memory beyond a small multiple of the file, and no logits that are
//! not finite; what cannot be run says why.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{Files, golden, need, trial};
use ternlight::error::{ErrorKind, Result};
use ternlight::formats::{Format, Parsed, gguf, safetensors};
use ternlight::model::Options;
use ternlight::rng::Rng;
use ternlight::team::Team;

/// Counts what each thread holds, and the most it ever held: tests run side by side.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    MOST.set(MOST.get().max(HELD.get()));
}

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most that some work held beyond what was there before.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, (MOST.get() - before) as usize)
}

fn pick<T: Copy>(rng: &mut Rng, among: &[T]) -> T {
    among[rng.below(among.len())]
}

/// Numbers at the edges of their types and of a file.
fn edge(rng: &mut Rng, len: usize) -> u64 {
    let len = len as u64;
    let edges =
        [0, 1, 2, 3, 31, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 40) + 1, 1 << 53, 1 << 63, u64::MAX - 31];
    match rng.below(4) {
        0 => pick(rng, &[len, len + 1, len.saturating_sub(1), len / 2, len * 4]),
        1 => rng.below(1 << 20) as u64,
        _ => pick(rng, &edges).wrapping_sub(rng.below(2) as u64),
    }
}

/// Damages one to three places among the first `within` bytes.
fn damage(bytes: &mut Vec<u8>, within: usize, rng: &mut Rng) {
    for _ in 0..pick(rng, &[1, 1, 1, 2, 3]) {
        let within = within.min(bytes.len());
        if within < 16 {
            return;
        }
        // Half of it at the two ends: a GGUF's settings and its tensors have a vocabulary between them.
        let last = within - 8;
        let at = match rng.below(4) {
            0 => rng.below(last.min(1 << 10)),
            1 => last - 1 - rng.below(last.min(1 << 11)),
            _ => rng.below(last),
        };
        match rng.below(9) {
            0 | 1 => bytes[at] ^= 1 << rng.below(8),
            2 => bytes[at] = pick(rng, &[0, 1, 0x7f, 0x80, 0xff, b'9', b'"', b'{', b'-']),
            // The halves and floats that are none, and those that are huge.
            3 => bytes[at / 2 * 2..][..2]
                .copy_from_slice(&pick(rng, &[[0, 0x7c], [0, 0x7e], [0xff, 0x7b], [0x80, 0x7f], [0x7f, 0x7f]])),
            // What looks like a length, a dimension or an offset.
            4 | 5 => {
                let field = |at: &usize| bytes[at + 3..at + 8] == [0; 5] && bytes[*at] != 0;
                let at = (at..within - 8).find(field).unwrap_or(at);
                let value = if rng.below(2) == 0 { edge(rng, bytes.len()) } else { 1 << rng.below(12) };
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            // A number in words.
            6 => {
                let digit = |at: &usize| bytes[*at].is_ascii_digit();
                let Some(at) = (at..within).find(digit) else { continue };
                let end = (at..within).find(|at| !digit(at)).unwrap_or(within);
                let value = edge(rng, bytes.len()).to_string();
                bytes.splice(at..end, value.bytes());
            }
            7 => {
                let len = rng.below(64.min(within - at));
                let from = rng.below(within - len);
                let piece = bytes[from..from + len].to_vec();
                match rng.below(3) {
                    0 => drop(bytes.splice(at..at, piece)),
                    1 => drop(bytes.drain(at..at + len)),
                    _ => bytes[at..at + len].copy_from_slice(&piece),
                }
            }
            _ if rng.below(8) == 0 => bytes.truncate(at),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
}

/// What came of the trials, by kind of error.
#[derive(Default, Debug)]
struct Tally {
    good: usize,
    more: usize,
    errors: BTreeMap<&'static str, usize>,
}

impl Tally {
    fn add(&mut self, result: Result<bool>) {
        match result {
            Ok(true) => self.good += 1,
            Ok(false) => self.more += 1,
            Err(error) => *self.errors.entry(error.kind.code()).or_default() += 1,
        }
    }

    /// The damage was neither nothing nor everything: many trials ended well, and many kinds of errors were met.
    fn check(&self, kinds: &[ErrorKind]) {
        println!("{self:?}");
        assert!(self.good > 0, "{self:?}");
        for kind in kinds {
            assert!(self.errors.contains_key(kind.code()), "never {kind:?}: {self:?}");
        }
    }
}

fn good_files() -> Vec<(PathBuf, Files)> {
    let entries = |path: &str| {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(golden(path)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let gguf = entries("gguf").into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "gguf"));
    let models = entries("models").into_iter().filter(|path| path.join("config.json").exists());
    let files: Vec<_> = gguf.chain(models).map(|path| (path.clone(), Files::read(&path))).collect();
    assert!(files.len() > 20);
    files
}

fn size(files: &Files) -> usize {
    files.weights.iter().chain(&files.config).map(Vec::len).sum()
}

/// Where the weights begin.
fn header_len(bytes: &[u8]) -> usize {
    let total = bytes.len() as u64;
    let len = match Format::sniff(bytes, total).unwrap() {
        Parsed::Done(Format::Gguf) => need(bytes, |prefix| gguf::parse(prefix, total)).unwrap().header_len,
        _ => need(bytes, |prefix| safetensors::parse(prefix, total)).unwrap().header_len,
    };
    len as usize
}

fn check_memory(name: &Path, held: usize, input: usize, times: usize) {
    let most = times * input + (1 << 20);
    assert!(held <= most, "{}: {held} bytes were held for a file of {input}", name.display());
}

#[test]
fn damaged_headers() {
    let mut tally = Tally::default();
    let files = good_files();
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed);
        let (name, file) = &files[rng.below(files.len())];
        let bytes = &file.weights[rng.below(file.weights.len())];
        let (header, total) = (header_len(bytes), bytes.len() as u64);
        let mut bytes = bytes[..header].to_vec();
        damage(&mut bytes, header, &mut rng);
        let mut total = total;
        if file.config.is_some() && bytes.len() > 8 && rng.below(4) > 0 {
            // As long as it says, so that what it holds is looked at.
            total = total - header as u64 + bytes.len() as u64;
            let len = bytes.len() as u64 - 8;
            bytes[..8].copy_from_slice(&len.to_le_bytes());
        }
        let (result, held) = peak(|| trial::header(file.config.as_deref(), &bytes, total));
        check_memory(name, held, bytes.len(), 8);
        tally.add(result);
    }
    tally.check(&[
        ErrorKind::BadHeader,
        ErrorKind::Truncated,
        ErrorKind::BadMagic,
        ErrorKind::BadValue,
        ErrorKind::ShapeMismatch,
    ]);
}

#[test]
fn damaged_adapters() {
    let mut tally = Tally::default();
    let pairs = [
        ("models/llama_f32", "lora/llama_f32.lora"),
        ("gguf/llama_f32.F32.gguf", "lora/llama_f32.lora.gguf"),
        ("models/bitnet_packed", "lora/bitnet_packed.lora"),
    ];
    let mut engines = pairs.map(|(model, adapter)| {
        let options = Options { context_length: Some(8), prefill_chunk: 2, ..Options::default() };
        (Files::read(&golden(model)).engine(options, Team::solo()).unwrap(), Files::read(&golden(adapter)))
    });
    for seed in 0..2_000 {
        let mut rng = Rng::new(2 << 32 | seed);
        let which = rng.below(engines.len());
        let (engine, file) = &mut engines[which];
        let mut file = file.clone();
        match rng.below(4) {
            0 if file.config.is_some() => {
                let config = file.config.as_mut().unwrap();
                damage(config, config.len(), &mut rng);
            }
            1 | 2 => {
                let bytes = &mut file.weights[0];
                damage(bytes, header_len(bytes), &mut rng);
            }
            _ => {
                let bytes = &mut file.weights[0];
                damage(bytes, bytes.len(), &mut rng);
            }
        }
        let (result, held) = peak(|| trial::adapter(engine, &file));
        check_memory(Path::new(pairs[which].1), held, size(&file), 8);
        tally.add(result.map(|()| true));
    }
    tally.check(&[
        ErrorKind::BadHeader,
        ErrorKind::Truncated,
        ErrorKind::MissingKey,
        ErrorKind::ShapeMismatch,
        ErrorKind::UnsupportedType,
        ErrorKind::UnsupportedSetting,
        ErrorKind::NonFinite,
    ]);
}

#[test]
fn damaged_checkpoints() {
    let mut tally = Tally::default();
    let files = good_files();
    for seed in 0..2_000 {
        let mut rng = Rng::new(1 << 32 | seed);
        let (name, file) = &files[rng.below(files.len())];
        let mut file = file.clone();
        match rng.below(4) {
            0 if file.config.is_some() => {
                let config = file.config.as_mut().unwrap();
                damage(config, config.len(), &mut rng);
            }
            1 => {
                let bytes = &mut file.weights[0];
                damage(bytes, header_len(bytes), &mut rng);
            }
            _ => {
                let bytes = rng.below(file.weights.len());
                let bytes = &mut file.weights[bytes];
                damage(bytes, bytes.len(), &mut rng);
            }
        }
        let (result, held) = peak(|| trial::checkpoint(&file, &mut rng));
        check_memory(name, held, size(&file), 4);
        tally.add(result.map(|()| true));
    }
    tally.check(&[ErrorKind::BadHeader, ErrorKind::Truncated, ErrorKind::NonFinite, ErrorKind::ShapeMismatch]);
}
