//! The source layout, checked: which module of `src/` may use which, in the order of `src/lib.rs`; what the crates built on it may
//! use; where unsafe code and JavaScript may be; how long files and functions may be.

use std::path::Path;

/// Every module of the crate, from the ground up, with the modules that it may name; `error` and `bytes` are everybody's.
const MODULES: [(&str, &[&str]); 15] = [
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
    ("model", &["quant", "formats", "kernels", "bench", "kv", "observe", "team"]),
    ("sampling", &["rng"]),
    ("engine", &["kernels", "kv", "model", "observe", "sampling", "team"]),
    ("bindings", &["quant", "formats", "model", "team"]),
    (
        "web",
        &["quant", "formats", "kernels", "bench", "kv", "model", "observe", "sampling", "engine", "bindings", "team"],
    ),
];
/// What the converter, a crate of its own, may name of this one.
const CONVERT: [&str; 4] = ["formats", "kernels", "model", "quant"];
const CONVERT_EDGE: [&str; 5] = ["bindings", "formats", "kernels", "model", "quant"];
const EVERYBODYS: [&str; 2] = ["error", "bytes"];

/// Loads and stores of vectors, and threads.
const UNSAFE: [&str; 4] = ["src/kernels/isa/simd128.rs", "src/team/buffers.rs", "src/team/mod.rs", "src/team/wait.rs"];
/// How many lines above an `unsafe` its reason may begin.
const REASON: usize = 4;

/// Lines of a file and of a function, unless its doc comment says why it exceeds them.
const FILE_LINES: usize = 450;
const FUNCTION_LINES: usize = 60;
const LONG: &str = "exceed";

/// Left behind by somebody at work; and a library has no terminal.
const FORBIDDEN: [&str; 7] = ["todo!", "unimplemented!", "dbg!", "println!", "eprintln!", "print!", "eprint!"];
/// Names of the edge to JavaScript.
const EDGE: [&str; 3] = ["wasm_bindgen::", "js_sys::", "web_sys::"];

/// What is wrong with a file of `src/` or `convert/src/`.
fn complaints(path: &str, text: &str) -> Vec<String> {
    let mut found = long_parts(path, text);
    let mut complain = |line: usize, what: String| found.push(format!("{path}:{}: {what}", line + 1));
    let lines: Vec<&str> = text.lines().collect();
    // Tests may use anything.
    let tests = ["tests.rs", "suite.rs"].iter().any(|name| path.ends_with(name));
    let end = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests {"));
    let code = &lines[..if tests { 0 } else { end.unwrap_or(lines.len()) }];
    let place = Place::of(path);
    if place.allowed.is_none() {
        complain(0, format!("{} is an unknown module: add its arrows to {}", place.module, file!()));
    }
    for (number, line) in code.iter().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
        for other in named(line, place.krate).filter(|other| !place.may_name(other)) {
            complain(number, format!("{} may not use {other}", place.module));
        }
        if line.contains("crate::{") || line.matches("super::").count() >= place.depth {
            complain(number, "modules are named one by one, from crate::".to_owned());
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
        if !place.edge && EDGE.iter().any(|edge| line.contains(edge)) {
            complain(number, "JavaScript is for bindings and web".to_owned());
        }
    }
    found
}

/// Where a file stands.
struct Place<'a> {
    /// How it names modules of this crate.
    krate: &'static str,
    module: &'a str,
    /// What it may name; `None` for a module that is not in the list.
    allowed: Option<&'a [&'a str]>,
    /// Whether it is at the edge to JavaScript.
    edge: bool,
    /// Steps of `super` that lead out of the module; a module of one file may have others within.
    depth: usize,
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Self {
        let depth = path.matches('/').count().max(2) - usize::from(path.ends_with("mod.rs"));
        if let Some(file) = path.strip_prefix("convert/src/") {
            let edge = file == "web.rs";
            let allowed = if edge { &CONVERT_EDGE[..] } else { &CONVERT[..] };
            return Self { krate: "ternlight::", module: "convert", allowed: Some(allowed), edge, depth };
        }
        let module = path.trim_start_matches("src/").split(['/', '.']).next().expect("a first part");
        let known = MODULES.iter().find(|(name, _)| *name == module).map(|(_, allowed)| *allowed);
        let allowed = if module == "lib" { Some(&[][..]) } else { known };
        Self { krate: "crate::", module, allowed, edge: ["bindings", "web"].contains(&module), depth }
    }

    fn may_name(&self, other: &str) -> bool {
        other == self.module
            || EVERYBODYS.contains(&other)
            || !MODULES.iter().any(|(name, _)| *name == other)
            || self.allowed.is_some_and(|allowed| allowed.contains(&other))
    }
}

/// Whether the doc comment that ends above a line gives the reason for a length.
fn explained(lines: &[&str], number: usize) -> bool {
    let above = lines[..number].iter().rev().map(|line| line.trim_start());
    let mut comment = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    comment.any(|line| line.contains(LONG))
}

