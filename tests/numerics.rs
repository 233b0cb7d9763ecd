//! How far logits are from transformers', by model family and by how activations are rounded. Prints the table of
//! docs/numerics.md, and fails where that page differs: `cargo test --test integration numerics -- --nocapture`.

use crate::common;

use common::{Files, Golden, TestEngine, golden, ids, json, logits};
use ternlight::kernels::act::Precision::{self, Float, Int8, Int14};
use ternlight::model::Options;
use ternlight::sampling::argmax;
use ternlight::team::Team;

struct Family {
    name: &'static str,
    model: &'static str,
    /// Golden values, and which of their logits.
    values: &'static str,
    suffix: &'static str,
    /// The most that the largest and the mean difference may be, for each of [`ROUNDINGS`]; `None` for what changes nothing.
    most: [Option<(f64, f64)>; 4],
}

const ROUNDINGS: [(&str, Option<Precision>); 4] =
    [("auto", None), ("int8", Some(Int8)), ("int14", Some(Int14)), ("float", Some(Float))];

/// Where transformers rounds as we do: one code may move, and a logit with it by half (see `tests/golden/README.md`).
const SAME: Option<(f64, f64)> = Some((0.5, 0.08));
/// Where one of the two rounds to 8 bits and the other does not.
const COARSE: Option<(f64, f64)> = Some((1.5, 0.25));
/// Fourteen bits against floats.
const FINE: Option<(f64, f64)> = Some((0.02, 0.003));
/// Floats against floats: the order of sums.
const EXACT: Option<(f64, f64)> = Some((1e-4, 2e-5));
/// Dense weights meet floats whatever is asked.
const DENSE: [Option<(f64, f64)>; 4] = [EXACT, None, None, None];
const TRAINED_INT8: [Option<(f64, f64)>; 4] = [SAME, None, COARSE, COARSE];
const TRAINED_FLOAT: [Option<(f64, f64)>; 4] = [FINE, COARSE, None, EXACT];
const BY_GROUPS: [Option<(f64, f64)>; 4] = [COARSE, None, FINE, EXACT];

const fn checkpoint(
    name: &'static str,
    model: &'static str,
    values: &'static str,
    most: [Option<(f64, f64)>; 4],
) -> Family {
    Family { name, model, values, suffix: "", most }
}

/// A GGUF against transformers with the file's own weights.
const fn file(name: &'static str, model: &'static str, values: &'static str, most: [Option<(f64, f64)>; 4]) -> Family {
    Family { name, model, values, suffix: "_float_act", most }
}

const FAMILIES: [Family; 15] = [
    checkpoint("BitNet 2B-4T style, packed U8", "models/bitnet_packed", "models/bitnet_packed/golden", TRAINED_INT8),
    checkpoint("the same, bf16 masters", "models/bitnet_online", "models/bitnet_online/golden", TRAINED_INT8),
    checkpoint("the same, I2_S GGUF", "gguf/bitnet_packed.b158.I2_S.gguf", "models/bitnet_packed/golden", TRAINED_INT8),
    checkpoint("1bitLLM style, bf16 masters", "models/onebitllm_style", "models/onebitllm_style/golden", TRAINED_INT8),
    checkpoint("Falcon-E, HF1BitLLM style", "models/llama_bitlinear", "models/llama_bitlinear/golden", TRAINED_INT8),
    checkpoint(
        "the same with norms of projections",
        "models/llama_bitlinear_rmsnorm",
        "models/llama_bitlinear_rmsnorm/golden",
        TRAINED_INT8,
    ),
    checkpoint(
        "Llama with autobitlinear",
        "models/llama_autobitlinear",
        "models/llama_autobitlinear/golden",
        TRAINED_INT8,
    ),
    checkpoint("TriLM style, f16", "models/trilm_style", "models/trilm_style/golden", TRAINED_FLOAT),
    file("TriLM style, TQ2_0 GGUF", "gguf/trilm_style.TQ2_0.gguf", "gguf/trilm_style.TQ2_0.golden", TRAINED_FLOAT),
    file("Bonsai style, Q1_0 GGUF", "gguf/qwen3.Q1_0_all.gguf", "gguf/qwen3.Q1_0_all.golden", BY_GROUPS),
    file("Bonsai style, Q2_0 GGUF", "gguf/qwen3.Q2_0_all.gguf", "gguf/qwen3.Q2_0_all.golden", BY_GROUPS),
    file("Llama, Q4_K_M GGUF", "gguf/llama_bf16.Q4_K_M.gguf", "gguf/llama_bf16.Q4_K_M.golden", TRAINED_FLOAT),
    checkpoint("Llama, bf16", "models/llama_bf16", "models/llama_bf16/golden", DENSE),
    checkpoint("Llama, f32, llama3 RoPE", "models/llama_f32", "models/llama_f32/golden", DENSE),
    checkpoint("Qwen3, bf16", "models/qwen3", "models/qwen3/golden", DENSE),
];

