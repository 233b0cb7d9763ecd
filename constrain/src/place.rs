//! Where a refused schema, pattern or grammar is wrong, in its author's terms.

use serde_json::{Map, Value};

use crate::{Refusal, subschemas::children};

/// Parts of a schema that are compiled at most, to find the one that is refused, and how much JSON they are together: a place is a
/// help, and none is worth the time that compiling a large schema over and over takes.
const MAX_TRIES: usize = 64;
const MAX_TRIED: usize = 16 << 10;

/// What the library says, without the source that it quotes and what it adds about itself.
pub fn plain(message: &str) -> String {
    let told = message.split("\n<").next().unwrap_or_default();
    let quoted = |line: &str| line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(" |");
    let lines = told.lines().take_while(|line| !quoted(line)).collect::<Vec<_>>().join("\n");
    // Of look-around, only this is left in a pattern that is translated.
    if let Some((before, look)) = lines.split_once("lookarounds not supported yet; ")
        && (look.starts_with("Start ") || look.starts_with("End "))
    {
        return format!("{before}^ and $ are only supported at the ends of a pattern");
    }
    // A pattern within: its own error quotes it too, and ends with the reason.
    let mut parts = lines.splitn(2, "regex parse error:");
    let (before, after) = (parts.next().unwrap_or_default(), parts.next());
    match after.and_then(|after| after.split_once("error: ")) {
        Some((_, reason)) => format!("{before}{}", reason.trim()),
        None => lines.trim().to_owned(),
    }
}

pub fn position(line: usize, column: usize) -> String {
    format!("line {line}, column {column}")
}

/// A grammar's errors begin with where they are: `2(5): …` or `at 2(5): …`.
pub fn in_grammar(message: String) -> Refusal {
    let message = message.trim_start_matches("at ").to_owned();
    let located = message.split_once("): ").and_then(|(at, reason)| {
        let (line, column) = at.split_once('(')?;
        Some((position(line.trim().parse().ok()?, column.parse().ok()?), reason.to_owned()))
    });
    let (place, reason) = located.unwrap_or((String::new(), message));
    Refusal { place, reason }
}

/// The innermost part that is refused alone for the same reason as the whole.
pub fn in_schema(root: Value, reason: String, refusal: impl Fn(Value) -> Option<String>) -> Refusal {
    let frame: Map<String, Value> = ["$schema", "$defs", "definitions", "x-guidance"]
        .iter()
        .filter_map(|&key| Some((key.to_owned(), root.get(key)?.clone())))
        .collect();
    let mut part = root;
    let mut place = "#".to_owned();
    let (mut tries, mut left) = (MAX_TRIES, MAX_TRIED.saturating_sub(length(&Value::Object(frame.clone())) * 4));
    let mut refused = |child: &Value| {
        let Value::Object(mut alone) = child.clone() else { return false };
        for (key, value) in &frame {
            alone.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let alone = Value::Object(alone);
        let size = length(&alone);
        if tries == 0 || size > left {
            return false;
        }
        (tries, left) = (tries - 1, left - size);
        refusal(alone).as_ref() == Some(&reason)
    };
    let mut inner = |part: &mut Value| {
        children(part).into_iter().find(|(_, child)| refused(child)).map(|(key, child)| (key, child.take()))
    };
    while let Some((key, child)) = inner(&mut part) {
        place = format!("{place}/{key}");
        part = child;
    }
    Refusal { place, reason }
}

/// About the bytes of a value as JSON.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(list) => list.iter().map(|item| length(item) + 1).sum::<usize>() + 2,
        Value::Object(object) => object.iter().map(|(key, item)| key.len() + length(item) + 4).sum::<usize>() + 2,
        _ => 5,
    }
}
