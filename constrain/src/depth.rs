//! How deep the library has to go to compile a grammar or a schema. It follows references by calls of functions, and its stack holds
//! about 700 of them, so what goes deeper is refused before it begins.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::{Refusal, subschemas};

/// Definitions and groups that may lie within one another. Published grammars and schemas have less than 30.
const MAX_DEPTH: usize = 250;

fn too_deep(place: String) -> Refusal {
    Refusal { place, reason: format!("its definitions lead to others more than {MAX_DEPTH} deep") }
}

/// Follows the rules of a grammar from `start` as the compiler does: in their order, each one once.
pub fn check_grammar(text: &str) -> Result<(), Refusal> {
    let rules = references(text);
    let mut seen = HashSet::from(["start"]);
    // Rules on the way, with the references of each that are still to follow, and its depth.
    let mut path = vec![(rules.get("start").map_or(&[][..], Vec::as_slice), 1)];
    while let Some((rest, depth)) = path.last_mut() {
        let (&[(name, groups), ref after @ ..], depth) = (*rest, *depth) else {
            path.pop();
            continue;
        };
        *rest = after;
        if !seen.insert(name) {
            continue;
        }
        if let Some(within) = rules.get(name) {
            if depth + groups + 1 > MAX_DEPTH {
                return Err(too_deep(String::new()));
            }
            path.push((within, depth + groups + 1));
        }
    }
    Ok(())
}

/// The names that each rule of a grammar holds, with the groups around each.
fn references(text: &str) -> HashMap<&str, Vec<(&str, usize)>> {
    let mut rules: HashMap<&str, Vec<(&str, usize)>> = HashMap::new();
    let mut current = "";
    let mut groups: usize = 0;
    let mut begins = true;
    let bytes = text.as_bytes();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' || byte >= 0x80;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => begins = true,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len() - at);
                continue;
            }
            quote @ (b'"' | b'/') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote && bytes[at] != b'\n' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'(' | b'[' | b'{' => groups += 1,
            b')' | b']' | b'}' => groups = groups.saturating_sub(1),
            byte if is_name(byte) => {
                let end = at + bytes[at..].iter().position(|&byte| !is_name(byte)).unwrap_or(bytes.len() - at);
                let name = &text[at..end];
                let follows = text[end..].trim_start_matches([' ', '\t']).bytes().next();
                if begins && matches!(follows, Some(b':' | b'[' | b'{' | b'.')) {
                    (current, groups) = (name, 0);
                    rules.entry(name).or_default();
                } else {
                    rules.entry(current).or_default().push((name, groups));
                }
                begins = false;
                at = end;
                continue;
            }
            b' ' | b'\t' | b'\r' | b'?' | b'!' => {}
            _ => begins = false,
        }
        at += 1;
    }
    rules
}

/// Follows a schema and what it refers to, each of that once.
pub fn check_schema(root: &Value) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    visit(root, root, 1, &mut seen, "#")
}

fn visit<'a>(
    root: &'a Value,
    part: &'a Value,
    depth: usize,
    seen: &mut HashSet<&'a str>,
    place: &str,
) -> Result<(), Refusal> {
    if depth > MAX_DEPTH {
        return Err(too_deep(place.to_owned()));
    }
    if let Some(reference) = part.get("$ref").and_then(Value::as_str)
        && seen.insert(reference)
        && let Some(target) = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer))
    {
        visit(root, target, depth + 1, seen, reference)?;
    }
    // A list of schemas is no level of its own.
    let inner = depth + usize::from(!part.is_array());
    for child in subschemas::all(part) {
        visit(root, child, inner, seen, place)?;
    }
    Ok(())
}
