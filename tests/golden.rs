//! Whole models against the values of other implementations. `tests/golden/README.md` derives the tolerances.

use crate::common;

use common::{Files, Golden, TestEngine, distance, golden, greedy, ids, json, logits};
use ternlight::kernels::act::Precision;
use ternlight::model::Options;
use ternlight::sampling::argmax;
use ternlight::team::Team;

/// How near a model's logits must come.
struct Tolerance {
    /// Of every logit, on every prompt …
    all: f32,
    /// … and on most prompts.
    most: f32,
    one_minus_cosine: f64,
}

/// Models whose activations are never rounded: only the order of sums differs.
const FLOAT: Tolerance = Tolerance { all: 1e-4, most: 1e-4, one_minus_cosine: 1e-9 };
/// Where an activation sits on a rounding boundary its code may move by one, and the logits by up to half.
const INT8: Tolerance = Tolerance { all: 0.5, most: 1e-3, one_minus_cosine: 5e-4 };
/// A reference that rounds activations or the cache in another way than training did.
const OTHER_ROUNDING: Tolerance = Tolerance { all: 1.0, most: 1.0, one_minus_cosine: 1.5e-3 };
/// The same weights with float activations, against our fourteen bits.
const INT14: Tolerance = Tolerance { all: 0.02, most: 0.01, one_minus_cosine: 1e-6 };

struct Case {
    model: &'static str,
    values: &'static str,
    /// Which of the golden logits.
    suffix: &'static str,
    tolerance: Tolerance,
    options: Options,
}

fn case(model: &'static str, values: &'static str, suffix: &'static str, tolerance: Tolerance) -> Case {
    Case { model, values, suffix, tolerance, options: Options::default() }
}

fn check(case: &Case) -> Vec<String> {
    let Tolerance { all, most, one_minus_cosine } = case.tolerance;
    let files = Files::read(&golden(case.model));
    let mut engine = files.engine(case.options.clone(), Team::solo()).unwrap();
    let values = Golden::read(&golden(&format!("{}.safetensors", case.values)));
    let meta = json(&golden(&format!("{}.json", case.values)));
    let mut failed = Vec::new();
    let mut near = 0;
    let prompts = meta["prompts"].as_array().unwrap();
    for (i, prompt) in prompts.iter().enumerate() {
        let tokens = ids(&prompt["input_ids"]);
        let rows = logits(&mut engine, &tokens, true).unwrap();
        assert_eq!(rows.len(), tokens.len());
        let expected = values.floats(&format!("p{i}.logits{}_last", case.suffix)).expect("golden logits");
        let last = distance(rows.last().unwrap(), &expected);
        if last.max > all || last.one_minus_cosine > one_minus_cosine {
            failed.push(format!("{} prompt {i}: {last:?}", case.model));
        }
        near += usize::from(last.max <= most);
        // Every position, where the golden data have them: the clear winners must win.
        if let Some(expected) = values.floats(&format!("p{i}.logits{}", case.suffix)) {
            for (position, (row, expected)) in rows.iter().zip(expected.chunks_exact(row_len(&rows))).enumerate() {
                if margin(expected) > 2.0 * all && argmax(row) != argmax(expected) {
                    failed.push(format!("{} prompt {i}, position {position}: another winner", case.model));
                }
            }
        }
        if case.suffix.is_empty()
            && let Some(expected) = prompt.get("greedy")
        {
            failed.extend(follow(&mut engine, &tokens, expected, &prompt["greedy_margins"], all, case.model));
        }
    }
    if 2 * near <= prompts.len() {
        failed.push(format!("{}: only {near} of {} prompts within {most}", case.model, prompts.len()));
    }
    failed
}

fn row_len(rows: &[Vec<f32>]) -> usize {
    rows[0].len()
}

fn margin(logits: &[f32]) -> f32 {
    let best = argmax(logits);
    logits
        .iter()
        .enumerate()
        .filter(|&(i, _)| i != best)
        .fold(f32::INFINITY, |least, (_, l)| least.min(logits[best] - l))
}

/// Greedy decoding may leave the golden path only where its two best logits are closer than both may be off.
fn follow(
    engine: &mut TestEngine,
    tokens: &[u32],
    expected: &serde_json::Value,
    margins: &serde_json::Value,
    tolerance: f32,
    name: &str,
) -> Option<String> {
    let expected = ids(expected);
    let found = greedy(engine, tokens, expected.len()).unwrap();
    let fork = expected.iter().zip(&found).position(|(a, b)| a != b)?;
    let margin = margins[fork].as_f64().unwrap() as f32;
    (margin > 2.0 * tolerance).then(|| format!("{name}: leaves the greedy path at {fork} with a margin of {margin}"))
}

