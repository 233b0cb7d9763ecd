//! A model that is split by layers computes what it computes whole, bit for bit. `schedules` does the same with everything that sessions do.

use crate::common;

use common::split::Split;
use common::{Files, golden, prompt};
use ternlight::engine::{Event, Request, Task};
use ternlight::error::ErrorKind;
use ternlight::model::Options;
use ternlight::team::Team;

const MODELS: [&str; 14] = [
    "models/bitnet_online",
    "models/bitnet_packed",
    "models/llama_autobitlinear",
    "models/llama_bf16",
    "models/llama_bitlinear",
    "models/llama_bitlinear_rmsnorm",
    "models/llama_f32",
    "models/onebitllm_style",
    "models/qwen3",
    "models/qwen35",
    "models/trilm_style",
    "gguf/qwen35_odd.hadamard.F32.gguf",
    "gguf/llama_bitlinear.TQ2_0.gguf",
    "gguf/llama_bf16.Q4_K_M.gguf",
];

fn logits(engine: &mut Split, ids: &[u32]) -> Vec<Vec<f32>> {
    let session = engine.open();
    engine.submit(session, Request { tokens: ids.to_vec(), task: Task::Logits { all: true } }).unwrap();
    let mut rows = Vec::new();
    while engine.busy() {
        for event in engine.step(&mut || false).unwrap() {
            match event {
                Event::Logits { logits, .. } => rows.push(logits),
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
    rows
}

/// The cuts of a model of so many layers into two parts and into three.
fn cuts(layers: usize) -> Vec<Vec<usize>> {
    let two = (1..layers).map(|at| vec![at]);
    let three = (1..layers).flat_map(|first| (first + 1..layers).map(move |second| vec![first, second]));
    two.chain(three).collect()
}

#[test]
fn every_split_gives_the_logits_of_the_whole() {
    for model in MODELS {
        let files = Files::read(&golden(model));
        let plan = files.plan(Options::default()).unwrap();
        let vocab = plan.config.vocab as u32;
        let ids: Vec<u32> = prompt(70, 3).into_iter().map(|id| id % vocab).collect();
        let options = Options { prefill_chunk: 48, ..Options::default() };
        let expected = logits(&mut Split::load(&files, &options, &[], Team::solo).unwrap(), &ids);
        assert_eq!(expected.len(), ids.len());
        for cuts in cuts(plan.config.layers) {
            let found = logits(&mut Split::load(&files, &options, &cuts, Team::solo).unwrap(), &ids);
            assert!(found == expected, "{model} before layers {cuts:?}");
        }
    }
}

/// A file of which one layer alone is not ternary with one scale is rounded otherwise, in every part.
#[test]
fn parts_agree_how_inputs_are_rounded() {
    let files = Files::read(&golden("gguf/llama_bitlinear.TQ2_0.gguf"));
    let mut engine = files.engine(Options { end_layer: Some(1), ..Options::default() }, Team::solo()).unwrap();
    let before = engine.model().layer_precision();
    assert!(engine.agree(true));
    assert_eq!(engine.model().layer_precision(), before);
    assert!(engine.agree(false));
    assert_ne!(engine.model().layer_precision(), before);
}

#[test]
fn the_memory_of_parts_is_that_of_the_whole() {
    for model in ["models/llama_f32", "models/qwen35"] {
        let files = Files::read(&golden(model));
        let options = Options::default();
        let plan = files.plan(options.clone()).unwrap();
        let whole = plan.memory();
        let layers = plan.config.layers;
        let parts = [(0, 1), (1, layers)].map(|(first_layer, end)| {
            let options = Options { first_layer, end_layer: Some(end), ..options.clone() };
            let memory = plan.memory_with(&options).unwrap();
            assert_eq!(files.plan(options).unwrap().memory(), memory);
            memory
        });
        assert_eq!(parts.iter().map(|part| part.weights).sum::<u64>(), whole.weights);
        assert_eq!(parts.iter().map(|part| part.kv).sum::<u64>(), whole.kv);
        assert_eq!(parts.iter().map(|part| part.states).sum::<u64>(), whole.states);
        assert!(parts.iter().all(|part| part.scratch <= whole.scratch));
    }
}

#[test]
fn layers_that_the_model_has_not_are_refused() {
    let files = Files::read(&golden("models/llama_f32"));
    for (first_layer, end) in [(0, 4), (2, 2), (3, 1)] {
        let options = Options { first_layer, end_layer: Some(end), ..Options::default() };
        let error = common::error(files.plan(options));
        assert_eq!((error.kind, error.place.option.as_deref()), (ErrorKind::InvalidArgument, Some("endLayer")));
    }
}
