//! Which tokens may come next, so that a text keeps to a JSON schema, a regular expression or a grammar.
//!
//! `llguidance` does the work; this crate gives it a vocabulary, bounds what a stranger's schema may cost, and says where a
//! refused one is wrong. It is built as a wasm module of its own, which is loaded when a response format is asked for.

mod characters;
mod depth;
mod pattern;
mod place;
mod schema;
mod subschemas;
#[cfg(target_arch = "wasm32")]
mod web;

use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;

/// Bytes of a schema, a pattern or a grammar: ten times the longest in the schema store.
const MAX_SOURCE: usize = 4 << 20;
/// Bytes of a token: the trie has room for no longer path.
const MAX_TOKEN: usize = 1000;

/// What the library calls it when no token may follow.
const NO_TOKEN: &str = "NoExtensionBias";

/// Why a schema, a pattern or a grammar is refused.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// A JSON pointer into a schema, or `line 2, column 5`; empty where it is not known.
    pub place: String,
    pub reason: String,
}

/// What an answer must keep to.
#[derive(Clone, Copy, Debug)]
pub enum Format<'a> {
    /// The text of a JSON schema.
    JsonSchema(&'a str),
    /// A regular expression of ECMAScript that the whole answer matches, as with the flag `u`.
    Regex(&'a str),
    /// The same with flags of its own: `/source/flags`.
    RegExp(&'a str),
    /// A grammar in Lark's syntax, from the rule `start`.
    Grammar(&'a str),
    /// `{ "grammar", "schemas" }`: a grammar that calls the schemas `@schema0`, `@schema1` and so on.
    Both(&'a str),
}

/// One model's tokens, shared by every constraint on it.
#[allow(missing_debug_implementations, reason = "the library's types have none")]
pub struct Vocabulary {
    factory: ParserFactory,
    ends: bool,
}

impl Vocabulary {
    /// `tokens` by id: their bytes, and whether they are special, which no text of a grammar matches.
    ///
    /// # Panics
    /// If the library refuses its own expressions, which no input can cause.
    pub fn new<'a>(tokens: impl Iterator<Item = (&'a [u8], bool)>, ends: &[u32]) -> Self {
        let words: Vec<Vec<u8>> = tokens
            .map(|(bytes, special)| match bytes {
                [] => Vec::new(),
                _ if bytes.len() > MAX_TOKEN => Vec::new(),
                _ if special => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
                _ => bytes.to_vec(),
            })
            .collect();
        let count = words.len() as u32;
        let ends: Vec<u32> = ends.iter().copied().filter(|&id| id < count).collect();
        let mut trie = TokTrie::from(&TokRxInfo::new(count, toktrie::INVALID_TOKEN), &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(&ends);
        }
        let environment: toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
            .expect("the library's own slices are regular expressions");
        factory.quiet();
        *factory.limits_mut() = limits();
        Self { factory, ends: !ends.is_empty() }
    }

    /// A constraint on one answer.
    ///
    /// # Errors
    /// A refusal that names the place in the source and the reason.
    pub fn constraint(&self, format: Format) -> Result<Constraint, Refusal> {
        let (Format::JsonSchema(source)
        | Format::Regex(source)
        | Format::RegExp(source)
        | Format::Grammar(source)
        | Format::Both(source)) = format;
        let nowhere = |reason| Refusal { place: String::new(), reason };
        if source.len() > MAX_SOURCE {
            return Err(nowhere(format!("it has {} bytes; at most {MAX_SOURCE} are allowed", source.len())));
        }
        let matcher = match format {
            Format::JsonSchema(text) => {
                let schema = schema::read(text)?;
                depth::check_schema(&schema)?;
                self.matcher(vec![json(&schema)]).map_err(|reason| self.within(schema, reason))?
            }
            Format::Regex(source) => self.pattern(&pattern::translate(source, "u")?)?,
            Format::RegExp(literal) => self.pattern(&pattern::of_literal(literal)?)?,
            Format::Grammar(text) => {
                depth::check_grammar(text)?;
                self.matcher(vec![GrammarWithLexer::from_lark(text.to_owned())]).map_err(place::in_grammar)?
            }
            Format::Both(text) => self.both(text)?,
        };
        let mut constraint = Constraint { matcher, ends: self.ends, over: false };
        // A grammar whose rules lead in a circle is fine by itself, but no text keeps to it.
        constraint.mask().map_err(nowhere)?;
        Ok(constraint)
    }

    /// What the library says of a pattern has a place in its own translation.
    fn pattern(&self, translated: &str) -> Result<Matcher, Refusal> {
        let told = |message| Refusal { place: String::new(), ..place::in_grammar(message) };
        self.matcher(vec![GrammarWithLexer::from_regex(translated)]).map_err(told)
    }

    fn both(&self, text: &str) -> Result<Matcher, Refusal> {
        let nowhere = |reason| Refusal { place: String::new(), reason };
        let both: Value = serde_json::from_str(text).map_err(|error| nowhere(error.to_string()))?;
        let grammar = both["grammar"].as_str().unwrap_or_default().to_owned();
        depth::check_grammar(&grammar)?;
        let mut grammars = vec![GrammarWithLexer::from_lark(grammar)];
        for (number, schema) in both["schemas"].as_array().into_iter().flatten().enumerate() {
            let within = |refusal: Refusal| Refusal { place: format!("schema {number}, {}", refusal.place), ..refusal };
            let schema = schema::prepared(schema.clone()).map_err(within)?;
            depth::check_schema(&schema).map_err(within)?;
            self.matcher(vec![json(&schema)]).map_err(|reason| within(self.within(schema.clone(), reason)))?;
            grammars.push(GrammarWithLexer { name: Some(format!("schema{number}")), ..json(&schema) });
        }
        self.matcher(grammars).map_err(place::in_grammar)
    }

    /// Where in a schema the part is that is refused.
    fn within(&self, schema: Value, reason: String) -> Refusal {
        place::in_schema(schema, reason, |part| self.matcher(vec![json(&part)]).err())
    }

    fn matcher(&self, grammars: Vec<GrammarWithLexer>) -> Result<Matcher, String> {
        let parser = self.factory.create_parser(TopLevelGrammar { grammars, max_tokens: None });
        parser.map(|parser| Matcher::new(Ok(parser))).map_err(|error| place::plain(&format!("{error:#}")))
    }
}

fn json(schema: &Value) -> GrammarWithLexer {
    GrammarWithLexer::from_json_schema(schema::translated(schema.clone()))
}

/// The library's own bounds suit servers of several cores; here one step must not keep others waiting.
fn limits() -> ParserLimits {
    ParserLimits { verbose_errors: false, precompute_large_lexemes: false, ..ParserLimits::default() }
}

/// One answer under way.
#[allow(missing_debug_implementations, reason = "the library's types have none")]
pub struct Constraint {
    matcher: Matcher,
    /// Whether a model has a token to say that it ends.
    ends: bool,
    over: bool,
}

impl Constraint {
    /// One bit for each token that may come next, end tokens among them where the text may end; empty where only an end may.
    ///
    /// # Errors
    /// A message if no token leads on, or if a limit of the library is reached.
    pub fn mask(&mut self) -> Result<Vec<u32>, String> {
        // Without end tokens the library takes a text that is whole for one that cannot go on.
        let whole = !self.ends && self.complete();
        if self.over {
            return Ok(Vec::new());
        }
        let error = match self.matcher.compute_mask() {
            Ok(mask) => return Ok(mask.as_slice().to_vec()),
            Err(error) => place::plain(&error.to_string()),
        };
        if error != NO_TOKEN {
            return Err(error);
        }
        self.over = whole;
        if whole { Ok(Vec::new()) } else { Err("no token leads on to a text that keeps to it".to_owned()) }
    }

    /// Goes on by a token that the mask allowed; an end token ends it.
    ///
    /// # Errors
    /// A message if the token was not allowed.
    pub fn accept(&mut self, token: u32) -> Result<(), String> {
        self.matcher.consume_token(token).map_err(|error| place::plain(&error.to_string()))?;
        self.over = self.matcher.is_stopped();
        Ok(())
    }

    /// Whether the text is whole as it is.
    pub fn complete(&mut self) -> bool {
        self.over || self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether nothing but an end may follow.
    pub fn done(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests;
