//! Models from files, as a host would load them: headers first, then the planned ranges in chunks.

#![allow(dead_code, reason = "each test uses its own part")]

pub mod craft;
pub mod hybrid;
pub mod lora;
pub mod models;
pub mod mtp;
pub mod split;
pub mod trial;

use std::path::{Path, PathBuf};

use ternlight::engine::{AdapterId, Engine, Event, Request, RequestId, SessionId, Task, WhenFull};
use ternlight::error::{Error, Result};
use ternlight::formats::{Parsed, Tensor, safetensors};
use ternlight::kernels::isa::scalar::Scalar;
use ternlight::model::plan::ByteRange;
use ternlight::model::{Adapter, Checkpoint, Config, Loader, Model, Options, Plan};
use ternlight::rng::Rng;
use ternlight::sampling::{Lists, Params};
use ternlight::team::Team;

pub type TestEngine = Engine<Scalar>;

pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path)
}

/// The files of a model, whole in memory.
#[derive(Clone)]
pub struct Files {
    pub config: Option<Vec<u8>>,
    pub weights: Vec<Vec<u8>>,
}

/// So many members, in a build that has threads.
pub fn team(members: usize) -> Team {
    #[cfg(feature = "threads")]
    return Team::new(members).unwrap();
    #[cfg(not(feature = "threads"))]
    {
        let _ = members;
        Team::solo()
    }
}

impl Files {
    pub fn read(path: &Path) -> Self {
        let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if path.is_dir() {
            let peft = path.join("adapter_config.json");
            if peft.exists() {
                let weights = vec![read(&path.join("adapter_model.safetensors"))];
                return Self { config: Some(read(&peft)), weights };
            }
            let config = Some(read(&path.join("config.json")));
            let index = path.join("model.safetensors.index.json");
            let weights = if index.exists() {
                let map = json(&index)["weight_map"].as_object().unwrap().clone();
                let names: std::collections::BTreeSet<String> =
                    map.values().map(|name| name.as_str().unwrap().to_owned()).collect();
                names.iter().map(|name| read(&path.join(name))).collect()
            } else {
                vec![read(&path.join("model.safetensors"))]
            };
            Self { config, weights }
        } else {
            Self { config: None, weights: vec![read(path)] }
        }
    }

    /// The files' headers, parsed as a host does: with as few bytes as the parser asks for.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new();
        for (file, bytes) in self.weights.iter().enumerate() {
            need(bytes, |prefix| checkpoint.parse(file, bytes.len() as u64, prefix))?;
        }
        if let Some(json) = &self.config {
            checkpoint.set_config(json.clone());
        }
        Ok(checkpoint)
    }

    pub fn plan(&self, options: Options) -> Result<Plan> {
        let mut plan = self.checkpoint()?.plan(options)?;
        let rows: Vec<&[u8]> = plan
            .probes()
            .iter()
            .map(|probe| &self.weights[probe.range.file][probe.range.offset as usize..][..probe.range.len as usize])
            .collect();
        plan.decide(&rows)?;
        Ok(plan)
    }

    /// Loads in chunks of this many bytes.
    pub fn load(&self, options: Options, chunk: usize) -> Result<(Model, Plan)> {
        let mut loader = Loader::new(self.plan(options)?)?;
        let team = team(2);
        for (file, bytes) in self.weights.iter().enumerate() {
            for (i, part) in bytes.chunks(chunk).enumerate() {
                loader.feed(&team, file, (i * chunk) as u64, part)?;
            }
        }
        loader.finish()
    }

    /// An adapter, made for a model of this kind: PEFT's with its `adapter_config.json`, or a GGUF.
    pub fn adapter(&self, config: &Config) -> Result<Adapter> {
        let [bytes] = &self.weights[..] else { panic!("adapters are one file") };
        let mut loader = self.checkpoint()?.adapter(config)?;
        let ranges: Vec<ByteRange> = loader.ranges().collect();
        let promised = loader.bytes;
        for (index, ByteRange { offset, len, .. }) in ranges.into_iter().enumerate() {
            loader.feed(index, bytes[offset as usize..][..len as usize].to_vec())?;
        }
        let adapter = loader.finish()?;
        assert_eq!(adapter.bytes, promised);
        Ok(adapter)
    }

    pub fn engine(&self, options: Options, team: Team) -> Result<TestEngine> {
        let (model, plan) = self.load(options, 1 << 16)?;
        Engine::new(model, &plan, team)
    }
}

