//! The rooms of `src/` and what each may touch: the arrows of `src/lib.rs`, checked. A room knows only rooms before it.

use std::path::Path;

/// Every room, from the ground up, with the rooms that it may name; `error` and `bytes` are everybody's.
const ROOMS: [(&str, &[&str]); 15] = [
    ("error", &[]),
    ("bytes", &[]),
    ("rng", &[]),
    ("observe", &[]),
    ("team", &[]),
    ("quant", &[]),
    ("formats", &["quant"]),
    ("kernels", &["quant", "team"]),
    ("bench", &["kernels", "team"]),
    ("kv", &["kernels", "team"]),
    ("model", &["quant", "formats", "kernels", "kv", "observe", "team"]),
    ("sampling", &["rng"]),
    ("engine", &["kernels", "kv", "model", "observe", "sampling", "team"]),
    ("convert", &["quant", "kernels", "model"]),
    (
        "web",
        &["quant", "formats", "kernels", "bench", "kv", "model", "observe", "sampling", "engine", "convert", "team"],
    ),
];
const EVERYBODYS: [&str; 2] = ["error", "bytes"];

/// Loads and stores of vectors, and threads.
const UNSAFE: [&str; 4] = ["src/kernels/isa/simd128.rs", "src/team/buffers.rs", "src/team/mod.rs", "src/team/wait.rs"];
/// How many lines above an `unsafe` its reason may begin.
const REASON: usize = 4;

const LINES: usize = 600;

/// Left behind by somebody at work; and a library has no terminal.
const FORBIDDEN: [&str; 7] = ["todo!", "unimplemented!", "dbg!", "println!", "eprintln!", "print!", "eprint!"];
/// The edge to JavaScript is one room's.
const EDGE: [&str; 3] = ["wasm_bindgen::", "js_sys::", "web_sys::"];

/// What is wrong with a file.
fn complaints(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut complain = |line: usize, what: String| found.push(format!("{path}:{}: {what}", line + 1));
    let room = path.trim_start_matches("src/").split(['/', '.']).next().expect("a first part");
    let tests = ["tests.rs", "suite.rs"].iter().any(|name| path.ends_with(name));
    // Steps of `super` that lead out of the room; a room of one file may have modules within.
    let depth = path.matches('/').count().max(2) - usize::from(path.ends_with("mod.rs"));
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > LINES && !tests {
        complain(lines.len(), format!("more than {LINES} lines: split it"));
    }
    // Tests may reach for anything.
    let end = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests {"));
    let code = &lines[..if tests { 0 } else { end.unwrap_or(lines.len()) }];
    let allowed = ROOMS.iter().find(|(name, _)| *name == room).map(|(_, allowed)| *allowed);
    if allowed.is_none() && room != "lib" {
        complain(0, format!("{room} is no room of this house: give it its arrows in {}", file!()));
    }
    for (number, line) in code.iter().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
        for other in named(line) {
            let fine = other == room || EVERYBODYS.contains(&other) || allowed.is_some_and(|all| all.contains(&other));
            if ROOMS.iter().any(|(name, _)| *name == other) && !fine {
                complain(number, format!("{room} knows nothing of {other}"));
            }
        }
        if line.contains("crate::{") || line.matches("super::").count() >= depth {
            complain(number, "rooms are named one by one, from crate::".to_owned());
        }
        if line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe") {
            if !UNSAFE.contains(&path) {
                complain(number, "unsafe code lives elsewhere".to_owned());
            }
            let above = &lines[number.saturating_sub(REASON)..number];
            if !above.iter().any(|line| line.trim_start().starts_with("// SAFETY:")) {
                complain(number, "no SAFETY: above it".to_owned());
            }
        }
        for word in
            FORBIDDEN.iter().filter(|word| line.split(|c: char| !c.is_alphanumeric() && c != '!').any(|w| w == **word))
        {
            complain(number, format!("{word} has no place here"));
        }
        if room != "web" && EDGE.iter().any(|edge| line.contains(edge)) {
            complain(number, "JavaScript is for web".to_owned());
        }
    }
    found
}

/// The rooms that a line names.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

fn sources(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let path = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap();
            found.push(path.components().map(|part| part.as_os_str().to_str().unwrap()).collect::<Vec<_>>().join("/"));
        }
    }
}

#[test]
fn every_room_keeps_to_its_arrows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    sources(&root.join("src"), &mut paths);
    for (room, _) in ROOMS {
        assert!(paths.iter().any(|path| path.starts_with(&format!("src/{room}"))), "{room} is gone: so are its arrows");
    }
    let found: Vec<String> =
        paths.iter().flat_map(|path| complaints(path, &std::fs::read_to_string(root.join(path)).unwrap())).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn arrows_rise_from_the_ground() {
    for (index, (room, allowed)) in ROOMS.iter().enumerate() {
        for other in *allowed {
            assert!(ROOMS[..index].iter().any(|(name, _)| name == other), "{room} comes before {other}");
        }
    }
}

/// Every rule is seen to bite.
#[test]
fn complaints_are_made() {
    let long = "\n".repeat(LINES + 1);
    let told = "// SAFETY: because.\nunsafe { go() }";
    for (path, text, what) in [
        ("src/kernels/act.rs", "use crate::model::Model;", Some("kernels knows nothing of model")),
        ("src/engine/mod.rs", "    crate::web::thrown(error)", Some("engine knows nothing of web")),
        ("src/quant/mod.rs", "use crate::formats::Tensor;", Some("quant knows nothing of formats")),
        ("src/model/mod.rs", "use crate::{engine, error};", Some("one by one")),
        ("src/kernels/act.rs", "use super::super::model::Model;", Some("one by one")),
        ("src/text/mod.rs", "", Some("no room of this house")),
        ("src/quant/mod.rs", told, Some("lives elsewhere")),
        ("src/team/mod.rs", "unsafe { go() }", Some("no SAFETY")),
        ("src/kv/mod.rs", &long, Some("more than")),
        ("src/kv/mod.rs", "    println!(\"{x}\");", Some("println! has no place")),
        ("src/kv/mod.rs", "    todo!()", Some("todo! has no place")),
        ("src/kv/mod.rs", "use wasm_bindgen::prelude::*;", Some("for web")),
        ("src/team/mod.rs", told, None),
        ("src/engine/mod.rs", "use crate::model::{Model, Plan};", None),
        ("src/kernels/act.rs", "// see crate::model", None),
        ("src/kernels/act.rs", "#[cfg(test)]\nmod tests {\n    use crate::rng::Rng;", None),
        ("src/kernels/packed/ints.rs", "use super::super::isa::Isa;", None),
    ] {
        let found = complaints(path, text);
        match what {
            Some(what) => assert!(found.len() == 1 && found[0].contains(what), "{path} {text:?}: {found:?}"),
            None => assert!(found.is_empty(), "{path} {text:?}: {found:?}"),
        }
    }
}