/// Differences over all positions that the golden data have.
#[derive(Default)]
struct Deviation {
    max: f64,
    sum: f64,
    values: usize,
    positions: usize,
    agree: usize,
    /// Clear winners that lost.
    lost: usize,
    kl: f64,
}

impl Deviation {
    fn add(&mut self, found: &[f32], expected: &[f32], clear: f64) {
        let differences = found.iter().zip(expected).map(|(a, b)| f64::from((a - b).abs()));
        self.max = differences.clone().fold(self.max, f64::max);
        self.sum += differences.sum::<f64>();
        self.values += found.len();
        self.positions += 1;
        let best = argmax(expected);
        let agrees = argmax(found) == best;
        self.agree += usize::from(agrees);
        let second = expected.iter().enumerate().filter(|&(i, _)| i != best).map(|(_, &l)| l).fold(f32::MIN, f32::max);
        self.lost += usize::from(!agrees && f64::from(expected[best] - second) > clear);
        let (p, q) = (log_softmax(expected), log_softmax(found));
        self.kl += p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
    }

    fn mean(&self) -> f64 {
        self.sum / self.values as f64
    }
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().fold(f32::MIN, |a, &b| a.max(b));
    let total: f64 = logits.iter().map(|&logit| f64::from(logit - most).exp()).sum();
    logits.iter().map(|&logit| f64::from(logit - most) - total.ln()).collect()
}

fn measure(family: &Family, activations: Option<Precision>, clear: f64) -> (Precision, Deviation) {
    let options = Options { activations: activations.map(Into::into), ..Options::default() };
    let (model, plan) = Files::read(&golden(family.model)).load(options, 1 << 16).unwrap();
    let precision = model.layer_precision().expect("a layer");
    let mut engine = TestEngine::new(model, &plan, Team::solo()).unwrap();
    let values = Golden::read(&golden(&format!("{}.safetensors", family.values)));
    let meta = json(&golden(&format!("{}.json", family.values)));
    let mut deviation = Deviation::default();
    for (i, prompt) in meta["prompts"].as_array().unwrap().iter().enumerate() {
        let rows = logits(&mut engine, &ids(&prompt["input_ids"]), true).unwrap();
        let width = rows[0].len();
        match values.floats(&format!("p{i}.logits{}", family.suffix)) {
            Some(all) => {
                rows.iter()
                    .zip(all.chunks_exact(width))
                    .for_each(|(row, expected)| deviation.add(row, expected, clear));
            }
            None => {
                let last = values.floats(&format!("p{i}.logits{}_last", family.suffix)).expect("golden logits");
                deviation.add(rows.last().unwrap(), &last, clear);
            }
        }
    }
    (precision, deviation)
}

/// Two digits that count.
fn short(value: f64) -> String {
    match value {
        _ if value < 1e-9 => "0".to_owned(),
        _ if value < 1e-3 => format!("{value:.0e}"),
        _ if value < 0.1 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

#[test]
fn logits_follow_transformers() {
    let mut failed = Vec::new();
    let document = std::fs::read_to_string(golden("../../docs/numerics.md")).unwrap();
    println!("| Model | `auto` is | Largest | Mean | Same winner | KL, nats | with int8 | with int14 | with float |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for family in &FAMILIES {
        let mut line = format!("| {} |", family.name);
        for ((name, activations), most) in ROUNDINGS.into_iter().zip(family.most) {
            let Some((max, mean)) = most else {
                line += " |";
                continue;
            };
            let (precision, found) = measure(family, activations, 2.0 * max);
            let winners = format!("{} of {}", found.agree, found.positions);
            line += &match activations {
                None => {
                    let kl = (found.kl / found.positions as f64).max(0.0);
                    let (max, mean) = (short(found.max), short(found.mean()));
                    format!(" {} | {max} | {mean} | {winners} | {} |", precision.name(), short(kl))
                }
                Some(_) => format!(" {}, {winners} |", short(found.max)),
            };
            if found.max > max || found.mean() > mean || found.lost > 0 {
                failed.push(format!("{}, {name}: {} {} {}", family.name, found.max, found.mean(), found.lost));
            }
        }
        println!("{line}");
        if !document.lines().any(|other| other == line) {
            failed.push(format!("docs/numerics.md has another line for {}", family.name));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