/// Parses as a host does: with as little as the parser says it needs.
pub fn need<T>(bytes: &[u8], mut parse: impl FnMut(&[u8]) -> Result<Parsed<T>>) -> Result<T> {
    let mut have = 0;
    for _ in 0..100_000 {
        match parse(&bytes[..have])? {
            Parsed::Done(done) => return Ok(done),
            Parsed::Need(more) => {
                let more = more as usize;
                assert!(more > have && more <= bytes.len(), "needs {more} of {} with {have}", bytes.len());
                have = more.max(2 * have).min(bytes.len());
            }
        }
    }
    panic!("the parser never has enough");
}

/// Tokens at random, of the golden models' 512.
pub fn prompt(len: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(500) as u32).collect()
}

pub fn logits(engine: &mut TestEngine, ids: &[u32], all: bool) -> Result<Vec<Vec<f32>>> {
    let session = engine.open();
    rows(engine, session, ids, all)
}

fn rows(engine: &mut TestEngine, session: SessionId, ids: &[u32], all: bool) -> Result<Vec<Vec<f32>>> {
    let request = Request { tokens: ids.to_vec(), task: Task::Logits { all } };
    engine.submit(session, request)?;
    let mut rows = Vec::new();
    run(engine, |event| {
        if let Event::Logits { logits, .. } = event {
            rows.push(logits);
        }
    })?;
    engine.close(session);
    Ok(rows)
}

/// The logits of every position with these adapters.
pub fn adapted(engine: &mut TestEngine, ids: &[u32], adapters: &[(AdapterId, f32)]) -> Result<Vec<Vec<f32>>> {
    let session = engine.open();
    engine.adapt(session, adapters)?;
    rows(engine, session, ids, true)
}

pub fn greedy(engine: &mut TestEngine, ids: &[u32], count: usize) -> Result<Vec<u32>> {
    let session = engine.open();
    submit(engine, session, ids, count, Params::default())?;
    let mut tokens = Vec::new();
    run(engine, |event| {
        if let Event::Token { token, .. } = event {
            tokens.push(token);
        }
    })?;
    engine.close(session);
    Ok(tokens)
}

pub fn submit(
    engine: &mut TestEngine,
    session: SessionId,
    ids: &[u32],
    count: usize,
    params: Params,
) -> Result<RequestId> {
    let task = Task::Generate {
        params,
        lists: Lists::default(),
        max_tokens: Some(count),
        end: Vec::new(),
        full: WhenFull::Stop,
        hook: false,
    };
    engine.submit(session, Request { tokens: ids.to_vec(), task })
}

/// Steps until nothing is left to do.
pub fn run(engine: &mut TestEngine, mut each: impl FnMut(Event)) -> Result<()> {
    let mut steps = 0;
    while engine.busy() {
        steps += 1;
        assert!(steps < 1_000_000, "it never ends");
        for event in engine.step(&mut || false)? {
            if let Event::Failed { error, .. } = event {
                return Err(error);
            }
            each(event);
        }
    }
    Ok(())
}

pub fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The tensors of a golden safetensors file.
pub struct Golden {
    tensors: Vec<Tensor>,
    bytes: Vec<u8>,
}

impl Golden {
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let Ok(Parsed::Done(parsed)) = safetensors::parse(&bytes, bytes.len() as u64) else {
            panic!("bad golden file")
        };
        Self { tensors: parsed.tensors, bytes }
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f32>> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name)?;
        Some(tensor.storage.unwrap().values(&self.bytes[tensor.offset as usize..][..tensor.len as usize]))
    }
}

pub fn ids(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[derive(Debug)]
pub struct Distance {
    pub max: f32,
    pub one_minus_cosine: f64,
}

pub fn distance(found: &[f32], expected: &[f32]) -> Distance {
    assert_eq!(found.len(), expected.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let max = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    Distance {
        max,
        one_minus_cosine: 1.0 - dot(found, expected) / (dot(found, found) * dot(expected, expected)).sqrt(),
    }
}

pub fn error(result: Result<impl Sized>) -> Error {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error,
    }
}
