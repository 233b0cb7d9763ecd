//! Running: requests in, events out.

use js_sys::{Array, Float32Array, Object, Reflect, Uint32Array};
use litemap::LiteMap;
use wasm_bindgen::prelude::*;

use super::adapter::pairs;
use super::bench::now;
use crate::bindings::{Js, from_js, thrown, to_js};
use crate::engine::{
    self, AdapterId, Event, FinishReason, Pooling, Request, RequestId, SessionId, Status, Task, WhenFull,
};
use crate::error::Result;
use crate::formats::Format;
use crate::kernels::isa::Active;
use crate::kernels::linear::prefetch::{Ahead, KINDS};
use crate::kernels::packed::{MatrixShape, Packing};
use crate::model::describe::Description;
use crate::model::forward::Traced;
use crate::model::tune::{self, Choice};
use crate::model::{Adapter, Config, EarlyPrefill, Model, Plan};
use crate::observe::{Operation, Tally, ValueStats};
use crate::quant::{Layout, Scales};
use crate::sampling::{Lists, Params, flat};
use crate::team::Team;

/// The factor that separates a token from its request in one number: request ids are below it, and token ids fit the 21 bits that are left.
const REQUESTS: f64 = 4_294_967_296.0;

/// Reads the task of a request by hand: a derived reader of such a type is ten times as large.
fn task(from: &JsValue, (params, lists): (Params, Lists)) -> Task {
    let get = |name: &str| Reflect::get(from, &name.into()).unwrap_or_default();
    let text = |name: &str| get(name).as_string().unwrap_or_default();
    match text("type").as_str() {
        "generate" => Task::Generate {
            params,
            lists,
            max_tokens: get("maxTokens").as_f64().map(|count| count as usize),
            end: Uint32Array::new(&get("end")).to_vec(),
            hook: get("hook").is_truthy(),
            full: match get("full").as_f64() {
                Some(1.0) => WhenFull::Fail,
                Some(2.0) => WhenFull::Shift,
                _ => WhenFull::Stop,
            },
        },
        "logits" => Task::Logits { all: get("all").is_truthy() },
        "embed" if get("mean").is_truthy() => Task::Embed { pooling: Pooling::Mean },
        "embed" => Task::Embed { pooling: Pooling::Last },
        _ => Task::Score { logprobs: get("logprobs").as_f64().map(|count| count as usize) },
    }
}

#[wasm_bindgen]
pub struct Engine {
    pub(super) engine: engine::Engine<Active>,
    format: Format,
    pub(super) plan: Plan,
    profile: Option<Box<Profile>>,
}

/// Where time went: for each operation how often it ran, its milliseconds, the bytes it read and its products.
type Profile = [[f64; 4]; Operation::NAMES.len()];

impl Engine {
    pub(super) fn new(
        format: Format,
        model: Model,
        plan: Plan,
        team: Team,
        early: Option<EarlyPrefill>,
    ) -> Result<Self> {
        let engine = match early {
            None => engine::Engine::new(model, &plan, team)?,
            Some(early) => engine::Engine::with_prefill(model, &plan, team, early),
        };
        Ok(Self { engine, format, plan, profile: None })
    }

    pub(super) fn config(&self) -> &Config {
        &self.engine.model().config
    }

    pub(super) fn add_adapter(&mut self, adapter: Adapter, id: u32) -> Result<u32> {
        self.engine.add_adapter(adapter, (id > 0).then_some(AdapterId(id))).map(|id| id.0)
    }
}

#[wasm_bindgen]
impl Engine {
    /// A `Description` without tokenizer and template.
    pub fn describe(&self) -> Js<JsValue> {
        let precision = self.engine.model().layer_precision();
        to_js(&Description::new(self.format, &self.plan, precision, &LiteMap::new()))
    }

    /// Positions of a conversation.
    #[wasm_bindgen(js_name = contextLength, getter)]
    pub fn context_length(&self) -> usize {
        self.plan.context
    }

    /// How keys and values are stored.
    #[wasm_bindgen(js_name = kvCacheType, getter)]
    pub fn kv_cache_type(&self) -> String {
        self.plan.kv.name().to_owned()
    }

    /// Sets which weights are loaded ahead: `off`, `near`, `pages`, or, for any other word, what a measurement finds for each kind of weights
    /// in the model. It takes 40 ms less the `spent` ones of the load's other measurements. Returns, for each kind, its place among [`KINDS`] and
    /// the choice's among [`Ahead::ALL`], which stands behind all of these, in the same order, where the time was too short to decide.
    pub fn tune(&self, ahead: &str, spent: f64) -> Js<Vec<u8>> {
        let choices = match Ahead::ALL.into_iter().find(|one| one.name() == ahead) {
            Some(ahead) => tune::force(self.engine.model(), ahead),
            None => self.engine.tune(spent + self.plan.measured_ms, &now).map_err(thrown)?,
        };
        Ok(numbers(choices))
    }

