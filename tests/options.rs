//! The engine's options and samplers against the option table of the package, which `pkg/scripts/reference.mjs` writes as JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use ternlight::model::Options;
use ternlight::sampling::{Lists, Params, RANGES, flat};

fn table() -> Value {
    serde_json::from_str(include_str!("options.json")).expect("the table is JSON")
}

fn rows(table: &Value, to: &str) -> Map<String, Value> {
    table[to].as_object().expect("options by name").clone()
}

/// `maxBatchTokens` as Rust spells it.
fn snake(name: &str) -> String {
    name.chars().flat_map(|c| if c.is_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] }).collect()
}

/// Names and values of a struct's fields, as its derived `Debug` prints them.
fn fields(value: &dyn std::fmt::Debug) -> BTreeMap<String, String> {
    let text = format!("{value:?}");
    let (_, inside) = text.split_once(" { ").expect("a struct");
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut depth = 0;
    let mut field = String::new();
    for c in inside.strip_suffix(" }").expect("its end").chars().chain([',']) {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        if c == ',' && depth == 0 {
            let (name, value) = field.split_once(": ").expect("a field");
            fields.insert(name.trim().to_owned(), value.to_owned());
            field.clear();
        } else {
            field.push(c);
        }
    }
    fields
}

/// Whether a value leaves the choice to the engine, or everything as it is.
fn leaves(value: &str) -> bool {
    value == "auto" || value == "stored"
}

/// A default of the table as `Debug` prints it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::String(text) if leaves(text) => "None".to_owned(),
        Value::String(text) if text == "2-bit" => "Some(TwoBits)".to_owned(),
        Value::String(text) => text[..1].to_uppercase() + &text[1..],
        other => other.to_string(),
    }
}

fn range(kind: &Value) -> Option<(f64, f64)> {
    let range = kind.get("number").or(kind.get("integer"))?;
    Some((range[0].as_f64()?, range[1].as_f64()?))
}

#[test]
fn the_options_of_a_load_have_the_tables_names_and_defaults() {
    let expected: BTreeMap<String, String> =
        rows(&table(), "plan").iter().map(|(name, row)| (snake(name), shown(&row["default"]))).collect();
    let mut found = fields(&Options::default());
    // Which layers an instance has of a model that is split is no choice of the caller's.
    for own in ["first_layer", "end_layer"] {
        assert!(found.remove(own).is_some(), "{own}");
    }
    assert_eq!(found, expected);
}

#[test]
fn the_options_of_a_load_are_read_under_the_tables_names() {
    for (name, row) in rows(&table(), "plan") {
        let values: Vec<Value> = match &row["kind"] {
            Value::String(kind) if kind == "boolean" => vec![json!(true), json!(false)],
            kind => match range(kind) {
                Some((least, most)) => vec![json!(least as u64), json!(most as u64)],
                None => kind["values"].as_array().expect("values").clone(),
            },
        };
        for value in values {
            let options: Options = serde_json::from_value(json!({ name.as_str(): value.clone() })).unwrap();
            let found = &fields(&options)[&snake(&name)];
            let leaves = value.as_str().is_some_and(leaves);
            assert_eq!(found == "None", leaves, "{name}: {value} is {found}");
        }
        if row["kind"]["values"].is_array() {
            assert!(serde_json::from_value::<Options>(json!({ name.as_str(): "other" })).is_err(), "{name}");
        }
    }
    assert!(serde_json::from_value::<Options>(json!({ "batch": 4 })).is_err());
}

#[test]
fn ranges_are_those_of_the_table() {
    let table = table();
    let plan = rows(&table, "plan");
    for (name, least, most) in Options::RANGES {
        assert_eq!(range(&plan[name]["kind"]), Some((least as f64, most as f64)), "{name}");
    }
    let sampler = rows(&table, "sampler");
    let numbers: Vec<&str> =
        names(&table).into_iter().filter(|name| !sampler[*name]["kind"]["number"].is_null()).collect();
    assert_eq!(RANGES.map(|(name, ..)| name).to_vec(), numbers);
    for (name, least, most) in RANGES {
        let expected = range(&sampler[name]["kind"]).map(|(least, most)| (least as f32, most as f32));
        assert_eq!(Some((least, most)), expected, "{name}");
    }
}

/// The sampler's numbers in the order in which they cross.
fn names(table: &Value) -> Vec<&str> {
    table["samplerNumbers"].as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

#[test]
fn samplers_have_the_tables_names_and_defaults() {
    let table = table();
    let sampler = rows(&table, "sampler");
    let numbers = names(&table);
    let mut found = fields(&Params::default());
    // The host draws one where the caller gives none.
    assert_eq!(found.remove("seed").as_deref(), Some("0"));
    assert_eq!(found.len(), numbers.len());
    for name in &numbers {
        let (value, expected) = (&found[&snake(name)], shown(&sampler[*name]["default"]));
        let same = value == &expected || value.parse::<f64>().ok() == Some(expected.parse().unwrap_or(f64::NAN));
        assert!(same, "{name}: {value} and {expected}");
    }
    let lists: Vec<String> =
        sampler.keys().filter(|name| !numbers.contains(&name.as_str())).map(|name| snake(name)).collect();
    let found: Vec<String> = fields(&Lists::default()).into_keys().collect();
    assert_eq!(found, lists.into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>());
}

#[test]
fn the_flat_list_is_read_in_the_tables_order() {
    let table = table();
    let numbers = names(&table);
    let before = fields(&flat::decode(&vec![f64::NAN; numbers.len()]).0);
    assert_eq!(before, fields(&Params::default()), "NaN is a default");
    for (at, name) in numbers.iter().enumerate() {
        let mut list = vec![f64::NAN; numbers.len()];
        // No default is 7, and as a switch it is true, which some are by default.
        let on = before[&snake(name)] == "true";
        list[at] = if on { 0.0 } else { 7.0 };
        let after = fields(&flat::decode(&list).0);
        let changed: Vec<(&String, &String)> =
            after.iter().filter(|(field, value)| before[*field] != **value).collect();
        let [(field, value)] = changed[..] else { panic!("{name}: {changed:?}") };
        assert_eq!(field, &snake(name));
        let changed = if on { value == "false" } else { ["7", "7.0", "Some(7)", "true"].contains(&value.as_str()) };
        assert!(changed, "{name}: {value}");
    }
    let mut list = vec![f64::NAN; numbers.len()];
    list.extend([1.0, 2.0, 1.0, 5.0, -1.5, 1.0, 2.0, 8.0, 9.0, 1.0, 4.0, 2.0, 8.0, 0.0]);
    let (params, lists) = flat::decode(&list);
    assert_eq!(params.seed, (1 << 32) + 2);
    assert_eq!(
        (lists.logit_bias, lists.banned_sequences, lists.dry_breakers),
        (vec![(5, -1.5)], vec![vec![8, 9]], vec![4])
    );
    assert_eq!(format!("{:?}", lists.samplers), "[Temperature, Penalties]");
}
