//! Regular expressions of ECMAScript in the library's syntax, which is Rust's: most of it looks alike and means something else.
//!
//! A text matches or does not, so groups need no names and repetition no greed. With the flag `u` a character is a code point; without
//! it, a UTF-16 unit. What only the older syntax allows (`a{,3}`, `\-`) is read with `u`, too.

use crate::characters::{
    self, ALL, DIGITS, HALVES, LINE_ENDS, Ranges, SPACE, WORD, WORD_FOLDED, common, complement, escaped, folded,
    other_case,
};
use crate::{Refusal, place::position};

/// Groups within one another: the library parses them by calls.
const MAX_GROUPS: usize = 200;

#[derive(Clone, Copy)]
struct Flags {
    ignore_case: bool,
    dot_all: bool,
    unicode: bool,
}

enum Member {
    One(u32),
    Set(Ranges),
}

struct Translator {
    chars: Vec<char>,
    at: usize,
    out: String,
    flags: Flags,
    /// Where the open groups begin, and the flags around them.
    groups: Vec<(usize, Flags)>,
}

/// Translates what a `RegExp` writes as: `/source/flags`.
pub fn of_literal(text: &str) -> Result<String, Refusal> {
    let (source, flags) = text.strip_prefix('/').and_then(|text| text.rsplit_once('/')).unwrap_or((text, "u"));
    translate(source, flags)
}

/// At the ends of a text `m` changes nothing, and the library refuses anchors elsewhere; `d`, `g` and `y` are about what follows a match.
pub fn translate(source: &str, flags: &str) -> Result<String, Refusal> {
    if let Some(flag) = flags.chars().find(|&flag| !"dgimsuy".contains(flag)) {
        return Err(Refusal { place: String::new(), reason: format!("the flag {flag} is not supported") });
    }
    let has = |flag| flags.contains(flag);
    let flags = Flags { ignore_case: has('i'), dot_all: has('s'), unicode: has('u') };
    let chars = source.chars().collect();
    let mut translator = Translator { chars, at: 0, out: String::new(), flags, groups: Vec::new() };
    translator.run()?;
    Ok(translator.out)
}

impl Translator {
    fn run(&mut self) -> Result<(), Refusal> {
        while let Some(c) = self.next() {
            let begin = self.at - 1;
            match c {
                '|' | '^' | '$' => {
                    self.out.push(c);
                    continue;
                }
                '(' => {
                    self.open(begin)?;
                    continue;
                }
                ')' => {
                    let Some((_, around)) = self.groups.pop() else { return self.refuse(begin, "unopened group") };
                    self.flags = around;
                    self.out.push(')');
                }
                '.' => {
                    let set = if self.flags.dot_all { vec![ALL] } else { complement(&LINE_ENDS) };
                    self.class(set, false)?;
                }
                '[' => self.bracket(begin)?,
                '\\' => match self.escape(false)? {
                    Member::One(code) => self.one(code, begin)?,
                    Member::Set(set) => self.class(set, false)?,
                },
                _ => {
                    self.at = begin;
                    if self.counts()?.is_some() {
                        return self.refuse(begin, "nothing to repeat");
                    }
                    self.at = begin + 1;
                    self.one(c.into(), begin)?;
                }
            }
            let from = self.at;
            if self.counts()?.is_some() {
                self.out.extend(&self.chars[from..self.at]);
                self.eat('?');
            }
        }
        let unclosed = self.groups.last().map(|&(begin, _)| begin);
        unclosed.map_or(Ok(()), |begin| self.refuse(begin, "unclosed group"))
    }

    /// A group from behind its parenthesis: it may have a name, or flags of its own.
    fn open(&mut self, begin: usize) -> Result<(), Refusal> {
        let around = self.flags;
        if self.eat('?') {
            let named = self.peek(0) == Some('<') && !matches!(self.peek(1), Some('=' | '!'));
            let end = if named { '>' } else { ':' };
            let mut on = true;
            while let Some(c) = self.next().filter(|&c| c != end) {
                match c {
                    _ if named => {}
                    '=' | '!' | '<' => return self.refuse(begin, "look-around is not supported"),
                    '-' => on = false,
                    'i' => self.flags.ignore_case = on,
                    's' => self.flags.dot_all = on,
                    'm' => return self.refuse(begin, "the flag m of a group is not supported"),
                    _ => return self.refuse(begin, "a group begins with (, (?: or (?<name>, or with flags (?i:"),
                }
            }
        }
        self.groups.push((begin, around));
        if self.groups.len() > MAX_GROUPS {
            return self.refuse(begin, &format!("groups are more than {MAX_GROUPS} deep"));
        }
        self.out.push_str("(?:");
        Ok(())
    }