    /// Sets what [`Self::tune`] decided in an earlier load of a model with these kinds of weights, and returns this model's part of it. Nothing
    /// where that leaves a kind open.
    pub fn recall(&self, known: &[u8]) -> Option<Vec<u8>> {
        let choice = |numbers: &[u8; 2]| {
            let [kind, ahead] = numbers.map(usize::from);
            Some(Choice { kind: *KINDS.get(kind)?, ahead: *Ahead::ALL.get(ahead)?, decided: true })
        };
        let known: Vec<_> = known.as_chunks().0.iter().filter_map(choice).collect();
        tune::recall(self.engine.model(), &known).map(numbers)
    }

    /// Schedules by these settings of a load from the next batch on.
    pub fn configure(&mut self, settings: JsValue) -> Js<()> {
        self.engine.configure(&self.plan, &from_js(settings)?).map_err(thrown)
    }

    /// Lets so many threads compute from now on. Returns how often one of them has kept the others waiting so far.
    #[wasm_bindgen(js_name = setActiveThreads)]
    pub fn set_active_threads(&self, count: usize) -> u32 {
        let team = self.engine.team();
        team.set_active(count);
        team.stalls()
    }

    /// Bytes of weights read so far, and products with them.
    pub fn tally(&self) -> Vec<f64> {
        let Tally { weight_bytes, weight_macs, .. } = self.engine.tally();
        vec![weight_bytes as f64, weight_macs as f64]
    }

    /// Begins or ends to measure where the time of steps goes. Returns what was measured before, four numbers for each of
    /// [`operations`]: calls, milliseconds, bytes, products.
    pub fn profile(&mut self, on: bool) -> Vec<f64> {
        let before = std::mem::replace(&mut self.profile, on.then(Box::default));
        before.map_or_else(Vec::new, |rows| rows.as_flattened().to_vec())
    }

    /// Runs a whole step and returns 18 numbers for each matrix: layer (-1: none), operation, which of the operation's; rows, columns, bits of a
    /// code; values that share a scale (0: a row, -1: dense), bits of a scale (0: a factor of 8 bits), whether there are minima; how its
    /// input is rounded (in the order of [`Precision`]); of the input and of the output least, most, root mean square and NaNs. With
    /// `counted`, behind those of a layer's matrix how often each of the int8 codes −127 to 127 occurs in its input.
    ///
    /// With `streams` no step runs. Three numbers for each matrix, in the same order, are instead the milliseconds of its product with one
    /// token, those of a read of its bytes by so many streams a thread, and the bytes.
    pub fn trace(&mut self, streams: usize, counted: bool) -> Js<Vec<f64>> {
        if streams > 0 {
            return self.engine.times(streams, &now).map_err(thrown);
        }
        let mut numbers = Vec::new();
        let events =
            self.engine.traced_step(counted, &mut |Traced {
                                                       layer,
                                                       operation,
                                                       index,
                                                       matrix,
                                                       precision,
                                                       input,
                                                       output,
                                                       codes,
                                                   }| {
                let MatrixShape { rows, cols, packing, .. } = matrix.shape;
                let (group, scale, min) = match packing {
                    Packing::Dense(_) => (-1.0, 0, false),
                    Packing::Ints(Layout { scales: Scales::Row, .. }) => (0.0, 32, false),
                    Packing::Ints(Layout { scales: Scales::Group { len, scale_type, min }, .. }) => {
                        (len as f64, [16, 32, 0][scale_type as usize], min)
                    }
                };
                let head = [operation as usize, index, rows, cols, packing.bits()];
                let numbers_of =
                    |ValueStats { least, most, nans, .. }, rms| [least.into(), most.into(), rms, nans as f64];
                numbers.push(layer.map_or(-1.0, |layer| layer as f64));
                numbers.extend(head.map(|number| number as f64));
                numbers.extend([group, f64::from(scale), f64::from(u8::from(min)), f64::from(precision as u8)]);
                numbers.extend([input, output].map(|values| numbers_of(values, values.rms())).as_flattened());
                numbers.extend(codes.iter().map(|&count| f64::from(count)));
            });
        let failed = events.map_err(thrown)?.into_iter().find_map(|event| match event {
            Event::Failed { error, .. } => Some(thrown(error)),
            _ => None,
        });
        failed.map_or(Ok(numbers), Err)
    }

    /// What a host watches between two steps: 0 [`engine::Engine::matrices`], 1 [`engine::Engine::cached`], 2 [`engine::Engine::last_operation`].
    pub fn watch(&self, what: u32) -> Vec<f64> {
        match what {
            0 => self.engine.matrices(),
            1 => self.engine.cached(),
            _ => self.engine.last_operation(),
        }
    }

