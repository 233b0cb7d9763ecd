//! Every storage type in every architecture, from either source, against the same values as F32; the table of
//! docs/guide/formats.md lists what is tested here, and this test fails where the two differ.

use crate::common;

use std::collections::BTreeMap;

use common::craft::{BLOCKS, Entry};
use common::hybrid::{Sizes, Weights};
use common::models::{
    ARCHITECTURES, Architecture, Coded, FLOATS, Made, Maker, blocks, dense_values, entry, f32s, floats, ternary_values,
};
use common::{Files, distance, golden, logits};
use half::f16;
use serde_json::{Value, json};
use ternlight::kernels::act::Precision;
use ternlight::model::items::{Reading, Target};
use ternlight::model::{Options, Plan};
use ternlight::quant::{self, Interleave, Storage};
use ternlight::rng::Rng;
use ternlight::team::Team;

/// Runs both with float activations; says by how much they differ where that is more than the order of sums explains.
fn differ(files: &Files, values: &Files, options: Options) -> Option<String> {
    let ids = [3, 1, 4, 1, 5, 9, 2, 6];
    let run = |files: &Files, options: Options| {
        let options = Options { activations: Some(Precision::Float.into()), prefill_chunk: 8, ..options };
        logits(&mut files.engine(options, Team::solo())?, &ids, true)
    };
    let expected = run(values, Options { repack: false, ..Options::default() }).unwrap();
    let found = match run(files, options) {
        Ok(found) => found,
        Err(error) => return Some(error.to_string()),
    };
    let (found, expected) = (found.concat(), expected.concat());
    let size = (expected.iter().map(|logit| logit * logit).sum::<f32>() / expected.len() as f32).sqrt();
    let distance = distance(&found, &expected);
    (size < 0.1 || distance.max > 2e-5 * size).then(|| format!("{distance:?} at logits of {size}"))
}

/// What was right, by row of the table, family and source.
#[derive(Default)]
struct Marks {
    rows: Vec<&'static str>,
    marks: BTreeMap<(&'static str, &'static str), Vec<&'static str>>,
    failed: Vec<String>,
}

const FAMILIES: [&str; 4] = ["BitNet", "Llama", "Qwen2", "Qwen3"];

impl Marks {
    fn add(&mut self, row: &'static str, architecture: &Architecture, source: &'static str, failed: Option<String>) {
        if !self.rows.contains(&row) {
            self.rows.push(row);
        }
        if let Some(how) = failed {
            return self.failed.push(format!("{row}, {} from {source}: {how}", architecture.gguf));
        }
        let sources = self.marks.entry((row, architecture.family)).or_default();
        if !sources.contains(&source) {
            sources.push(source);
        }
    }

    fn table(&self) -> String {
        let mut lines = vec![
            format!("| Storage type | {} |", FAMILIES.join(" | ")),
            format!("|---|{}", "---|".repeat(FAMILIES.len())),
        ];
        for &row in &self.rows {
            let cells = FAMILIES
                .map(|family| self.marks.get(&(row, family)).map_or(String::new(), |sources| sources.join(", ")));
            lines.push(format!("| {row} | {} |", cells.join(" | ")));
        }
        lines.join("\n")
    }
}

fn gguf(marks: &mut Marks, row: &'static str, make: Maker, options: &Options) {
    for (seed, architecture) in ARCHITECTURES.iter().enumerate() {
        let made = Made::new(&mut Rng::new(seed as u64), *architecture, make, None, None);
        marks.add(row, architecture, "GGUF", differ(&made.gguf(), &made.values(false), options.clone()));
    }
}

/// `config` may not fit an architecture: those are left out.
fn safetensors(marks: &mut Marks, row: &'static str, make: Maker, config: impl Fn(&Architecture) -> Option<Value>) {
    for (seed, architecture) in ARCHITECTURES.iter().filter(|one| !one.hugging_face.is_empty()).enumerate() {
        let Some(config) = config(architecture) else { continue };
        let mut made = Made::new(&mut Rng::new(seed as u64), *architecture, make, None, None);
        // As transformers' AutoBitLinear has it.
        if config == bitnet_config("autobitlinear", "offline") {
            made.bias_factor = SCALE;
        }
        let differs = differ(&made.safetensors(config), &made.values(true), Options::default());
        marks.add(row, architecture, "safetensors", differs);
    }
}

/// Of ternary matrices with one.
const SCALE: f32 = 0.0625;