    /// Goes past a quantifier, and answers what it counts. Braces that are none are characters.
    fn counts(&mut self) -> Result<Option<(u32, Option<u32>)>, Refusal> {
        let (begin, one) = (self.at, self.peek(0));
        self.at += 1;
        match one {
            Some('*') => return Ok(Some((0, None))),
            Some('+') => return Ok(Some((1, None))),
            Some('?') => return Ok(Some((0, Some(1)))),
            _ => {}
        }
        let rest = &self.chars[self.at.min(self.chars.len())..];
        let inner: String = rest.iter().take_while(|&&c| c.is_ascii_digit() || c == ',').collect();
        let (least, most) = inner.split_once(',').unwrap_or((&inner, &inner));
        if one != Some('{') || rest.get(inner.len()) != Some(&'}') || least.is_empty() || most.contains(',') {
            self.at = begin;
            return Ok(None);
        }
        let number = |digits: &str| digits.parse().map_or_else(|_| self.refuse(begin, "it counts too far"), Ok);
        let (least, most) = (number(least)?, if most.is_empty() { None } else { Some(number(most)?) });
        if most.is_some_and(|most| most < least) {
            return self.refuse(begin, "it counts from more to less");
        }
        self.at += inner.len() + 1;
        Ok(Some((least, most)))
    }

    /// A class from behind its bracket. Sets and other classes within it are characters, except for `\d` and the like.
    fn bracket(&mut self, begin: usize) -> Result<(), Refusal> {
        let negated = self.eat('^');
        let mut set = Vec::new();
        while self.peek(0) != Some(']') {
            let from = self.at;
            let first = self.member(begin)?;
            let mut members = vec![first];
            if self.peek(0) == Some('-') && self.peek(1).is_some_and(|c| c != ']') {
                self.at += 1;
                members.push(self.member(begin)?);
                if let [Member::One(first), Member::One(last)] = members[..] {
                    if first > last {
                        return self.refuse(from, "a range from more to less");
                    }
                    self.check(from, first, last)?;
                    set.push((first, last));
                    continue;
                }
                set.push((0x2D, 0x2D));
            }
            for member in members {
                match member {
                    Member::One(code) => {
                        self.check(from, code, code)?;
                        set.push((code, code));
                    }
                    Member::Set(ranges) => set.extend(ranges),
                }
            }
        }
        self.at += 1;
        self.class(set, negated)
    }

    fn member(&mut self, begin: usize) -> Result<Member, Refusal> {
        match self.next() {
            None => self.refuse(begin, "unclosed character class"),
            Some('\\') => self.escape(true),
            Some(c) => Ok(Member::One(c.into())),
        }
    }

    /// What stands behind a backslash.
    fn escape(&mut self, in_class: bool) -> Result<Member, Refusal> {
        let begin = self.at - 1;
        let unicode = self.flags.unicode;
        let Some(c) = self.next() else { return self.refuse(begin, "nothing behind the backslash") };
        let set = match c.to_ascii_lowercase() {
            'd' => DIGITS.to_vec(),
            's' => SPACE.to_vec(),
            'w' if unicode && self.flags.ignore_case => [&WORD[..], &WORD_FOLDED].concat(),
            'w' => WORD.to_vec(),
            _ => Vec::new(),
        };
        if !set.is_empty() {
            return Ok(Member::Set(if c.is_ascii_uppercase() { complement(&set) } else { set }));
        }
        Ok(Member::One(match c {
            'b' if in_class => 0x08,
            'b' | 'B' if !in_class => return self.refuse(begin, r"word boundaries (\b, \B) are not supported"),
            '0' if !self.peek(0).is_some_and(|c| c.is_ascii_digit()) => 0,
            '0'..='9' | 'k' => return self.refuse(begin, "back-references and octal escapes are not supported"),
            'f' => 0x0C,
            'n' => 0x0A,
            'r' => 0x0D,
            't' => 0x09,
            'v' => 0x0B,
            'c' if self.peek(0).is_some_and(|c| c.is_ascii_alphabetic()) => self.next().map_or(0, u32::from) % 32,
            'x' => self.hex(2).unwrap_or('x'.into()),
            'u' if unicode && self.peek(0) == Some('{') => {
                let digits = self.braced();
                match u32::from_str_radix(&digits, 16) {
                    Ok(code) if code <= ALL.1 => code,
                    _ => return self.refuse(begin, "no character has this number"),
                }
            }
            'u' => self.unit().unwrap_or('u'.into()),
            'p' | 'P' if unicode => return self.property(begin, c == 'P'),
            _ if c.is_ascii_alphanumeric() && (unicode || c == 'c') => {
                return self.refuse(begin, &format!("there is no escape \\{c}"));
            }
            _ => c.into(),
        }))
    }