fn check_all(cases: &[Case]) {
    let failed: Vec<String> = cases.iter().flat_map(check).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn ternary_checkpoints_follow_transformers() {
    check_all(&[
        case("models/bitnet_packed", "models/bitnet_packed/golden", "", INT8),
        case("models/llama_bitlinear", "models/llama_bitlinear/golden", "", INT8),
        case("models/llama_bitlinear_rmsnorm", "models/llama_bitlinear_rmsnorm/golden", "", INT8),
        case("models/llama_autobitlinear", "models/llama_autobitlinear/golden", "", INT8),
        case("models/bitnet_online", "models/bitnet_online/golden", "", INT8),
        case("models/onebitllm_style", "models/onebitllm_style/golden", "", INT8),
        case("gguf/bitnet_packed.b158.I2_S.gguf", "models/bitnet_packed/golden", "", INT8),
    ]);
}

fn with(precision: Precision, case: Case) -> Case {
    Case { options: Options { activations: Some(precision.into()), ..Options::default() }, ..case }
}

#[test]
fn float_models_follow_transformers() {
    check_all(&[
        case("models/llama_f32", "models/llama_f32/golden", "", FLOAT),
        case("models/llama_bf16", "models/llama_bf16/golden", "", FLOAT),
        case("models/qwen3", "models/qwen3/golden", "", FLOAT),
        with(Precision::Float, case("models/trilm_style", "models/trilm_style/golden", "", FLOAT)),
        case("models/trilm_style", "models/trilm_style/golden", "", INT14),
        case("gguf/llama_f32.F32.gguf", "gguf/llama_f32.F32.golden", "_float_act", FLOAT),
        with(
            Precision::Float,
            case("gguf/onebitllm_style.F16.gguf", "gguf/onebitllm_style.F16.golden", "_float_act", FLOAT),
        ),
    ]);
}

/// Every file whose weights were never rounded for training, against the same weights and float activations.
const QUANTISED: [&str; 16] = [
    "llama_bf16.Q4_0",
    "llama_bf16.Q4_1",
    "llama_bf16.Q4_K_M",
    "llama_bf16.Q6_K",
    "llama_bf16.Q8_0",
    "llama_bitlinear.TQ1_0",
    "llama_bitlinear.TQ2_0",
    "onebitllm_style.TQ1_0",
    "onebitllm_style.TQ2_0",
    "trilm_style.TQ1_0",
    "trilm_style.TQ2_0",
    "qwen3.Q1_0",
    "qwen3.Q1_0_all",
    "qwen3.Q2_0",
    "qwen3.Q2_0_all",
    "qwen3.Q8_0",
];

/// transformers 5.23 on the same weights with other `rope_parameters`: the first logits behind the random prompt, and the largest.
#[test]
fn yarn_is_that_of_transformers() {
    let mut files = Files::read(&golden("models/qwen3"));
    let config = json(&golden("models/qwen3/config.json"));
    let tokens = ids(&json(&golden("models/qwen3/golden.json"))["prompts"][3]["input_ids"]);
    let usual = serde_json::json!({ "factor": 4.0, "original_max_position_embeddings": 64 });
    let mut own = usual.clone();
    own["beta_fast"] = 8.into();
    own["beta_slow"] = 2.into();
    own["attention_factor"] = 1.5.into();
    for (yarn, best, expected) in [
        (usual, 438, [-0.3231, -3.5675, 1.8686, 0.0073, 1.7712, -8.2017]),
        (own, 467, [3.1654, 2.0831, 4.5487, 3.5951, 5.4474, -2.804]),
    ] {
        let mut config = config.clone();
        let rope = config["rope_parameters"].as_object_mut().unwrap();
        rope.insert("rope_type".to_owned(), "yarn".into());
        rope.extend(yarn.as_object().unwrap().clone());
        files.config = Some(config.to_string().into_bytes());
        let mut engine = files.engine(Options::default(), Team::solo()).unwrap();
        let row = logits(&mut engine, &tokens, false).unwrap().remove(0);
        for (found, expected) in row.iter().zip(expected) {
            assert!((found - expected).abs() < 2e-4, "{found} for {expected}, {yarn}");
        }
        assert_eq!(argmax(&row), best, "{yarn}");
    }
}

fn quantised(name: &'static str, tolerance: Tolerance) -> Case {
    let leak = |text: String| -> &'static str { text.leak() };
    case(leak(format!("gguf/{name}.gguf")), leak(format!("gguf/{name}.golden")), "_float_act", tolerance)
}

#[test]
fn quantised_files_follow_their_own_weights() {
    // Nothing is rounded: what is left is the order of sums.
    let exact = || Tolerance { all: 1e-3, most: 1e-3, one_minus_cosine: 1e-9 };
    check_all(&QUANTISED.map(|name| with(Precision::Float, quantised(name, exact()))));
    check_all(&QUANTISED.map(|name| with(Precision::Int14, quantised(name, INT14))));
}

#[test]
fn files_stay_near_the_native_engines() {
    let near = |name| Case { suffix: "", ..quantised(name, OTHER_ROUNDING) };
    check_all(&QUANTISED.map(near));
    check_all(&["llama_bitlinear.I2_S", "onebitllm_style.I2_S", "onebitllm_style.F16"].map(near));
}