/// Two bits a code, high ones first, in runs of a quarter of a group.
fn i2s(rng: &mut Rng, rows: usize, cols: usize, group: usize) -> Coded {
    let codes: Vec<u8> = (0..rows * cols).map(|_| rng.below(3) as u8).collect();
    let run = group / 4;
    let mut data: Vec<u8> = codes
        .chunks_exact(group)
        .flat_map(|codes| (0..run).map(|m| (0..4).fold(0, |byte, plane| byte << 2 | codes[plane * run + m])))
        .collect();
    data.extend(SCALE.to_le_bytes());
    data.extend([0xee; 28]);
    let values = codes.iter().map(|&code| SCALE * (f32::from(code) - 1.0)).collect();
    Coded { tensors: vec![("weight", entry(36, "", vec![rows, cols], data))], values }
}

/// Rows a quarter of the matrix apart in one byte, and a scale beside them.
fn quarters(rng: &mut Rng, rows: usize, cols: usize, divide: bool) -> Coded {
    let codes: Vec<u8> = (0..rows * cols).map(|_| rng.below(3) as u8).collect();
    let quarter = rows * cols / 4;
    let data =
        (0..quarter).map(|i| (0..4).fold(0, |byte, part| byte | codes[part * quarter + i] << (2 * part))).collect();
    let scale: f32 = if divide { 1.0 / SCALE } else { SCALE };
    let scaled = |code: u8| (f32::from(code) - 1.0) * SCALE;
    Coded {
        tensors: vec![
            ("weight", entry(0, "U8", vec![rows / 4, cols], data)),
            ("weight_scale", entry(0, "F32", vec![1], f32s(&[scale]))),
        ],
        values: codes.into_iter().map(scaled).collect(),
    }
}

/// Words of codes, low bits first; a scale and a minimum a group.
fn mlx(rng: &mut Rng, rows: usize, cols: usize, bits: usize, group: usize) -> Coded {
    let codes: Vec<u8> = (0..rows * cols).map(|_| rng.below(1 << bits) as u8).collect();
    let words = codes.chunks_exact(32 / bits).flat_map(|codes| {
        let word = codes.iter().rev().fold(0u32, |word, &code| word << bits | u32::from(code));
        word.to_le_bytes()
    });
    let half = |value: f32| f16::from_f32(value).to_f32();
    let scales: Vec<f32> =
        (0..rows * cols / group).map(|_| half((0.1 + rng.unit() as f32 * 0.1) / (1 << bits) as f32)).collect();
    let mins: Vec<f32> = scales.iter().map(|scale| half(-scale * ((1 << bits) - 1) as f32 / 2.0)).collect();
    let values =
        codes.iter().enumerate().map(|(i, &code)| f32::from(code) * scales[i / group] + mins[i / group]).collect();
    let halves = |values: &[f32]| values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
    let groups = vec![rows, cols / group];
    Coded {
        tensors: vec![
            ("weight", entry(0, "U32", vec![rows, cols * bits / 32], words.collect())),
            ("scales", entry(0, "F16", groups.clone(), halves(&scales))),
            ("biases", entry(0, "F16", groups, halves(&mins))),
        ],
        values,
    }
}

/// Latent weights, with the values that training makes of them.
fn masters(rng: &mut Rng, storage: &'static Storage, rows: usize, cols: usize) -> Coded {
    let mut coded = floats(storage, 0, rows, cols, &dense_values(rng, rows, cols));
    let mean =
        (coded.values.iter().map(|value| f64::from(value.abs())).sum::<f64>() / coded.values.len() as f64) as f32;
    coded.values.iter_mut().for_each(|value| *value = (*value / mean).round_ties_even().clamp(-1.0, 1.0) * mean);
    coded
}

fn bitnet_config(class: &str, mode: &str) -> Value {
    json!({ "quantization_config": { "quant_method": "bitnet", "linear_class": class, "quantization_mode": mode } })
}