    fn property(&mut self, begin: usize, negated: bool) -> Result<Member, Refusal> {
        let Some(set) = characters::property(&self.braced()) else {
            return self.refuse(begin, "there is no such property");
        };
        Ok(Member::Set(if negated { complement(&set) } else { set }))
    }

    /// What braces from here hold; they end with the pattern at the latest.
    fn braced(&mut self) -> String {
        let inner = self.chars[self.at..].iter().skip(1).take_while(|&&c| c != '}').collect::<String>();
        self.at = (self.at + inner.chars().count() + 2).min(self.chars.len());
        inner
    }

    /// Four digits, and four more where two halves make a character.
    fn unit(&mut self) -> Option<u32> {
        let high = self.hex(4)?;
        let behind = self.at;
        if (0xD800..0xDC00).contains(&high)
            && self.eat('\\')
            && self.eat('u')
            && let Some(low @ 0xDC00..0xE000) = self.hex(4)
        {
            return Some(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00));
        }
        self.at = behind;
        Some(high)
    }

    fn hex(&mut self, count: usize) -> Option<u32> {
        let digits = self.chars.get(self.at..self.at + count)?;
        let code = digits.iter().try_fold(0, |code, c| Some(code * 16 + c.to_digit(16)?))?;
        self.at += count;
        Some(code)
    }

    /// Writes a character that stands by itself.
    fn one(&mut self, code: u32, begin: usize) -> Result<(), Refusal> {
        let Flags { ignore_case, unicode, .. } = self.flags;
        let Some(c) = char::from_u32(code) else { return self.refuse(begin, "half of a character by itself") };
        if code > 0xFFFF && !unicode {
            if self.upcoming()?.is_some() {
                return self.refuse(begin, "a character beyond U+FFFF is repeated only with the flag u");
            }
        } else if ignore_case {
            self.check(begin, code, code)?;
            if unicode || c.is_ascii_alphabetic() {
                return self.class(vec![(code, code)], false);
            }
        }
        self.out.push_str(&escaped(code));
        Ok(())
    }

    /// Whether characters may be named where a set is meant. Without `u`, the flag `i` goes by upper case, which differs from the
    /// library's case folding beyond ASCII.
    fn check(&self, begin: usize, first: u32, last: u32) -> Result<(), Refusal> {
        let Flags { ignore_case, unicode, .. } = self.flags;
        if !unicode && last > 0xFFFF {
            return self.refuse(begin, "a class has characters beyond U+FFFF only with the flag u");
        }
        if !unicode && ignore_case && last > 0x7F && folded(&[(first, last)]) != [(first, last)] {
            return self.refuse(begin, "letters beyond ASCII have the flag i only with the flag u");
        }
        Ok(())
    }

    /// Writes a class. Surrogates are in none: a text has only whole characters.
    fn class(&mut self, mut set: Ranges, negated: bool) -> Result<(), Refusal> {
        let Flags { ignore_case, unicode, .. } = self.flags;
        if ignore_case {
            set.extend(if unicode { folded(&set) } else { other_case(&set) });
        }
        if negated {
            set = complement(&set);
        }
        if !unicode {
            // What lies beyond is two units: a class that has both halves matches it where it is repeated without a bound.
            let halves = common(&set, &[HALVES]) == [HALVES];
            set = common(&set, &[(0, 0xFFFF)]);
            if halves && matches!(self.upcoming()?, Some((0 | 1, None))) {
                set.push((0x1_0000, ALL.1));
            }
        }
        set = common(&set, &complement(&[HALVES]));
        self.out.push_str(&characters::class(&set));
        Ok(())
    }

    /// The quantifier of what has just been read.
    fn upcoming(&mut self) -> Result<Option<(u32, Option<u32>)>, Refusal> {
        let from = self.at;
        let counts = self.counts();
        self.at = from;
        counts
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek(0) == Some(c);
        self.at += usize::from(found);
        found
    }

    fn refuse<T>(&self, at: usize, reason: &str) -> Result<T, Refusal> {
        let before = &self.chars[..at];
        let column = before.iter().rev().take_while(|&&c| c != '\n').count() + 1;
        let line = before.iter().filter(|&&c| c == '\n').count() + 1;
        Err(Refusal { place: position(line, column), reason: reason.to_owned() })
    }
}
