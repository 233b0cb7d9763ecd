//! One call on a session, from its tokens to its events.

use std::collections::VecDeque;

use super::draft::Draft;
use super::{RequestId, SessionId};
use crate::error::{Error, ErrorKind, Result};
use crate::sampling::{Lists, Logprobs, Params, Sampler, check_finite, log_sum_exp};

/// What a caller asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Appended to what the session holds.
    pub tokens: Vec<u32>,
    pub work: Work,
}

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a request moves twice in its life")]
pub enum Work {
    Generate {
        params: Params,
        lists: Lists,
        /// Until the context is full, where `None`.
        max_tokens: Option<usize>,
        /// Tokens that end it; they are not part of the answer.
        end: Vec<u32>,
        full: WhenFull,
        /// Asks with [`Event::Choose`] before every choice, and waits for the logits to choose from.
        hook: bool,
    },
    /// The logits behind the last token, or behind each.
    Logits { all: bool },
    /// The negative log-likelihood of every token but the first.
    Score,
    /// What the model makes of the tokens: hidden states behind the output norm.
    Embed { pooling: Pooling },
}

/// How the states of many tokens become one.
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
    /// So it does, with an error.
    Fail,
    /// The middle is forgotten, see [`window`], and what is kept is computed as a conversation of its own.
    Shift,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    Stop,
    Length,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The prompt is read: all tokens of the conversation, and how many of them did not have to be computed.
    Prompt {
        request: RequestId,
        tokens: usize,
        cached: usize,
    },
    Token {
        request: RequestId,
        token: u32,
    },
    /// What the model said of the token that comes next, where `logprobs` are asked for.
    Logprobs {
        request: RequestId,
        logprobs: Logprobs,
    },
    /// What would be chosen from. The request waits until [`super::Engine::supply`] gives them back, changed or not.
    Choose {
        request: RequestId,
        logits: Vec<f32>,
    },
    Logits {
        request: RequestId,
        position: usize,
        logits: Vec<f32>,
    },
    /// Sum of negative log-likelihoods, in nats, of this many tokens.
    Scored {
        request: RequestId,
        nll: f64,
        tokens: usize,
    },
    Embedded {
        request: RequestId,
        embedding: Vec<f32>,
    },
    Finished {
        request: RequestId,
        reason: FinishReason,
    },
    Failed {
        request: RequestId,
        error: Error,
    },
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Active {
    pub session: SessionId,
    pub request: Request,
    sampler: Option<Sampler>,
    generated: usize,
    /// What the last logits led to, until the pass is over: more than one token where guesses were right.
    chosen: VecDeque<Chosen>,
    pub draft: Draft,
    /// Logits that follow are those behind a wrong guess.
    wrong: bool,
    /// Whether it waits for [`super::Engine::supply`].
    pub parked: bool,
    /// The logits that [`Event::Choose`] told of, where what they say of the choice is asked for.
    asked: Vec<f32>,
    nll: f64,
    /// The sum of the states to be pooled.
    state: Vec<f64>,
    /// Where this request's own tokens begin in the session.
    first: usize,
    /// Positions before this one were told of, or added up.
    told: usize,
    /// It has a place among those that run.
    pub admitted: bool,
    /// It got it for being short.
    pub passed: bool,
    /// Nobody reads its events for now: it waits, at nobody's cost.
    pub paused: bool,
    /// Tokens computed before its first event.
    computed: usize,
}

#[derive(Debug)]
enum Chosen {
    Token(u32, Option<Logprobs>),
    /// Nothing yet: whoever asked for a hook is asked.
    Ask(Vec<f32>),
    Failed,
}

/// What becomes of a request after a pass.
pub(super) enum Outcome {
    /// It goes on, with a token more or in the middle of its prompt.
    More(Option<u32>),
    Ended(Option<u32>),
    /// It goes on with a token more, for which the context has no room.
    Shift(u32),
}

impl Active {
    pub fn new(session: SessionId, before: &[u32], request: Request) -> Result<Self> {
        let mut sampler = match &request.work {
            Work::Generate { params, lists, .. } => Some(Sampler::new(*params, lists.clone())?),
            Work::Logits { .. } | Work::Score | Work::Embed { .. } => None,
        };
        if let Some(sampler) = &mut sampler {
            before.iter().chain(&request.tokens).for_each(|&token| sampler.accept(token));
        }
        Ok(Self {
            session,
            sampler,
            generated: 0,
            chosen: VecDeque::new(),
            draft: Draft::default(),
            wrong: false,
            parked: false,
            asked: Vec::new(),
            nll: 0.0,
            state: Vec::new(),
            first: before.len(),
            told: 0,
            admitted: false,
            passed: false,
            paused: false,
            computed: 0,
            request,
        })
    }