#[test]
fn every_type_in_every_architecture() {
    let mut marks = Marks::default();
    let auto = Options::default();
    let plain = |architecture: &Architecture| (architecture.family != "BitNet").then(|| json!({}));
    for (id, storage) in FLOATS {
        let make: Maker = &|rng, rows, cols| floats(storage, id, rows, cols, &dense_values(rng, rows, cols));
        gguf(&mut marks, "F32, F16, BF16", make, &auto);
        safetensors(&mut marks, "F32, F16, BF16", make, plain);
    }
    for (id, storage) in FLOATS {
        let row = "F32, F16, BF16 whose values are ternary";
        let make: Maker = &|rng, rows, cols| floats(storage, id, rows, cols, &ternary_values(rng, rows, cols, 3));
        gguf(&mut marks, row, make, &auto);
        safetensors(&mut marks, row, make, plain);
    }
    for (_, storage) in FLOATS {
        let online = |_: &Architecture| Some(bitnet_config("autobitlinear", "online"));
        let make: Maker = &|rng, rows, cols| masters(rng, storage, rows, cols);
        safetensors(&mut marks, "F32, F16, BF16 masters that training makes ternary", make, online);
    }
    safetensors(
        &mut marks,
        "Hugging Face's packed U8, by a scale that divides or multiplies",
        &|rng, rows, cols| quarters(rng, rows, cols, true),
        |_| Some(bitnet_config("bitlinear", "offline")),
    );
    safetensors(
        &mut marks,
        "Hugging Face's packed U8, by a scale that divides or multiplies",
        &|rng, rows, cols| quarters(rng, rows, cols, false),
        |_| Some(bitnet_config("autobitlinear", "offline")),
    );
    for (group, interleave) in [(128, Interleave::By128), (64, Interleave::By64)] {
        let options = Options { i2s: Some(interleave), ..auto.clone() };
        gguf(&mut marks, "I2_S of 128 and of 64", &|rng, rows, cols| i2s(rng, rows, cols, group), &options);
    }
    let prism = "Q1_0, Q2_0 in blocks of 64 and of 128, PQ2_0, PTQ1_0";
    for (row, ids) in [
        ("TQ1_0, TQ2_0", &[34, 35][..]),
        (prism, &[41, 42, 142, 143]),
        ("Q4_0, Q4_1, Q5_0, Q5_1, Q8_0", &[2, 3, 6, 7, 8]),
        ("Q2_K, Q3_K, Q4_K, Q5_K, Q6_K", &[10, 11, 12, 13, 14]),
    ] {
        for &id in ids {
            let storage = quant::by_ggml_id(id).expect("a type that runs");
            // Rows of 128 values are too short for some.
            let make: Maker = &|rng, rows, cols| match cols % storage.block {
                0 => blocks(rng, storage, id, rows, cols),
                _ => blocks(rng, &quant::Q8_0, 8, rows, cols),
            };
            gguf(&mut marks, row, make, &auto);
        }
    }
    gguf(&mut marks, prism, &|rng, rows, cols| blocks(rng, &quant::PQ2_0, 42, rows, cols), &auto);
    for bits in [1, 2, 4] {
        for group in [32, 64, 128] {
            let config = json!({ "quantization": { "bits": bits, "group_size": group } });
            let make: Maker = &|rng, rows, cols| mlx(rng, rows, cols, bits, group);
            safetensors(&mut marks, "MLX, 1, 2 and 4 bits", make, |_| Some(config.clone()));
        }
    }
    assert!(marks.failed.is_empty(), "{}", marks.failed.join("\n"));
    let table = marks.table();
    let document = std::fs::read_to_string(golden("../../docs/guide/formats.md")).unwrap();
    assert!(
        document.contains(&table),
        "docs/guide/formats.md lists something else; this is what is tested:\n\n{table}\n"
    );
}

