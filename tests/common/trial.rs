//! Whatever bytes come, they end in an answer or in an error that says why. Mutation tests and fuzz targets share these trials;
//! a panic in here is a bug found.

use ternlight::error::Result;
use ternlight::formats::{Format, Parsed, gguf};
use ternlight::model::describe::Description;
use ternlight::model::plan::Memory;
use ternlight::model::{Checkpoint, Loader, Options, Plan};
use ternlight::quant::{self, Content, Interleave, Storage, ternary};
use ternlight::rng::Rng;
use ternlight::team::Team;

use super::{Files, TestEngine, adapted, logits};

/// The beginning of a file of `total` bytes, and the `config.json` that safetensors have, as far as a plan; `false` where more of the
/// file is asked for.
pub fn header(config: Option<&[u8]>, bytes: &[u8], total: u64) -> Result<bool> {
    let mut checkpoint = Checkpoint::new();
    if let Parsed::Need(more) = checkpoint.parse(0, total, bytes)? {
        assert!(more > bytes.len() as u64 && more <= total, "needs {more} of {total} with {}", bytes.len());
        return Ok(false);
    }
    if let Some(config) = config {
        checkpoint.set_config(config.to_vec());
    }
    checkpoint.metadata()?;
    plan(checkpoint.plan(Options::default())?);
    Ok(true)
}

/// What can be asked of a plan.
fn plan(plan: Plan) {
    let Memory { weights, kv, states, scratch, total } = plan.memory();
    assert_eq!(Some(total), weights.checked_add(kv).and_then(|sum| sum.checked_add(states)?.checked_add(scratch)));
    Description::new(Format::Gguf, &plan, None, &Default::default());
    assert!(plan.ranges().is_sorted());
}

/// A whole model, from its headers to logits; they are finite, or not given.
pub fn checkpoint(files: &Files, rng: &mut Rng) -> Result<()> {
    let plan = files.plan(Options { context_length: Some(8), prefill_chunk: 2, ..Options::default() })?;
    let mut loader = Loader::new(plan)?;
    for (file, bytes) in files.weights.iter().enumerate() {
        for (from, to) in arrival(bytes.len(), rng) {
            loader.feed(&Team::solo(), file, from as u64, &bytes[from..to])?;
        }
    }
    let (model, plan) = loader.finish()?;
    let mut engine = TestEngine::new(model, &plan, Team::solo())?;
    let rows = logits(&mut engine, &[0, 0], true)?;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().flatten().all(|logit| logit.is_finite()), "logits that are not finite");
    Ok(())
}

/// An adapter on a model that has others' requests to answer: its logits are finite or not given, and without it all is as before.
pub fn adapter(engine: &mut TestEngine, files: &Files) -> Result<()> {
    let adapter = files.adapter(&engine.model().config)?;
    let id = engine.add_adapter(adapter, None)?;
    let rows = adapted(engine, &[0, 1], &[(id, 1.0)]);
    engine.remove_adapter(id);
    assert!(rows?.iter().flatten().all(|logit| logit.is_finite()), "logits that are not finite");
    Ok(())
}

/// The chunks of a file: of any size, in any order, some twice; now and then one is lost.
fn arrival(len: usize, rng: &mut Rng) -> Vec<(usize, usize)> {
    let mut cuts: Vec<usize> = (0..rng.below(40)).map(|_| rng.below(len + 1)).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    let mut chunks: Vec<_> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
    if rng.below(2) == 0 {
        for i in (1..chunks.len()).rev() {
            chunks.swap(i, rng.below(i + 1));
        }
        chunks.extend_from_within(..chunks.len() / 4);
    }
    if rng.below(16) == 0 {
        chunks.pop();
    }
    chunks
}

/// A fuzzer's bytes as a model: a GGUF, or a `config.json`, a 0 and safetensors.
pub fn files(bytes: &[u8]) -> Files {
    match bytes.iter().position(|&byte| byte == 0) {
        Some(at) if !bytes.starts_with(gguf::MAGIC) => {
            Files { config: Some(bytes[..at].to_vec()), weights: vec![bytes[at + 1..].to_vec()] }
        }
        _ => Files { config: None, weights: vec![bytes.to_vec()] },
    }
}

/// Blocks of the type that the first byte chooses: codes stay within their bits, whatever the bytes.
pub fn blocks(bytes: &[u8]) {
    let Some((&id, bytes)) = bytes.split_first() else { return };
    let Some(storage) = quant::by_ggml_id(u32::from(id)) else { return };
    match storage.content {
        Content::Blocks { layout, decode } => {
            for block in bytes.chunks_exact(storage.bytes) {
                let (mut codes, mut scales, mut mins) = ([0xff; 256], [0.0; 16], [0.0; 16]);
                let quant::Scales::Group { len, .. } = layout.scales else { panic!("blocks have groups") };
                let groups = storage.block / len;
                let codes = &mut codes[..storage.block];
                decode(
                    block,
                    quant::Block {
                        codes,
                        scales: &mut scales[..groups],
                        mins: &mut mins[..groups],
                        super_scales: &mut [0.0; 2],
                    },
                );
                let most = match layout.codes {
                    quant::Codes::B6 => 63,
                    codes => 0xff >> (8 - codes.bits()),
                };
                assert!(codes.iter().all(|&code| code <= most), "{}: a code of more than its bits", storage.name);
            }
        }
        Content::Dense(_) => {}
        Content::I2s => {
            for interleave in [Interleave::By128, Interleave::By64] {
                let mut codes = vec![0xff; bytes.len() / 32 * 128];
                match interleave {
                    Interleave::By128 => ternary::i2_s(bytes, &mut codes),
                    Interleave::By64 => ternary::i2_s_arm(bytes, &mut codes),
                }
                assert!(codes.iter().all(|&code| code <= 3));
            }
            return;
        }
        Content::HfPacked | Content::MlxPacked => return,
    }
    values(storage, bytes);
}

fn values(storage: &'static Storage, bytes: &[u8]) {
    let whole = bytes.len() / storage.bytes * storage.bytes;
    let values = storage.values(&bytes[..whole]);
    assert_eq!(Some(whole as u64), storage.size(values.len() as u64));
}
