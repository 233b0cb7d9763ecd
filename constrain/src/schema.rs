//! A JSON schema as the library is to take it: bounded where it has no bounds, narrower where validators are.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::{Refusal, pattern, subschemas::children};

/// White space between two parts of a JSON text, a new line with its indentation at most: small models would else fill their
/// context with it.
const WHITESPACE: &str = r"\x20{1,2}|\r?\n(\x20{0,32}|\t{0,16})";
/// Letters behind a backslash. Without `u` every name has one spelling, and none that is taken comes again in another.
const ESCAPES: &str = r#"nrbtf\""#;
/// An automaton that divides has about as many states as its divisor.
const MAX_DIVISOR: u64 = 10_000;

const LEAP_DAYS: &str = "^(....-(0[13-9]|1[0-2])|....-02-([01].|2[0-8])|(..(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)";
/// What validators ask of a format that the library does not: leap days in leap years, no leap seconds, a dot in a mail's
/// domain, something behind an address's scheme.
const NARROWER: [(&str, &[&str]); 5] = [
    ("date", &[LEAP_DAYS]),
    ("date-time", &[LEAP_DAYS, "^.{10}[tT]..:..:[0-5]"]),
    ("time", &["^..:..:[0-5]"]),
    ("email", &[r"@[a-zA-Z0-9-]+\."]),
    ("uri", &["^[^:]+:/{0,2}[a-zA-Z0-9]"]),
];

pub fn read(text: &str) -> Result<Value, Refusal> {
    match serde_json::from_str(text) {
        Ok(schema) => prepared(schema),
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            Err(Refusal { place, reason: error.to_string() })
        }
    }
}

pub fn prepared(schema: Value) -> Result<Value, Refusal> {
    let mut schema = match schema {
        Value::Object(schema) => Value::Object(schema),
        Value::Bool(true) => Value::Object(Map::new()),
        _ => return Err(Refusal { place: "#".to_owned(), reason: "a schema is an object, or true".to_owned() }),
    };
    prepare(&mut schema, "#", &mut 1)?;
    let options = schema.as_object_mut().expect("made above").entry("x-guidance").or_insert_with(|| json!({}));
    if let Value::Object(options) = options {
        options.entry("json_allowed_escapes").or_insert_with(|| ESCAPES.into());
        if options.get("whitespace_flexible") != Some(&Value::Bool(false)) {
            options.entry("whitespace_pattern").or_insert_with(|| WHITESPACE.into());
        }
    }
    Ok(schema)
}

/// `divisor` is what all divisors so far divide: schemas that are to hold together multiply theirs.
fn prepare(schema: &mut Value, place: &str, divisor: &mut u64) -> Result<(), Refusal> {
    for (key, child) in children(schema) {
        prepare(child, &format!("{place}/{key}"), divisor)?;
    }
    let Value::Object(schema) = schema else { return Ok(()) };
    let refused = |reason| Refusal { place: place.to_owned(), reason };
    if let Some(step) = schema.get("multipleOf").and_then(Value::as_f64) {
        *divisor = common_multiple(*divisor, digits(step));
        if *divisor > MAX_DIVISOR {
            return Err(refused(format!(
                "multipleOf {step}: divisors whose common multiple has digits above {MAX_DIVISOR}"
            )));
        }
    }
    check_patterns(schema).map_err(refused)?;
    check_count(schema).map_err(refused)?;
    let format = schema.get("format").and_then(Value::as_str);
    if let Some((_, patterns)) = NARROWER.iter().find(|(name, _)| Some(*name) == format)
        && let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([]))
    {
        all.extend(patterns.iter().map(|pattern| json!({ "pattern": pattern })));
    }
    Ok(())
}

fn check_patterns(schema: &Map<String, Value>) -> Result<(), String> {
    let rust = |key, pattern: &str| {
        pattern::translate(pattern, "u").map_err(|Refusal { place, reason }| format!("{key}, {place}: {reason}"))
    };
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        rust("pattern", pattern)?;
    }
    let mut seen = HashSet::new();
    for pattern in schema.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        if !seen.insert(rust("patternProperties", pattern)?) {
            return Err(format!("patternProperties: {pattern} means the same as another of the patterns"));
        }
    }
    Ok(())
}

/// A name that is required is written once, and so is one name beside those. Of more, two may be the same.
fn check_count(schema: &Map<String, Value>) -> Result<(), String> {
    let required: HashSet<_> = schema.get("required").and_then(Value::as_array).into_iter().flatten().collect();
    let most = required.len() as u64 + 1;
    match schema.get("minProperties").and_then(Value::as_u64) {
        Some(least) if least > most => {
            Err(format!("minProperties {least}: at most one more than `required` names ({most} here) can be kept to"))
        }
        _ => Ok(()),
    }
}

/// A prepared schema with its patterns in the library's syntax.
pub fn translated(mut schema: Value) -> Value {
    translate(&mut schema);
    schema
}

fn translate(schema: &mut Value) {
    for (_, child) in children(schema) {
        translate(child);
    }
    let rust = |pattern: &str| pattern::translate(pattern, "u").expect("checked when the schema was prepared");
    if let Some(Value::String(pattern)) = schema.get_mut("pattern") {
        *pattern = rust(pattern);
    }
    if let Some(Value::Object(named)) = schema.get_mut("patternProperties") {
        *named = std::mem::take(named).into_iter().map(|(pattern, child)| (rust(&pattern), child)).collect();
    }
}

/// The digits of a number as a whole number: 25 for 2.5.
fn digits(number: f64) -> u64 {
    number.abs().to_string().replace('.', "").parse().unwrap_or(u64::MAX).max(1)
}

fn common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}
