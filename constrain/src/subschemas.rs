//! The schemas within a JSON schema.

use serde_json::Value;

/// Schemas directly within a schema, by their pointers.
pub fn children(schema: &mut Value) -> Vec<(String, &mut Value)> {
    let mut found = Vec::new();
    for (key, value) in schema.as_object_mut().into_iter().flatten() {
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(named)) => {
                let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
                found.extend(named.iter_mut().map(|(name, child)| (format!("{key}/{}", escaped(name)), child)));
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(list)) => {
                found.extend(list.iter_mut().enumerate().map(|(index, child)| (format!("{key}/{index}"), child)));
            }
            // A reference may lead to any key.
            ("const" | "enum" | "default" | "examples" | "x-guidance", _) => {}
            (_, value @ Value::Object(_)) => found.push((key.clone(), value)),
            _ => {}
        }
    }
    found
}

/// All schemas directly within a schema, whatever key holds them: a value that is none is visited for nothing.
pub fn all(schema: &Value) -> impl Iterator<Item = &Value> {
    let lists = schema.as_array().into_iter().flatten();
    let named = schema.as_object().into_iter().flat_map(|object| {
        object
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "const" | "enum" | "default" | "examples"))
            .map(|(_, value)| value)
    });
    lists.chain(named)
}