/// A file that is too long, and its functions that are.
fn long_parts(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let head = lines.iter().take_while(|line| line.starts_with("//!")).count();
    let mut found = Vec::new();
    if lines.len() > FILE_LINES && !lines[..head].iter().any(|line| line.contains(LONG)) {
        found.push(format!(
            "{path}: more than {FILE_LINES} lines: split it, or give the reason in its first comment (a sentence with \"{LONG}\")"
        ));
    }
    for (number, line) in lines.iter().enumerate() {
        let Some((name, indent)) = function(line) else { continue };
        let opens = lines[number..].iter().find(|line| line.ends_with(['{', '}', ';']));
        if opens.is_none_or(|line| !line.ends_with('{')) {
            // A declaration, or a body on one line.
            continue;
        }
        // Formatted code closes a function in the column where it begins.
        let end = lines[number..].iter().position(|line| line.trim_end() == format!("{indent}}}"));
        let length = end.map_or(0, |end| end + 1);
        if length > FUNCTION_LINES && !explained(&lines, number) {
            let line = number + 1;
            found.push(format!(
                "{path}:{line}: {name} has {length} lines, more than {FUNCTION_LINES}: split it, or say above it why it {LONG}s them"
            ));
        }
    }
    found
}

/// The name and the indentation of a function that begins on this line.
fn function(line: &str) -> Option<(&str, &str)> {
    let code = line.trim_start();
    let indent = &line[..line.len() - code.len()];
    let mut words = code.split_whitespace();
    let qualifiers = ["pub", "pub(super)", "pub(crate)", "const", "unsafe", "async"];
    let word = words.find(|word| !qualifiers.contains(word))?;
    let name = words.next()?.split(['(', '<']).next()?;
    (word == "fn").then_some((name, indent))
}

/// The modules that a line names after `krate`.
fn named<'a>(line: &'a str, krate: &'static str) -> impl Iterator<Item = &'a str> {
    line.split(krate).skip(1).map(|rest| {
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
fn every_module_keeps_to_its_arrows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    sources(&root.join("src"), &mut paths);
    for (module, _) in MODULES {
        assert!(
            paths.iter().any(|path| path.starts_with(&format!("src/{module}"))),
            "{module} is gone: so are its arrows"
        );
    }
    sources(&root.join("convert/src"), &mut paths);
    let found: Vec<String> =
        paths.iter().flat_map(|path| complaints(path, &std::fs::read_to_string(root.join(path)).unwrap())).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn arrows_rise_from_the_ground() {
    for (index, (module, allowed)) in MODULES.iter().enumerate() {
        for other in *allowed {
            assert!(MODULES[..index].iter().any(|(name, _)| name == other), "{module} comes before {other}");
        }
    }
}

/// Every rule is seen to bite.
#[test]
fn complaints_are_made() {
    let long = "\n".repeat(FILE_LINES + 1);
    let explained = format!("//! Layouts.\n//! It {LONG}s 450 lines because of this.\n{long}");
    let function = format!("    fn go(\n    ) {{\n{}    }}\n", "        x;\n".repeat(FUNCTION_LINES - 2));
    let function_explained = format!("    /// It {LONG}s 60 lines because of that.\n    #[inline]\n{function}");
    let safe = "// SAFETY: because.\nunsafe { go() }";
    for (path, text, what) in [
        ("src/kernels/act.rs", "use crate::model::Model;", Some("kernels may not use model")),
        ("src/engine/mod.rs", "    crate::web::thrown(error)", Some("engine may not use web")),
        ("src/quant/mod.rs", "use crate::formats::Tensor;", Some("quant may not use formats")),
        ("src/bindings/mod.rs", "use crate::engine::Engine;", Some("bindings may not use engine")),
        ("convert/src/rows.rs", "use ternlight::engine::Engine;", Some("convert may not use engine")),
        ("convert/src/rows.rs", "use ternlight::bindings::Js;", Some("convert may not use bindings")),
        ("src/model/mod.rs", "use crate::{engine, error};", Some("one by one")),
        ("src/kernels/act.rs", "use super::super::model::Model;", Some("one by one")),
        ("src/text/mod.rs", "", Some("unknown module")),
        ("src/quant/mod.rs", safe, Some("lives elsewhere")),
        ("convert/src/lib.rs", safe, Some("lives elsewhere")),
        ("src/team/mod.rs", "unsafe { go() }", Some("no SAFETY")),
        ("src/kv/mod.rs", &long, Some("more than")),
        ("src/kv/tests.rs", &long, Some("more than")),
        ("src/kv/mod.rs", &function, Some("go has 61 lines")),
        ("src/kv/mod.rs", "    println!(\"{x}\");", Some("println! has no place")),
        ("src/kv/mod.rs", "    todo!()", Some("todo! has no place")),
        ("src/kv/mod.rs", "use wasm_bindgen::prelude::*;", Some("for bindings and web")),
        ("convert/src/lib.rs", "use js_sys::Array;", Some("for bindings and web")),
        ("src/team/mod.rs", safe, None),
        ("src/kv/mod.rs", &explained, None),
        ("src/kv/mod.rs", &function_explained, None),
        ("src/engine/mod.rs", "use crate::model::{Model, Plan};", None),
        ("convert/src/web.rs", "use ternlight::bindings::Js;\nuse js_sys::Array;", None),
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
