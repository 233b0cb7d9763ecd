use serde_json::Map;

use super::*;

const END: u32 = 261;

/// Single bytes, some longer tokens, and two that end.
fn vocabulary(ends: &[u32]) -> Vocabulary {
    let mut tokens: Vec<(Vec<u8>, bool)> = (0..=255).map(|byte| (vec![byte], false)).collect();
    for word in ["{\"", "\":", "true", "abc", "  "] {
        tokens.push((word.into(), false));
    }
    tokens.push((b"<|end|>".to_vec(), true));
    tokens.push((vec![b'x'; 2000], false));
    Vocabulary::new(tokens.iter().map(|(bytes, special)| (&bytes[..], *special)), ends)
}

fn refusal(format: Format) -> (String, String) {
    let Err(Refusal { place, reason }) = vocabulary(&[END]).constraint(format) else { panic!("{format:?} is taken") };
    (place, reason)
}

fn allowed(constraint: &mut Constraint) -> Vec<u32> {
    let mask = constraint.mask().expect("a mask");
    (0..mask.len() as u32 * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect()
}

/// Whether a text keeps to a format as a whole.
fn keeps(format: Format, text: &str) -> bool {
    let mut constraint = vocabulary(&[END]).constraint(format).expect("a format");
    text.bytes().all(|byte| {
        let may = allowed(&mut constraint).contains(&byte.into());
        may && constraint.accept(byte.into()).is_ok()
    }) && (constraint.done() || allowed(&mut constraint).contains(&END))
}

#[test]
fn a_mask_has_the_tokens_that_lead_on() {
    let vocabulary = vocabulary(&[END]);
    let mut constraint = vocabulary.constraint(Format::Regex("abc|[ab]x?")).expect("a pattern");
    assert_eq!(allowed(&mut constraint), [b'a'.into(), b'b'.into(), 259]);
    constraint.accept(u32::from(b'a')).expect("allowed");
    assert_eq!(allowed(&mut constraint), [b'b'.into(), b'x'.into(), END]);
    assert!(constraint.complete() && !constraint.done());
    assert!(constraint.clone_after(b'x').done());
    constraint.accept(u32::from(b'b')).expect("allowed");
    assert!(!constraint.complete());
    assert!(constraint.accept(u32::from(b'z')).is_err());
    assert!(constraint.mask().is_err() && !constraint.complete() && !constraint.done());
}

impl Constraint {
    fn clone_after(&self, byte: u8) -> Self {
        let mut other = Self { matcher: self.matcher.deep_clone(), ..*self };
        other.accept(byte.into()).expect("allowed");
        other
    }
}

#[test]
fn without_end_tokens_a_text_ends_where_nothing_may_follow() {
    let vocabulary = vocabulary(&[]);
    let mut constraint = vocabulary.constraint(Format::Regex("ab?")).expect("a pattern");
    constraint.accept(u32::from(b'a')).expect("allowed");
    assert_eq!(allowed(&mut constraint), [u32::from(b'b')]);
    constraint.accept(u32::from(b'b')).expect("allowed");
    assert!(constraint.done() && constraint.mask().expect("no error").is_empty());
    assert!(vocabulary.constraint(Format::Regex("")).expect("a pattern").mask().expect("no error").is_empty());
}

#[test]
fn the_whole_text_keeps_to_it() {
    assert!(keeps(Format::Regex("^a+$"), "aaa") && !keeps(Format::Regex("a+"), "aab"));
    assert!(keeps(Format::Regex(r"\d{2}/é"), "12/é") && !keeps(Format::Regex("(?i:ab)"), "a"));
    let grammar = "start: sum\nsum: NUMBER (\"+\" sum)?\nNUMBER: /[0-9]+/";
    assert!(keeps(Format::Grammar(grammar), "1+22+333") && !keeps(Format::Grammar(grammar), "1+"));
    assert!(keeps(Format::JsonSchema("true"), r#" {"a": [1, null]} "#.trim()));
    let schema = r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}"#;
    assert!(keeps(Format::JsonSchema(schema), r#"{ "a": 1 }"#) && !keeps(Format::JsonSchema(schema), r#"{"a":"1"}"#));
}

#[test]
fn a_grammar_calls_schemas() {
    let both = |schema: &str| {
        let grammar = r#"start: \"<\" @schema0 \">\" | @schema1"#;
        format!(r#"{{"grammar":"{grammar}","schemas":[{schema},{{"type":"boolean"}}]}}"#)
    };
    let text = both(r#"{"properties":{"d":{"format":"date"}},"required":["d"],"type":"object"}"#);
    assert!(keeps(Format::Both(&text), r#"<{ "d": "2024-02-29"}>"#) && keeps(Format::Both(&text), "true"));
    assert!(!keeps(Format::Both(&text), r#"<{"d": "2023-02-29"}>"#) && !keeps(Format::Both(&text), "<{\n\n"));
    let (place, reason) = refusal(Format::Both(&both(r#"{"items":{"not":{}}}"#)));
    assert_eq!(place, "schema 0, #/items", "{reason}");
}

#[test]
fn json_is_bounded_and_as_narrow_as_validators() {
    let any = Format::JsonSchema("{}");
    assert!(keeps(any, "[ 1,  2]") && !keeps(any, "[1,   2]"));
    assert!(keeps(any, "[\n    1\n]") && keeps(any, "[\r\n\t\t1]") && !keeps(any, "[\n\n1]"));
    let own = Format::JsonSchema(r#"{"x-guidance":{"whitespace_flexible":false}}"#);
    assert!(keeps(own, "[1]") && !keeps(own, "[ 1]"));
    for (format, right, wrong) in [
        ("date", "2024-02-29", "2023-02-29"),
        ("date", "2000-02-29", "1900-02-29"),
        ("date-time", "2026-11-30T23:59:59Z", "2026-11-30T23:59:60Z"),
        ("time", "00:00:00Z", "00:00:60Z"),
        ("email", "a.b@example.org", "a.b@localhost"),
        ("uri", "https://example.org/x?y#z", "https:"),
    ] {
        for nullable in [r#""string""#, r#"["string","null"]"#] {
            let schema = format!(r#"{{"type":{nullable},"format":"{format}"}}"#);
            let format = Format::JsonSchema(&schema);
            assert!(keeps(format, &format!("{right:?}")), "{schema} {right}");
            assert!(!keeps(format, &format!("{wrong:?}")), "{schema} {wrong}");
        }
    }
}

/// What ECMAScript and Rust take for different things, and neighbours of it. `|` divides texts.
#[test]
fn patterns_mean_what_they_mean_in_javascript() {
    for (pattern, right, wrong) in [
        (r"\d{3}", "345", "٣٤٥|34a"),
        (r"\w{3}|\W", "a_9|é", "éíó"),
        ("a.b", "a b|a😀b|a\u{85}b", "a\nb|a\rb|a\u{2028}b|a\u{2029}b"),
        (r"\s", " |\t|\u{b}|\u{a0}|\u{feff}|\u{2028}|\u{3000}", "\u{85}|\u{200b}|x"),
        (r"\S", "x|\u{85}|😀", " |\u{feff}"),
        (r"[^\D0-9]|[\D]|[^\S\n]", "x|٣|\t", "3"),
        ("[^]{2}", "\n😀", "a"),
        ("a|[]", "a", "|b"),
        ("a{,3}|}|]|b{|{x}", "a{,3}|}|]|b{|{x}", "aa"),
        (r"\cA\cz|[\cB]|\0", "\u{1}\u{1a}|\u{2}|\0", "cA"),
        (r"[\b]|\x41|\x4|\u{1F600}|\u0042|\uD83D\uDE01", "\u{8}|A|😀|B|😁", "b|x41"),
        ("[[]|[a&&b]", "[|a|b|&", "]|c"),
        ("[+--b]", "+|,|-|b", "a|."),
        ("[x~~y]|[+--]|[!--/]", "x|~|y|+|,|-|!|/", "|0"),
        (r"\/\-\_[\]\-\^]|[\w-z]", "/-_]|/-_^|-|w", "/-_"),
        (r"[^^]x|[a-]", "-x|a", "^x|b"),
        ("(?<n>a)(?:b)(c)?", "ab|abc", "abb"),
        ("^a$|^(b|c$)", "a|b|c", "aa"),
        ("a+?b*?c??d{2,3}?", "add|aabcddd", "abcd"),
        ("(?i:k[a-b]ß)c", "KAßc|kbẞc|\u{212a}Aßc", "kaßC|kassc"),
        ("(?s:.)(?-s:.)", "\na", "\n\n"),
        (r"\p{Lu}\P{L}[\p{Script=Greek}]", "É1ω", "é1ω|ÉAω"),
        (r"[\uD7FF-\uE000]|a[\uD800-\uDFFF]?", "\u{d7ff}|\u{e000}|a", "😀"),
        ("漢😀?#a b", "漢#a b|漢😀#a b", "漢😀😀#a b"),
    ] {
        assert_judged(Format::Regex(pattern), right, wrong);
    }
    for (literal, right, wrong) in [
        ("/^k[^x]\\w$/i", "kes|KES", "kxs|ke\u{17f}|\u{212a}es"),
        (r"/k[^x]\w/iu", "\u{212a}e\u{17f}|Kes", "kXs"),
        (r"/\W/iu", "é", "\u{212a}"),
        (r"/[^\D0-8]|\p{Zl}/u", "9|\u{2028}", "\u{d7ff}|\u{e000}|8"),
        (r"/[^a\p{Lu}]\p{Lu}/iu", "1q", "aa|1_|bb"),
        ("/a.b/s", "a\nb", "a😀b"),
        ("/.*|[^x]{2,}b/", "a😀|a😀b|ééb", "\n"),
        ("/😀x|a\\/b|\\u{2}/", "😀x|a/b|uu", "😀|u{2}"),
        ("/^a$/gmy", "a", "b"),
        ("/漢[一-龥]a/i", "漢字A", "漢字b"),
        (r"/\q[\q]\p{2}/", "qqpp", "qqp"),
    ] {
        assert_judged(Format::RegExp(literal), right, wrong);
    }
    for (literal, reason) in [
        ("/a/v", "the flag v is not supported"),
        ("/😀+/", "only with the flag u"),
        ("/[😀]/", "only with the flag u"),
        ("/é/i", "the flag i only with the flag u"),
        ("/[a-é]/i", "the flag i only with the flag u"),
    ] {
        let (_, found) = refusal(Format::RegExp(literal));
        assert!(found.contains(reason), "{literal}: {found}");
    }
}

fn assert_judged(format: Format, right: &str, wrong: &str) {
    for text in right.split('|') {
        assert!(keeps(format, text), "{format:?} refuses {text:?}");
    }
    for text in wrong.split('|') {
        assert!(!keeps(format, text), "{format:?} takes {text:?}");
    }
}

#[test]
fn patterns_of_schemas_are_javascripts_too() {
    for (pattern, right, wrong) in [
        ("^.$", r#""x"|"\t""#, r#""\r"|"\n""#),
        (r"^\\s$", "\"\u{feff}\"|\"\\n\"", "\"\u{85}\"|\"x\""),
        (r"^\\S$", "\"\u{85}\"", "\"\u{feff}\"|\" \""),
        ("[[]$", r#""a[""#, r#""[a""#),
    ] {
        let schema = format!(r#"{{"type":"string","pattern":"{pattern}"}}"#);
        assert_judged(Format::JsonSchema(&schema), right, wrong);
        let away = format!(r##"{{"$ref":"#/a/b","a":{{"b":{schema}}}}}"##);
        assert_judged(Format::JsonSchema(&away), right, wrong);
        let name = |texts: &str| texts.split('|').map(|text| format!("{{{text}:1}}")).collect::<Vec<_>>().join("|");
        let schema = format!(
            r#"{{"type":"object","patternProperties":{{"{pattern}":{{"const":1}}}},"additionalProperties":false}}"#
        );
        assert_judged(Format::JsonSchema(&schema), &name(right), &name(wrong));
    }
}

/// A name that comes again would be counted twice, or hold what its schema forbids.
#[test]
fn names_come_in_one_spelling() {
    let schema = r#"{"properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":{"type":"string"},"minProperties":2}"#;
    let format = Format::JsonSchema(schema);
    assert!(keeps(format, r#"{"a":1,"b":"x"}"#) && !keeps(format, r#"{"a":1}"#));
    assert!(!keeps(format, r#"{"a":1,"\u0061":"x"}"#) && !keeps(format, r#"{"a":1,"a":"x"}"#));
    assert!(keeps(Format::JsonSchema(r#"{"minProperties":1}"#), r#"{"a":1}"#));
    let escapes = r#"{"const":"\u0001","x-guidance":{"json_allowed_escapes":"nrbtf\\\"u"}}"#;
    assert!(keeps(Format::JsonSchema(escapes), r#""\u0001""#));
    assert!(refusal(Format::JsonSchema(r#"{"const":"\u0001"}"#)).1.contains("no token leads on"));
}

#[test]
fn refusals_name_their_place() {
    for (schema, place, reason) in [
        ("{", "line 1, column 1", "EOF"),
        ("[]", "#", "an object, or true"),
        ("false", "#", "an object, or true"),
        (r#"{"type":"nope"}"#, "#", "Invalid type: nope"),
        (r#"{"properties":{"a/b":{"items":{"not":{}}}}}"#, "#/properties/a~1b/items", "not"),
        (r#"{"anyOf":[{},{"minLength":-1,"type":"string"}]}"#, "#/anyOf/1", "minLength"),
        (r##"{"$ref":"#/$defs/a","$defs":{"a":{"uniqueItems":true}}}"##, "#/$defs/a", "uniqueItems"),
        (r#"{"properties":{"a":{"pattern":"a(b"}}}"#, "#/properties/a", "unclosed group"),
        (r#"{"items":{"oneOf":[{"type":"integer"},{"type":"number"}]}}"#, "#/items", "oneOf"),
        (r##"{"$ref":"#/$defs/x"}"##, "#", "not found"),
        (r##"{"$ref":"#"}"##, "", "no token leads on"),
        (r#"{"type":"integer","minimum":3,"maximum":2}"#, "#", "Unsatisfiable"),
        (r#"{"items":{"multipleOf":99999}}"#, "#/items", "multipleOf"),
        (r#"{"items":{"pattern":"^\\b"}}"#, "#/items", r"pattern, line 1, column 2: word boundaries"),
        (r#"{"patternProperties":{"[0-9]":{},"\\d":{}}}"#, "#", r"\d means the same as another"),
        (r##"{"$ref":"#/any/where","any":{"where":{"pattern":"(?=a)"}}}"##, "#/any/where", "look-around"),
        (r#"{"minProperties":2}"#, "#", "minProperties 2: at most one more than `required` names (1 here)"),
        (r#"{"items":{"required":["a","a"],"minProperties":3}}"#, "#/items", "(2 here)"),
        (r#"{"allOf":[{"multipleOf":997},{"multipleOf":991}]}"#, "#/allOf/1", "multipleOf"),
    ] {
        let found = refusal(Format::JsonSchema(schema));
        assert_eq!(found.0, place, "{schema}: {}", found.1);
        assert!(found.1.contains(reason) && !found.1.contains('\n'), "{schema}: {}", found.1);
    }
    for (pattern, place, reason) in [
        ("ab\n(c", "line 2, column 1", "unclosed group"),
        ("a(?=b)", "line 1, column 2", "look-around"),
        (r"(a)\1", "line 1, column 4", "back-references"),
        (r"a\bx", "line 1, column 2", "word boundaries"),
        ("a^b|(c$)d", "", "^ and $ are only supported at the ends of a pattern"),
        ("a{2}{3}", "line 1, column 5", "nothing to repeat"),
        ("x|*", "line 1, column 3", "nothing to repeat"),
        ("a)", "line 1, column 2", "unopened group"),
        ("a[b", "line 1, column 2", "unclosed character class"),
        ("[z-a]", "line 1, column 2", "a range from more to less"),
        ("a{3,2}", "line 1, column 2", "from more to less"),
        ("a{99999999999}", "line 1, column 2", "counts too far"),
        (r"\q", "line 1, column 1", r"no escape \q"),
        (r"\p{Nope}", "line 1, column 1", "no such property"),
        (r"\uD83Dx", "line 1, column 1", "half of a character"),
        ("(?P<n>a)", "line 1, column 1", "a group begins with"),
        ("(?m:a)", "line 1, column 1", "the flag m"),
    ] {
        let found = refusal(Format::Regex(pattern));
        assert_eq!(found.0, place, "{pattern}: {}", found.1);
        assert!(found.1.contains(reason), "{pattern}: {}", found.1);
    }
    for (grammar, place, reason) in [
        ("start: \"a\" b", "line 1, column 8", "unknown name: \"b\""),
        ("start: a\na: /x(/", "line 2, column 4", "unclosed group"),
        ("root ::= \"a\"", "line 1, column 7", "Expected token"),
        ("a: \"a\"", "", "no start rule"),
        ("start: x\nx: y\ny: x", "", "no token leads on"),
    ] {
        let found = refusal(Format::Grammar(grammar));
        assert_eq!(found.0, place, "{grammar}: {}", found.1);
        assert!(found.1.contains(reason), "{grammar}: {}", found.1);
    }
}

/// What a stranger may send is taken or refused in bounded work; unbounded, any of these would run for minutes.
#[test]
fn hostile_formats_end() {
    let nested =
        |key: &str, depth: usize| format!("{}{{}}{}", format!("{{\"{key}\":").repeat(depth), "}".repeat(depth));
    let choice = r#"{"anyOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"b":{"type":"string"}}},{"maxProperties":9}]}"#;
    let product = format!("{{\"allOf\":[{}]}}", [choice; 30].join(","));
    assert!(refusal(Format::JsonSchema(&product)).1.contains("too large"));
    assert!(refusal(Format::JsonSchema(&nested("items", 1000))).1.contains("recursion"));
    assert!(refusal(Format::Grammar(&format!("start: \"{}\"", "a".repeat(MAX_SOURCE)))).1.contains("bytes"));
    let vocabulary = vocabulary(&[END]);
    for source in [
        nested("items", 100).as_str(),
        r#"{"type":"array","minItems":100000000}"#,
        r#"{"type":"string","minLength":100000000}"#,
        r#"{"type":"string","pattern":"^((((a{99}){99}){99}){99}){99}$"}"#,
    ] {
        // Either is fine; that it ends is what counts.
        let _ = vocabulary.constraint(Format::JsonSchema(source));
    }
    let mut constraint = vocabulary.constraint(Format::Regex("(a?){64}a{64}|(a|aa)+b")).expect("a pattern");
    for _ in 0..64 {
        constraint.accept(u32::from(b'a')).expect("allowed");
    }
    assert!(!allowed(&mut constraint).is_empty());
}

/// References follow one another by calls in the library: too many of them would end its instance, not only the one answer.
#[test]
fn what_leads_too_deep_is_refused() {
    let chain = |count: usize, upper: bool, rule: &dyn Fn(String) -> String| {
        let name = |i: usize| format!("{}{i}", if upper { "R" } else { "r" });
        let rules: Vec<_> = (0..count).map(|i| format!("{}: {}", name(i), rule(name(i + 1)))).collect();
        format!("start: {}\n{}\n{}: \"a\"", name(0), rules.join("\n"), name(count))
    };
    let plain = |name: String| name;
    assert!(
        keeps(Format::Grammar(&chain(200, false, &plain)), "a")
            && keeps(Format::Grammar(&chain(200, true, &plain)), "a")
    );
    for grammar in [
        chain(20_000, false, &plain),
        chain(1000, true, &plain),
        chain(1000, false, &|name| format!("\"b\" | // no: x\n  /c\\// {name}?")),
        chain(100, false, &|name| format!("(((({name}))))")),
        chain(1000, false, &|name| format!("{name} start")),
    ] {
        assert!(refusal(Format::Grammar(&grammar)).1.contains("deep"), "{}", &grammar[..60]);
        let both = serde_json::json!({ "grammar": grammar, "schemas": [] }).to_string();
        assert!(refusal(Format::Both(&both)).1.contains("deep"));
    }
    // Many rules are fine, and so is one that leads back.
    let flat: Vec<_> = (0..1500).map(|i| format!("r{i}: \"w{i}\"")).collect();
    let names: Vec<_> = (0..1500).map(|i| format!("r{i}")).collect();
    assert!(keeps(Format::Grammar(&format!("start: {}\n{}", names.join(" | "), flat.join("\n"))), "w77"));
    assert!(keeps(Format::Grammar("start: \"(\" start \")\" | \"a\""), "((a))"));

    let schema = |count: usize, to: &dyn Fn(Value) -> Value| {
        let reference = |i: usize| serde_json::json!({ "$ref": format!("#/$defs/d{i}") });
        let mut defs: Map<String, Value> = (0..count).map(|i| (format!("d{i}"), to(reference(i + 1)))).collect();
        defs.insert(format!("d{count}"), serde_json::json!({ "type": "null" }));
        serde_json::json!({ "$ref": "#/$defs/d0", "$defs": defs }).to_string()
    };
    assert!(keeps(Format::JsonSchema(&schema(100, &|to| to)), "null"));
    for deep in [
        schema(20_000, &|to| to),
        schema(1000, &|to| serde_json::json!({ "type": "array", "items": to })),
        schema(1000, &|to| serde_json::json!({ "allOf": [to] })),
        schema(1000, &|to| serde_json::json!({ "anyOf": [{ "type": "integer" }, to] })),
        schema(1000, &|to| serde_json::json!({ "properties": { "a": to } })),
    ] {
        assert!(refusal(Format::JsonSchema(&deep)).1.contains("deep"), "{}", &deep[..60]);
    }
}

/// A place is looked for in a bounded part of the schema, whatever its size.
#[test]
fn looking_for_a_place_is_bounded() {
    let wide = |count: usize| {
        let part = |i: usize| format!(r#""p{i}":{{"type":"string","pattern":"^x{i}"}}"#);
        let parts: Vec<_> = (0..count).map(part).collect();
        format!(r#"{{"properties":{{{},"z":{{"items":{{"not":{{}}}}}}}}}}"#, parts.join(","))
    };
    assert_eq!(refusal(Format::JsonSchema(&wide(20))).0, "#/properties/z/items");
    assert_eq!(refusal(Format::JsonSchema(&wide(5000))).0, "#");
    let tried = std::cell::Cell::new(0);
    let root: Value = serde_json::from_str(&wide(5000)).expect("JSON");
    let found = place::in_schema(root, "no".to_owned(), |part| {
        tried.set(tried.get() + part.to_string().len());
        None
    });
    assert!(found.place == "#" && tried.get() > 0 && tried.get() < 64 << 10);
}
