//! What a caller asks for, and the events that answer it.

use super::RequestId;
use crate::error::Error;
use crate::sampling::{Lists, Logprobs, Params};

/// One call on a session.
#[derive(Clone, Debug)]
pub struct Request {
    /// Tokens that are appended to what the session holds.
    pub tokens: Vec<u32>,
    pub task: Task,
}

/// What is to be done with the tokens.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a request moves twice in its life")]
pub enum Task {
    /// Continue the sequence.
    Generate {
        params: Params,
        lists: Lists,
        /// Tokens of the answer at most; `None` goes on until the context is full.
        max_tokens: Option<usize>,
        /// Tokens that end the answer; they are not part of it.
        end: Vec<u32>,
        full: WhenFull,
        /// Whether [`Event::LogitsRequest`] precedes every choice, which then waits for the logits to choose from.
        hook: bool,
    },
    /// The logits behind the last token, or behind each token of the request.
    Logits { all: bool },
    /// The negative log-likelihood of every token but the first; or with `logprobs` an [`Event::Logprobs`] for each of these tokens, with
    /// this many of the likeliest ones in its place.
    Score { logprobs: Option<usize> },
    /// Hidden states behind the output norm, pooled to one vector.
    Embed { pooling: Pooling },
}

/// How the hidden states of many tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    Mean,
    Last,
}

/// What happens when the context is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The answer ends there.
    #[default]
    Stop,
    /// The answer ends there with an error.
    Fail,
    /// The middle of the sequence is dropped, see [`window`]; what remains is computed as a sequence of its own.
    Shift,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token was chosen, or the task is done.
    Stop,
    /// The answer has as many tokens as it may have.
    Length,
}

/// What a step reports of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The prompt is computed: all tokens of the sequence, and how many of them were found in the KV cache.
    Prompt { request: RequestId, tokens: usize, cached: usize },
    /// The next token of the answer.
    Token { request: RequestId, token: u32 },
    /// The log-probabilities of the token that comes next, where `logprobs` are asked for; or of the next one of a scored prompt.
    Logprobs { request: RequestId, logprobs: Logprobs },
    /// The logits of the next choice. The request awaits [`super::Engine::resume`] with the logits to choose from, changed or not.
    LogitsRequest { request: RequestId, logits: Vec<f32> },
    /// The logits behind a position: one for each token of the vocabulary.
    Logits { request: RequestId, position: usize, logits: Vec<f32> },
    /// The sum of the negative log-likelihoods, in nats, of this many tokens.
    Scored { request: RequestId, nll: f64, tokens: usize },
    /// The pooled hidden state, as wide as the model.
    Embedded { request: RequestId, embedding: Vec<f32> },
    /// The last event of a request that succeeded.
    Finished { request: RequestId, reason: FinishReason },
    /// The last event of a request that failed.
    Failed { request: RequestId, error: Error },
}

/// Attention sinks: models attend to the first positions whatever tokens are there, so that a shifted context keeps them.
const SINKS: usize = 32;

/// What is kept of a sequence of `len` tokens that has filled its context of `context` tokens: how many of its first tokens, and
/// the index from which on the last ones stay, half a context of them.
pub fn window(len: usize, context: usize) -> (usize, usize) {
    let sinks = SINKS.min(context / 8).min(len);
    (sinks, len.saturating_sub(context / 2).max(sinks))
}