    /// How the request goes on when the context is full.
    pub fn when_full(&self) -> WhenFull {
        match self.request.work {
            Work::Generate { full, .. } => full,
            _ => WhenFull::Stop,
        }
    }

    /// Positions below this one are of no interest but for their keys and values; `len` is how many tokens the session holds.
    pub fn limit(&self, len: usize) -> usize {
        let all = matches!(
            self.request.work,
            Work::Logits { all: true } | Work::Score | Work::Embed { pooling: Pooling::Mean }
        );
        if all { self.untold().min(len - 1) } else { len - 1 }
    }

    /// The first position of which it has not told yet. What gave its room to others is computed again, but told once.
    fn untold(&self) -> usize {
        self.first.max(self.told)
    }

    /// Tokens that it may still take to the end, where `left` are to be computed and `room` are free in its context.
    pub fn length(&self, left: usize, room: usize) -> usize {
        match self.request.work {
            Work::Generate { max_tokens, .. } => {
                left + max_tokens.map_or(room, |most| most.saturating_sub(self.generated).min(room))
            }
            _ => left,
        }
    }

    /// Whether the logits behind a position are needed; `len` is how many tokens the session holds.
    pub fn wants(&self, position: usize, len: usize) -> bool {
        let last = position + 1 == len;
        match self.request.work {
            Work::Generate { .. } => position + 1 >= len,
            Work::Logits { all } => last || all && position >= self.untold(),
            Work::Score => !last && position >= self.untold(),
            Work::Embed { .. } => false,
        }
    }

    /// Whether the hidden state behind a position is needed.
    pub fn wants_state(&self, position: usize, len: usize) -> bool {
        match self.request.work {
            Work::Embed { pooling: Pooling::Mean } => position >= self.untold(),
            Work::Embed { pooling: Pooling::Last } => position + 1 == len,
            _ => false,
        }
    }

    pub fn take_state(&mut self, state: &[f32]) {
        self.state.resize(state.len(), 0.0);
        self.state.iter_mut().zip(state).for_each(|(sum, &value)| *sum += f64::from(value));
    }

    pub fn take(&mut self, id: RequestId, position: usize, logits: &[f32], events: &mut Vec<Event>) {
        let result = match &self.request.work {
            Work::Generate { hook: true, params, .. } => check_finite(logits).map(|()| {
                if params.logprobs.is_some() {
                    self.asked = logits.to_vec();
                }
                self.chosen.push_back(Chosen::Ask(logits.to_vec()));
            }),
            Work::Generate { .. } if self.wrong => return,
            Work::Generate { params, end, .. } => {
                let sampler = self.sampler.as_mut().expect("made with the request");
                sampler.sample(logits).map(|token| {
                    sampler.accept(token);
                    self.wrong = self.draft.tokens.get(self.chosen.len()) != Some(&token) || end.contains(&token);
                    let logprobs = params.logprobs.map(|count| Logprobs::of(logits, token, count));
                    self.chosen.push_back(Chosen::Token(token, logprobs));
                })
            }
            Work::Logits { .. } => check_finite(logits)
                .map(|()| events.push(Event::Logits { request: id, position, logits: logits.to_vec() })),
            Work::Score => check_finite(logits).map(|()| {
                let token = self.request.tokens[position + 1 - self.first];
                self.nll += log_sum_exp(logits) - f64::from(logits[token as usize]);
            }),
            Work::Embed { .. } => Ok(()),
        };
        if let Err(error) = result
            && !matches!(self.chosen.back(), Some(Chosen::Failed))
        {
            self.fail(id, error, events);
        }
    }

    fn fail(&mut self, id: RequestId, error: Error, events: &mut Vec<Event>) {
        events.push(Event::Failed { request: id, error });
        self.chosen.push_back(Chosen::Failed);
        self.wrong = true;
    }

    /// Guesses at most `most` tokens that follow those `said`; [`Self::take`] then gets the logits behind each.
    pub fn guess(&mut self, said: &[u32], most: usize) {
        self.wrong = false;
        self.draft.tokens.clear();
        if let Work::Generate { params: Params { prompt_lookup: true, .. }, max_tokens, hook: false, .. } =
            self.request.work
        {
            let most = max_tokens.map_or(most, |all| most.min(all.saturating_sub(self.generated + 1)));
            self.draft.guess(said, most);
        }
    }

    /// How many guesses the pass that has ended computed. Their number is asked for once.
    pub fn guessed(&mut self) -> usize {
        self.draft.judge(self.chosen.len().saturating_sub(1));
        std::mem::take(&mut self.draft.tokens).len()
    }