    /// See [`engine::Engine::watch_logits`].
    #[wasm_bindgen(js_name = watchLogits)]
    pub fn watch_logits(&mut self, on: bool) {
        self.engine.watch_logits(on);
    }

    /// The last batch, if its pass is completed: request, first position and number of tokens of each request in it.
    pub fn served(&self) -> Vec<u32> {
        self.engine.served().iter().flat_map(|&(id, from, count)| [id.0, from as u32, count as u32]).collect()
    }

    /// Goes on with the prompt that the load began, or begins with this one. Returns the layers that it has behind it.
    pub fn prefill(&mut self, tokens: Vec<u32>) -> Js<usize> {
        match self.engine.prefilled_layers() {
            Some(layers) => Ok(layers),
            None => self.engine.prefill(&self.plan, tokens).map(|()| 0).map_err(thrown),
        }
    }

    /// Opens a session; with `ephemeral` nothing of it is kept.
    pub fn open(&mut self, ephemeral: Option<bool>) -> u32 {
        if ephemeral == Some(true) { self.engine.open_ephemeral().0 } else { self.engine.open().0 }
    }

    /// A session that begins with all that an idle one holds.
    pub fn fork(&mut self, session: u32) -> Js<u32> {
        self.engine.fork(SessionId(session)).map(|id| id.0).map_err(thrown)
    }

    /// An idle session as bytes. `logits` are those of some fixed ids, which say what model this is; `rest` is what the other parts of a
    /// split model have of it, and else empty.
    pub fn save(&mut self, session: u32, logits: Vec<f32>, rest: Vec<u8>) -> Js<Vec<u8>> {
        self.engine.save(SessionId(session), engine::fingerprint(&logits), &rest).map_err(thrown)
    }

    /// The session that was saved as these bytes, with the adapters it had (see `adapt`).
    pub fn restore(&mut self, bytes: Vec<u8>, logits: Vec<f32>, adapters: &[f64]) -> Js<u32> {
        let restored = self.engine.restore(&bytes, engine::fingerprint(&logits), &pairs(adapters));
        restored.map(|id| id.0).map_err(thrown)
    }

    /// Goes on with an idle session with these adapters alone: numbers and scales in turns.
    pub fn adapt(&mut self, session: u32, adapters: &[f64]) -> Js<()> {
        self.engine.adapt(SessionId(session), &pairs(adapters)).map_err(thrown)
    }

    /// Removes an adapter; sessions that use it keep it.
    #[wasm_bindgen(js_name = removeAdapter)]
    pub fn remove_adapter(&mut self, adapter: u32) {
        self.engine.remove_adapter(AdapterId(adapter));
    }

    /// The numbers of [`engine::Status`], in its order.
    pub fn status(&self) -> Vec<u32> {
        let Status { running, waiting, paused, kv_cache_tokens, used_tokens, evictable_tokens, states, used_states } =
            self.engine.status();
        let numbers = [running, waiting, paused, kv_cache_tokens, used_tokens, evictable_tokens, states, used_states];
        numbers.map(|number| number as u32).to_vec()
    }

    /// Ends a session and what runs on it.
    pub fn close(&mut self, session: u32) {
        self.engine.close(SessionId(session));
    }

    /// The ids that a session holds.
    pub fn tokens(&mut self, session: u32) -> Js<Vec<u32>> {
        self.engine.tokens(SessionId(session)).map(<[u32]>::to_vec).map_err(thrown)
    }

    /// Forgets all but the first `count` ids of an idle session.
    pub fn truncate(&mut self, session: u32, count: usize) -> Js<()> {
        self.engine.truncate(SessionId(session), count).map_err(thrown)
    }

    /// Adds a request: `{ type: "generate" | "logits" | "score" | "embed", … }`, where it generates sampled as these
    /// numbers say (see [`flat`]), else greedily.
    pub fn submit(&mut self, session: u32, tokens: Vec<u32>, task: &JsValue, numbers: Option<Vec<f64>>) -> Js<u32> {
        let request = Request { tokens, task: self::task(task, flat::decode(&numbers.unwrap_or_default())) };
        self.engine.submit(SessionId(session), request).map(|id| id.0).map_err(thrown)
    }

    /// Ends a request; no event of it comes any more.
    pub fn cancel(&mut self, request: u32) {
        self.engine.cancel(RequestId(request));
    }

    /// Lets a request wait for its reader, or go on.
    pub fn pause(&mut self, request: u32, paused: bool) {
        self.engine.pause(RequestId(request), paused);
    }