/// What matrices of a hybrid are stored as beside blocks, which `tests/hybrid.rs` has: in a GGUF, and in safetensors.
#[test]
fn hybrids() {
    let weights = Weights::random(Sizes { tied: false, ..Sizes::small() }, 41);
    let big = |name: &str| name.starts_with("blk.") && !["ssm_", "norm"].iter().any(|part| name.contains(part));
    let mut failed = Vec::new();
    for (group, interleave) in [(128, Interleave::By128), (64, Interleave::By64)] {
        let (mut coded, mut values) = (weights.gguf(None), weights.gguf(None));
        let mut rng = Rng::new(group as u64);
        for (coded, values) in coded.tensors.iter_mut().zip(&mut values.tensors).filter(|(own, _)| big(&own.name)) {
            let made = i2s(&mut rng, coded.dims[1] as usize, coded.dims[0] as usize, group);
            (coded.kind, coded.data) = (36, made.tensors[0].1.data.clone());
            values.data = f32s(&made.values);
        }
        let options = Options { i2s: Some(interleave), ..Options::default() };
        failed.extend(differ(&coded.files(), &values.files(), options).map(|how| format!("I2_S of {group}: {how}")));
    }
    let mut check = |what: String, config: Value, make: Maker| {
        let (mut coded, mut values) = (weights.checkpoint(), weights.checkpoint());
        let mut rng = Rng::new(what.len() as u64);
        let mlx = config["quantization"].is_object();
        for (key, value) in config.as_object().unwrap() {
            coded.config[key] = value.clone();
        }
        for (i, values) in values.tensors.iter_mut().enumerate().rev() {
            // Of the small matrices MLX packs all that have whole groups, BitNet's packing none.
            let small = ["in_proj_a", "in_proj_b"].iter().any(|name| values.name.contains(name));
            if !values.name.contains("_proj") || small && !mlx {
                continue;
            }
            let made = make(&mut rng, values.dims[0] as usize, values.dims[1] as usize);
            values.data = f32s(&made.values);
            let stem = values.name.strip_suffix("weight").unwrap();
            coded.tensors.remove(i);
            let named = made.tensors.into_iter().map(|(name, one)| Entry { name: format!("{stem}{name}"), ..one });
            coded.tensors.extend(named);
        }
        let differs = differ(&coded.files(), &values.files(), Options::default());
        failed.extend(differs.map(|how| format!("{what}: {how}")));
    };
    for (class, divide) in [("bitlinear", true), ("autobitlinear", false)] {
        let make: Maker = &|rng, rows, cols| quarters(rng, rows, cols, divide);
        check(format!("packed U8, {class}"), bitnet_config(class, "offline"), make);
    }
    for bits in [1, 2, 4] {
        for group in [32, 64, 128] {
            let config = json!({ "quantization": { "bits": bits, "group_size": group } });
            check(format!("MLX of {bits} bits and {group}"), config, &|rng, rows, cols| {
                mlx(rng, rows, cols, bits, group)
            });
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Heads and embeddings of any type over ternary layers, tied and not.
#[test]
fn mixed_files() {
    let layers: Maker = &|rng, rows, cols| match cols % 256 {
        0 => blocks(rng, &quant::TQ2_0, 35, rows, cols),
        _ => blocks(rng, &quant::Q8_0, 8, rows, cols),
    };
    let mut failed = Vec::new();
    for kind in BLOCKS.iter().filter(|kind| kind.id != 1) {
        let storage = quant::by_ggml_id(kind.id).expect("a type that runs");
        let make: Maker = &|rng, rows, cols| blocks(rng, storage, kind.id, rows, cols);
        let q6_k: Maker = &|rng, rows, cols| blocks(rng, &quant::Q6_K, 14, rows, cols);
        for (what, embedding, head) in
            [("tied", Some(make), None), ("head", None, Some(make)), ("both", Some(make), Some(q6_k))]
        {
            for architecture in [ARCHITECTURES[0], ARCHITECTURES[3]] {
                let made = Made::new(&mut Rng::new(kind.id.into()), architecture, layers, embedding, head);
                let differs = differ(&made.gguf(), &made.values(false), Options::default());
                failed.extend(differs.map(|how| format!("{} as {what} in {}: {how}", storage.name, architecture.gguf)));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// MLX names the modules whose codes are wider, and leaves what is not packed as it is.
#[test]
fn mixed_mlx() {
    let layers: Maker = &|rng, rows, cols| mlx(rng, rows, cols, 2, 128);
    let wide: Maker = &|rng, rows, cols| mlx(rng, rows, cols, 4, 32);
    let dense: Maker = &|rng, rows, cols| floats(&quant::F16, 1, rows, cols, &dense_values(rng, rows, cols));
    let own = json!({ "bits": 4, "group_size": 32 });
    for (name, embedding, head) in [("model.embed_tokens", wide, dense), ("lm_head", dense, wide)] {
        let made = Made::new(&mut Rng::new(8), ARCHITECTURES[5], layers, Some(embedding), Some(head));
        let mut config = json!({ "quantization": { "bits": 2, "group_size": 128 } });
        config["quantization"][name] = own.clone();
        assert_eq!(differ(&made.safetensors(config), &made.values(true), Options::default()), None, "{name}");
    }
}

/// Ternary floats take 2 bits a weight, in as many ranges of rows as they have scales.
#[test]
fn ternary_floats_are_packed() {
    for ranges in [1, 2, 3, 6] {
        let make: Maker =
            &|rng, rows, cols| floats(&quant::F16, 1, rows, cols, &ternary_values(rng, rows, cols, ranges));
        let made = Made::new(&mut Rng::new(7), ARCHITECTURES[3], make, None, None);
        let files = made.safetensors(json!({}));
        let readings = |plan: Plan| -> Vec<Reading> {
            let matrices = plan.items.iter().filter(|item| item.slot.in_layer().is_some());
            matrices
                .filter_map(|item| match item.target {
                    Target::Matrix(_, reading) => Some(reading),
                    Target::Values => None,
                })
                .collect()
        };
        assert_eq!(readings(files.plan(Options::default()).unwrap()), [Reading::Joined; 7]);
        let (model, _) = files.load(Options::default(), 1 << 16).unwrap();
        // Who rounds activations is not known of them: nobody does.
        assert_eq!(model.layer_precision(), Some(Precision::Int14));
    }
}