    /// Whether [`Self::settle`] has more to tell.
    pub fn unsettled(&self) -> bool {
        !self.chosen.is_empty()
    }

    /// What was asked for has come: [`Self::settle`] goes on from it.
    pub fn supply(&mut self, id: RequestId, logits: &[f32], events: &mut Vec<Event>) {
        self.parked = false;
        match self.sampler.as_mut().expect("only generations ask").sample_masked(logits) {
            Ok(token) => {
                let logprobs = match self.request.work {
                    Work::Generate { params: Params { logprobs: Some(count), .. }, .. } => {
                        Some(Logprobs::of(&self.asked, token, count))
                    }
                    _ => None,
                };
                self.sampler.as_mut().expect("it has chosen").accept(token);
                self.chosen.push_back(Chosen::Token(token, logprobs));
            }
            Err(error) => self.fail(id, error, events),
        }
    }

    /// Notes tokens that were computed, up to `cached`. Of a prompt that is complete by then, of `len` tokens in all, it tells.
    pub fn count(&mut self, id: RequestId, computed: usize, cached: usize, len: usize, events: &mut Vec<Event>) {
        self.computed += computed;
        self.told = self.told.max(cached);
        if cached == len && self.generated == 0 && matches!(self.request.work, Work::Generate { .. }) {
            events.push(Event::Prompt { request: id, tokens: len, cached: len.saturating_sub(self.computed) });
        }
    }

    /// Settles the request after a pass. `complete` says that every token of the session is computed.
    pub fn settle(
        &mut self,
        id: RequestId,
        complete: bool,
        context: usize,
        len: usize,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let chosen = self.chosen.pop_front();
        if matches!(chosen, Some(Chosen::Failed)) {
            return Outcome::Ended(None);
        }
        if !complete {
            return Outcome::More(None);
        }
        let finish = |events: &mut Vec<Event>, reason| events.push(Event::Finished { request: id, reason });
        match (&self.request.work, chosen) {
            (_, Some(Chosen::Ask(logits))) => {
                self.parked = true;
                events.push(Event::Choose { request: id, logits });
                Outcome::More(None)
            }
            (Work::Generate { max_tokens, end, full, .. }, Some(Chosen::Token(token, logprobs))) => {
                if end.contains(&token) {
                    finish(events, FinishReason::Stop);
                    return Outcome::Ended(None);
                }
                if *max_tokens == Some(0) {
                    finish(events, FinishReason::Length);
                    return Outcome::Ended(None);
                }
                if let Some(logprobs) = logprobs {
                    events.push(Event::Logprobs { request: id, logprobs });
                }
                events.push(Event::Token { request: id, token });
                self.generated += 1;
                let room = len < context;
                match full {
                    _ if *max_tokens == Some(self.generated) => {}
                    _ if room => return Outcome::More(Some(token)),
                    WhenFull::Stop => {}
                    WhenFull::Shift => return Outcome::Shift(token),
                    WhenFull::Fail => {
                        let error = Error::new(ErrorKind::ContextFull, "the context is full")
                            .option("contextLength")
                            .expected(format_args!("at most {context} tokens"), len + 1);
                        events.push(Event::Failed { request: id, error });
                        return Outcome::Ended(None);
                    }
                }
                finish(events, FinishReason::Length);
                Outcome::Ended(room.then_some(token))
            }
            (Work::Score, _) => {
                let tokens = self.request.tokens.len().saturating_sub(1);
                events.push(Event::Scored { request: id, nll: self.nll, tokens });
                finish(events, FinishReason::Stop);
                Outcome::Ended(None)
            }
            (Work::Embed { pooling }, _) => {
                let count = match pooling {
                    Pooling::Mean => self.request.tokens.len() as f64,
                    Pooling::Last => 1.0,
                };
                let embedding: Vec<f32> = self.state.iter().map(|sum| (sum / count) as f32).collect();
                match check_finite(&embedding) {
                    Ok(()) => {
                        events.push(Event::Embedded { request: id, embedding });
                        finish(events, FinishReason::Stop);
                    }
                    Err(error) => self.fail(id, error, events),
                }
                Outcome::Ended(None)
            }
            _ => {
                finish(events, FinishReason::Stop);
                Outcome::Ended(None)
            }
        }
    }
}

/// The first positions, on which attention leans whatever they hold.
const SINKS: usize = 32;

/// What is kept of a conversation that has filled its context: how many of its first tokens, and from where on the last, half a
/// context of them.
pub fn window(len: usize, context: usize) -> (usize, usize) {
    let sinks = SINKS.min(context / 8).min(len);
    (sinks, len.saturating_sub(context / 2).max(sinks))
}