    /// Goes on with a request that awaits logits since its `choose` event: one for each token, -∞ for what must not be chosen. Returns events
    /// as `step` does.
    pub fn supply(&mut self, request: u32, logits: &[f32]) -> Js<Array> {
        let events = self.engine.resume(RequestId(request), logits).map_err(thrown)?;
        events_to_js(events)
    }

    /// Whether another step has anything to do.
    pub fn busy(&self) -> bool {
        self.engine.busy()
    }

    /// Computes for about `budget` milliseconds or until a batch is done. Returns events:
    /// `{ type: "prompt", request, tokens, cached }`, a token as the number `token · 2³² + request`, before it
    /// `{ type: "logprobs", request, chosen, ids, top }` where asked for, `{ type: "choose", request, logits }` (see `supply`),
    /// `{ type: "logits", request, position, logits }`, `{ type: "scored", request, nll, tokens }`,
    /// `{ type: "embedded", request, embedding }`, `{ type: "finished", request, reason }`, `{ type: "failed", request, error }`.
    pub fn step(&mut self, budget: f64) -> Js<Array> {
        let mut last = now();
        let until = last + budget;
        let events = match &mut self.profile {
            None => self.engine.step(&mut || now() >= until),
            Some(rows) => {
                let mut before = self.engine.tally();
                self.engine.observed_step(&mut |operation, tally| {
                    let time = now();
                    note(&mut rows[operation as usize], time - last, &before, &tally);
                    (last, before) = (time, tally);
                    time >= until
                })
            }
        };
        events_to_js(events.map_err(thrown)?)
    }
}

fn numbers(choices: Vec<Choice>) -> Vec<u8> {
    let place = |choice: &Choice| choice.ahead as usize + if choice.decided { 0 } else { Ahead::ALL.len() };
    choices.iter().flat_map(|choice| [choice.kind.index() as u8, place(choice) as u8]).collect()
}

fn note([calls, time, bytes, products]: &mut [f64; 4], ms: f64, before: &Tally, tally: &Tally) {
    *calls += 1.0;
    *time += ms;
    *bytes += (tally.weight_bytes - before.weight_bytes + tally.kv_bytes - before.kv_bytes) as f64;
    *products += (tally.weight_macs - before.weight_macs + tally.kv_macs - before.kv_macs) as f64;
}

/// The names of the operations that [`Engine::profile`] measures, in its order, separated by spaces.
#[wasm_bindgen]
pub fn operations() -> String {
    Operation::NAMES.join(" ")
}

fn events_to_js(events: Vec<Event>) -> Js<Array> {
    events.into_iter().map(event).collect()
}

fn event(event: Event) -> Js<JsValue> {
    // The event of every step is a number: an object with three properties costs more than the layers of some small models.
    if let Event::Token { request, token } = event {
        return Ok((f64::from(token) * REQUESTS + f64::from(request.0)).into());
    }
    let object = Object::new();
    let set = |name: &str, value: JsValue| Reflect::set(&object, &name.into(), &value);
    let head = |kind: &str, request: RequestId| -> Js<()> {
        set("type", kind.into())?;
        set("request", request.0.into())?;
        Ok(())
    };
    match event {
        Event::Prompt { request, tokens, cached } => {
            head("prompt", request)?;
            set("tokens", tokens.into())?;
            set("cached", cached.into())?;
        }
        Event::Token { .. } => {}
        Event::LogitsRequest { request, logits } => {
            head("choose", request)?;
            set("logits", Float32Array::from(&logits[..]).into())?;
        }
        Event::Logits { request, position, logits } => {
            head("logits", request)?;
            set("position", position.into())?;
            set("logits", Float32Array::from(&logits[..]).into())?;
        }
        Event::Logprobs { request, logprobs } => {
            head("logprobs", request)?;
            set("chosen", logprobs.chosen.into())?;
            let (ids, top): (Vec<u32>, Vec<f32>) = logprobs.top.into_iter().unzip();
            set("ids", Uint32Array::from(&ids[..]).into())?;
            set("top", Float32Array::from(&top[..]).into())?;
        }
        Event::Embedded { request, embedding } => {
            head("embedded", request)?;
            set("embedding", Float32Array::from(&embedding[..]).into())?;
        }
        Event::Scored { request, nll, tokens } => {
            head("scored", request)?;
            set("nll", nll.into())?;
            set("tokens", tokens.into())?;
        }
        Event::Finished { request, reason } => {
            head("finished", request)?;
            let reason = match reason {
                FinishReason::Stop => "stop",
                FinishReason::Length => "length",
            };
            set("reason", reason.into())?;
        }
        Event::Failed { request, error } => {
            head("failed", request)?;
            set("error", to_js(&error)?)?;
        }
    }
    Ok(object.into())
}
