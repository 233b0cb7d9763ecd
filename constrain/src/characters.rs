//! Sets of characters, by their ranges.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

pub type Ranges = Vec<(u32, u32)>;

pub const ALL: (u32, u32) = (0, 0x10_FFFF);
/// Surrogates. Two of them are one character, and no text has one by itself.
pub const HALVES: (u32, u32) = (0xD800, 0xDFFF);
pub const DIGITS: [(u32, u32); 1] = [(0x30, 0x39)];
pub const WORD: [(u32, u32); 4] = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];
/// What these fold to is an ASCII letter, so with `iu` they are in `\w`.
pub const WORD_FOLDED: [(u32, u32); 2] = [(0x17F, 0x17F), (0x212A, 0x212A)];
pub const SPACE: [(u32, u32); 10] = [
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
];
pub const LINE_ENDS: [(u32, u32); 3] = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)];

/// A class without a character.
const NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";

pub fn complement(set: &[(u32, u32)]) -> Ranges {
    let mut sorted = set.to_vec();
    sorted.sort_unstable();
    let mut next = 0;
    let mut gaps = Vec::new();
    for (first, last) in sorted {
        if first > next {
            gaps.push((next, first - 1));
        }
        next = next.max(last + 1);
    }
    if next <= ALL.1 {
        gaps.push((next, ALL.1));
    }
    gaps
}

pub fn common(a: &[(u32, u32)], b: &[(u32, u32)]) -> Ranges {
    complement(&[complement(a), complement(b)].concat())
}

/// The ASCII letters that differ from those of a set by their case.
pub fn other_case(set: &[(u32, u32)]) -> Ranges {
    let upper = common(set, &[(0x41, 0x5A)]).into_iter().map(|(first, last)| (first + 0x20, last + 0x20));
    let lower = common(set, &[(0x61, 0x7A)]).into_iter().map(|(first, last)| (first - 0x20, last - 0x20));
    upper.chain(lower).collect()
}

/// A set with what simple case folding takes for the same.
pub fn folded(set: &[(u32, u32)]) -> Ranges {
    let parts = common(set, &complement(&[HALVES]));
    let mut class = ClassUnicode::new(
        parts
            .into_iter()
            .filter_map(|(first, last)| Some(ClassUnicodeRange::new(char::from_u32(first)?, char::from_u32(last)?))),
    );
    class.case_fold_simple();
    ranges(&class)
}

fn ranges(class: &ClassUnicode) -> Ranges {
    class.ranges().iter().map(|range| (range.start().into(), range.end().into())).collect()
}

pub fn escaped(code: u32) -> String {
    match char::from_u32(code) {
        Some(c) if regex_syntax::is_meta_character(c) => format!("\\{c}"),
        Some(c) if c == ' ' || c.is_ascii_graphic() => c.to_string(),
        _ => format!("\\x{{{code:X}}}"),
    }
}

/// What `\p` stands for with a name in braces; none where there is no such property.
pub fn property(name: &str) -> Option<Ranges> {
    let hir = regex_syntax::parse(&format!("\\p{{{name}}}")).ok()?;
    Some(match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => ranges(class),
        // Of one character.
        HirKind::Literal(literal) => str::from_utf8(&literal.0).ok()?.chars().map(|c| (c.into(), c.into())).collect(),
        _ => Vec::new(),
    })
}

/// A class in the library's syntax.
pub fn class(set: &[(u32, u32)]) -> String {
    if set.is_empty() {
        return NOTHING.to_owned();
    }
    let items = set.iter().map(|&(first, last)| format!("{}-{}", escaped(first), escaped(last)));
    format!("[{}]", items.collect::<String>())
}
