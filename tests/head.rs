//! The option `head`: an embedding and a head that are rounded while they arrive, against files that were rounded before.

use crate::common;

use common::craft::{BLOCKS, Gguf, Sizes};
use common::lora::Lora;
use common::models::{ARCHITECTURES, Coded, FLOATS, Made, Maker, blocks, dense_values, entry, f32s, floats};
use common::{Files, adapted, error, golden, logits};
use half::f16;
use ternlight::error::{ErrorKind, Result};
use ternlight::kernels::packed::Matrix;
use ternlight::model::head::TYPES;
use ternlight::model::items::Target;
use ternlight::model::names::{Field, TensorRole};
use ternlight::model::{Loader, Model, Options};
use ternlight::quant::{self, Content, Storage};
use ternlight::rng::Rng;
use ternlight::team::Team;

/// ggml's quantisers, one value after another.
fn quantised(to: &Storage, values: &[f32]) -> Vec<u8> {
    let one = match to.name {
        "Q8_0" => q8_0,
        "Q4_0" => q4_0,
        "Q6_K" => q6_k,
        other => panic!("no quantiser for {other}"),
    };
    values.chunks(to.block).flat_map(one).collect()
}

/// The first value of the largest magnitude.
fn largest(values: &[f32]) -> f32 {
    let mut found = 0.0f32;
    for &value in values {
        if value.abs() > found.abs() {
            found = value;
        }
    }
    found
}

fn q8_0(values: &[f32]) -> Vec<u8> {
    let d = largest(values).abs() / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut out = f16::from_f32(d).to_le_bytes().to_vec();
    out.extend(values.iter().map(|value| (value * inverse).round() as i8 as u8));
    out
}

fn q4_0(values: &[f32]) -> Vec<u8> {
    let d = largest(values) / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut out = f16::from_f32(d).to_le_bytes().to_vec();
    let code = |value: f32| (((value * inverse + 8.5) as i32) as u8).min(15);
    out.extend((0..16).map(|i| code(values[i]) + 16 * code(values[i + 16])));
    out
}

fn q6_k(values: &[f32]) -> Vec<u8> {
    let nearest = |value: f32| (value.round_ties_even() as i32).clamp(-32, 31);
    let mut scales = Vec::new();
    let mut codes = Vec::new();
    for group in values.chunks(16) {
        let most = largest(group);
        if most.abs() < 1e-15 {
            scales.push(0.0);
            codes.extend([0; 16]);
            continue;
        }
        let try_one = |inverse: f32| {
            let (mut products, mut squares) = (0.0f32, 0.0f32);
            for &value in group {
                let code = nearest(inverse * value) as f32;
                products += value * value * value * code;
                squares += value * value * code * code;
            }
            (products, squares)
        };
        let mut inverse = -32.0 / most;
        let (products, squares) = try_one(inverse);
        let mut scale = if squares == 0.0 { 0.0 } else { products / squares };
        let mut best = scale * products;
        for step in -9..=9 {
            let other = -(32.0 + 0.1 * step as f32) / most;
            let (products, squares) = try_one(other);
            if step != 0 && squares > 0.0 && products * products > best * squares {
                (inverse, scale) = (other, products / squares);
                best = scale * products;
            }
        }
        scales.push(scale);
        codes.extend(group.iter().map(|value| (nearest(inverse * value) + 32) as u8));
    }
    let most = largest(&scales);
    if most.abs() < 1e-15 {
        return vec![0; 210];
    }
    let inverse = -128.0 / most;
    let d = f16::from_f32(1.0 / inverse);
    let factors: Vec<i8> =
        scales.iter().map(|scale| ((inverse * scale).round_ties_even() as i32).min(127) as i8).collect();
    for (i, code) in codes.iter_mut().enumerate() {
        let scale = d.to_f32() * f32::from(factors[i / 16]);
        if scale != 0.0 {
            *code = (nearest(values[i] / scale) + 32) as u8;
        }
    }
    let mut out = vec![0u8; 210];
    for (i, &code) in codes.iter().enumerate() {
        let (half, plane, l) = (i / 128, i % 128 / 32, i % 32);
        out[64 * half + 32 * (plane % 2) + l] |= (code & 15) << (4 * (plane / 2));
        out[128 + 32 * half + l] |= code >> 4 << (2 * plane);
    }
    factors.iter().enumerate().for_each(|(i, &factor)| out[192 + i] = factor as u8);
    out[208..].copy_from_slice(&d.to_le_bytes());
    out
}

fn with_head(head: &'static Storage) -> Options {
    Options { head: Some(head), ..Options::default() }
}

fn ggml_id(storage: &'static Storage) -> u32 {
    quant::ggml_id(storage).unwrap()
}

fn larger(from: &Storage, to: &Storage) -> bool {
    from.bytes * to.block > to.bytes * from.block
}

/// Every type that values are stored in, besides those of whole rows.
fn stored() -> Vec<&'static Storage> {
    let mut all: Vec<_> = FLOATS.into_iter().map(|(_, storage)| storage).collect();
    let ids = BLOCKS.iter().map(|blocks| blocks.id).filter(|&id| id != 1);
    all.extend(ids.map(|id| quant::by_ggml_id(id).unwrap()));
    all
}

/// Small and large values, groups of zeros, and a block of nothing else.
fn values(rng: &mut Rng, rows: usize, cols: usize) -> Vec<f32> {
    let mut values = dense_values(rng, rows, cols);
    for (i, group) in values.chunks_mut(16).enumerate() {
        match i % 23 {
            3 => group.fill(0.0),
            5 => group[i % 16] *= 40.0,
            7 => group.iter_mut().for_each(|value| *value *= 1e-3),
            9 => group.iter_mut().for_each(|value| *value = 0.0625 * value.signum()),
            11 => group.iter_mut().for_each(|value| *value *= 1e-20),
            _ => {}
        }
    }
    values[cols..2 * cols].fill(0.0);
    values
}

/// A matrix of a type, and the same rounded before.
fn coded(rng: &mut Rng, from: &'static Storage, to: Option<&'static Storage>, rows: usize, cols: usize) -> Coded {
    let values = values(rng, rows, cols);
    let coded = match from.content {
        Content::Dense(_) => floats(from, ggml_id(from), rows, cols, &values),
        _ => blocks(rng, from, ggml_id(from), rows, cols),
    };
    let Some(to) = to.filter(|to| larger(from, to)) else { return coded };
    let data = quantised(to, &coded.values);
    Coded { values: to.values(&data), tensors: vec![("weight", entry(ggml_id(to), "", vec![rows, cols], data))] }
}

/// A llama of F32 layers whose embedding, and head where it is apart, are of a type, or rounded from it.
fn made(from: &'static Storage, to: Option<&'static Storage>, tied: bool) -> Made {
    let layers: Maker = &|rng, rows, cols| floats(&quant::F32, 0, rows, cols, &dense_values(rng, rows, cols));
    let own: Maker = &|rng, rows, cols| coded(rng, from, to, rows, cols);
    let head = if tied { None } else { Some(own) };
    Made::new(&mut Rng::new(11), ARCHITECTURES[3], layers, Some(own), head)
}

const IDS: [u32; 8] = [3, 1, 4, 1, 5, 9, 2, 6];

fn all_logits(files: &Files, options: Options, team: Team) -> Result<Vec<Vec<f32>>> {
    logits(&mut files.engine(options, team)?, &IDS, true)
}

fn rows(matrix: &Matrix) -> Vec<u32> {
    let mut row = vec![0.0; matrix.shape.cols];
    let mut bits = Vec::new();
    for index in 0..matrix.shape.rows {
        matrix.row(index, &mut row);
        bits.extend(row.iter().map(|value| value.to_bits()));
    }
    bits
}

fn both(model: &Model) -> [Vec<u32>; 2] {
    [rows(&model.embedding), rows(model.head())]
}

#[test]
fn what_is_rounded_is_what_a_rounded_file_has() {
    let (mut rounded, mut kept) = (0, 0);
    for (_, to) in TYPES {
        for from in stored() {
            for tied in [true, false] {
                let name = format!("{} to {}, tied: {tied}", from.name, to.name);
                let asked = made(from, None, tied);
                let (found, plan) = asked.gguf().load(with_head(to), 4099).unwrap();
                let (expected, before) = made(from, Some(to), tied).gguf().load(Options::default(), 1 << 20).unwrap();
                assert!(both(&found) == both(&expected), "{name}");
                assert_eq!(plan.memory(), before.memory(), "{name}");
                assert_eq!(plan.tied(), tied);
                if larger(from, to) {
                    rounded += 1;
                    assert_eq!(plan.warnings(), before.warnings(), "{name}");
                } else {
                    kept += 1;
                    let said = plan.warnings().join("\n");
                    let expected = if tied || from == to { usize::from(from != to) } else { 2 };
                    assert_eq!(said.matches(" stays as it is stored, in ").count(), expected, "{name}: {said}");
                }
                if let Content::Dense(_) = from.content {
                    let config = serde_json::json!({ "tie_word_embeddings": tied });
                    let (found, _) = asked.safetensors(config).load(with_head(to), 4099).unwrap();
                    assert!(both(&found) == both(&expected), "{name}, from safetensors");
                }
            }
        }
    }
    assert!(rounded >= 30 && kept >= 30, "{rounded} and {kept}");
}

#[test]
fn logits_are_those_of_a_rounded_file_whoever_loads_it() {
    for (_, to) in TYPES {
        for tied in [true, false] {
            let asked = made(&quant::BF16, None, tied).gguf();
            let expected =
                all_logits(&made(&quant::BF16, Some(to), tied).gguf(), Options::default(), Team::solo()).unwrap();
            for members in [1, 3] {
                let found = all_logits(&asked, with_head(to), common::team(members)).unwrap();
                assert!(found == expected, "{}, tied: {tied}, {members} members", to.name);
            }
            // In any cut.
            let (whole, _) = asked.load(with_head(to), 1 << 24).unwrap();
            for chunk in [1, 210, 8191] {
                let (cut, _) = asked.load(with_head(to), chunk).unwrap();
                assert!(both(&cut) == both(&whole), "{}, chunks of {chunk}", to.name);
            }
            let stored = all_logits(&asked, Options::default(), Team::solo()).unwrap();
            assert!(stored != expected, "{} rounds", to.name);
        }
    }
}

/// The slots of a golden model's matrices, with their types and bytes.
fn matrices(name: &str) -> Vec<(ternlight::model::names::Slot, &'static Storage, Vec<u8>)> {
    let files = Files::read(&golden(name));
    let plan = files.plan(Options { repack: false, ..Options::default() }).unwrap();
    let matrices = plan.items.iter().filter(|item| matches!(item.target, Target::Matrix(..)));
    let bytes = matrices.map(|item| {
        let tensor = &item.tensor;
        let bytes = &files.weights[tensor.file][tensor.offset as usize..][..tensor.len as usize];
        (item.slot, tensor.storage.unwrap(), bytes.to_vec())
    });
    bytes.collect()
}

#[test]
fn the_bytes_are_those_of_llama_cpp() {
    let mut compared: Vec<(&str, usize)> = TYPES.iter().map(|(_, to)| (to.name, 0)).collect();
    for (model, files) in [
        ("llama_bf16", &["Q8_0", "Q4_0", "Q4_1", "Q4_K_M", "Q6_K"][..]),
        ("qwen3", &["Q8_0", "Q1_0", "Q2_0"][..]),
        ("trilm_style", &["TQ2_0", "TQ1_0"][..]),
        ("onebitllm_style", &["TQ2_0", "TQ1_0"][..]),
    ] {
        let source = matrices(&format!("models/{model}"));
        for kind in files {
            for (slot, to, bytes) in matrices(&format!("gguf/{model}.{kind}.gguf")) {
                // A llama's rows of queries and keys have another order in GGUF.
                let turned = model != "qwen3" && matches!(slot.role, TensorRole::AttnQ | TensorRole::AttnK);
                let Some((_, count)) = compared.iter_mut().find(|(name, _)| *name == to.name && !turned) else {
                    continue;
                };
                let (_, from, stored) = source.iter().find(|(own, ..)| *own == slot).expect("the source's tensor");
                let mut out = vec![0; bytes.len()];
                assert!(quant::round(to, &from.values(stored), &mut out));
                assert!(out == bytes, "{model}.{kind}: {slot:?}");
                *count += 1;
            }
        }
    }
    assert!(compared.iter().all(|&(_, count)| count >= 10), "{compared:?}");
}

#[test]
fn a_loaded_embedding_is_that_of_llama_cpps_file() {
    for (kind, to) in [("Q8_0", &quant::Q8_0), ("Q6_K", &quant::Q6_K), ("Q4_K_M", &quant::Q6_K)] {
        let (theirs, _) =
            Files::read(&golden(&format!("gguf/llama_bf16.{kind}.gguf"))).load(Options::default(), 1 << 16).unwrap();
        let (ours, plan) = Files::read(&golden("models/llama_bf16")).load(with_head(to), 1 << 16).unwrap();
        assert!(both(&ours) == both(&theirs), "{kind}");
        assert!(plan.warnings().is_empty());
    }
}

#[test]
fn only_who_asks_gets_other_weights() {
    let files = Files::read(&golden("models/llama_bf16"));
    let (stored, plan) = files.load(Options::default(), 1 << 16).unwrap();
    assert!(!format!("{:?}", plan.items).contains("Rounded"));
    let tensor = plan.items.iter().find(|item| item.slot.role == TensorRole::TokenEmbd).unwrap().tensor.clone();
    let bytes = &files.weights[tensor.file][tensor.offset as usize..][..tensor.len as usize];
    let expected: Vec<u32> = tensor.storage.unwrap().values(bytes).iter().map(|value| value.to_bits()).collect();
    assert!(rows(&stored.embedding) == expected);
    let said: Options = serde_json::from_value(serde_json::json!({ "head": "stored" })).unwrap();
    assert_eq!(said.head, None);
}

#[test]
fn the_plan_counts_each_choice() {
    for tied in [true, false] {
        let files = made(&quant::F16, None, tied).gguf();
        let choices = files.plan(Options::default()).unwrap().heads();
        assert_eq!(choices.iter().map(|choice| choice.head).collect::<Vec<_>>(), ["stored", "q8_0", "q6_k", "q4_0"]);
        let mut sizes = Vec::new();
        for choice in &choices {
            let head = TYPES.into_iter().find(|(name, _)| *name == choice.head).map(|(_, to)| to);
            let (model, plan) = files.load(Options { head, ..Options::default() }, 1 << 16).unwrap();
            assert_eq!(plan.memory(), choice.memory, "{}", choice.head);
            // The same list, whichever is chosen.
            assert_eq!(plan.heads(), choices);
            let embedding = if tied { 0 } else { model.embedding.bytes() };
            assert_eq!(choice.bytes_per_token, choice.memory.weights - embedding);
            sizes.push(choice.memory.weights);
        }
        assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
    }
    // What changes nothing is no choice.
    let heads = |from| made(from, None, true).gguf().plan(Options::default()).unwrap().heads();
    let names = |from| heads(from).iter().map(|choice| choice.head).collect::<Vec<_>>();
    assert_eq!(names(&quant::Q8_0), ["stored", "q6_k", "q4_0"]);
    assert_eq!(names(&quant::Q5_K), ["stored", "q4_0"]);
    assert_eq!(names(&quant::Q4_0), ["stored"]);
    assert_eq!(names(&quant::TQ2_0), ["stored"]);
}

#[test]
fn rows_that_are_no_whole_blocks_are_refused() {
    for (hidden, fits) in [(288, &["q8_0", "q4_0"][..]), (264, &[])] {
        let files = Gguf::sized(Sizes { hidden, heads: hidden / 24, head: 24, ..Sizes::default() }).files();
        let choices = files.plan(Options::default()).unwrap().heads();
        assert_eq!(choices[1..].iter().map(|choice| choice.head).collect::<Vec<_>>(), fits);
        for (name, to) in TYPES {
            let result = files.plan(with_head(to));
            if fits.contains(&name) {
                result.unwrap();
                continue;
            }
            let refused = error(result);
            assert_eq!(refused.kind, ErrorKind::InvalidArgument);
            assert_eq!(refused.place.tensor.as_deref(), Some("token_embd.weight"));
            assert_eq!(refused.place.option.as_deref(), Some("head"));
            assert_eq!(refused.place.expected, Some(format!("a multiple of {}", to.block)));
            assert_eq!(refused.place.found, Some(hidden.to_string()));
            assert_eq!(refused.to_string().contains("q8_0 and q4_0 fit"), !fits.is_empty());
        }
    }
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    let spoil = |at: usize, value: f32| {
        let file = Gguf::llama().tensor("token_embd.weight", |tensor| {
            tensor.data[4 * at..][..4].copy_from_slice(&value.to_le_bytes());
        });
        file.files()
    };
    let begin = spoil(0, 1.0).plan(Options::default()).unwrap().items[0].tensor.offset;
    for (_, to) in TYPES {
        for (value, reason) in [
            (f32::NAN, "not finite"),
            (f32::INFINITY, "not finite"),
            (f32::NEG_INFINITY, "not finite"),
            (3e38, "too large"),
            (-4e8, "too large"),
        ] {
            let refused = error(spoil(256 * 3 + 17, value).load(with_head(to), 1 << 20));
            assert_eq!(refused.kind, ErrorKind::NonFinite, "{}: {value}", to.name);
            assert_eq!(refused.place.tensor.as_deref(), Some("token_embd.weight"));
            assert_eq!(refused.place.offset, Some(begin));
            assert!(refused.to_string().contains(reason), "{refused}");
        }
        spoil(256 * 3 + 17, 1e5).load(with_head(to), 1 << 20).unwrap();
    }
    // A scale of a block that is stored may be no number either.
    let mut file = made(&quant::Q8_0, None, true).gguf();
    let tensor = file.plan(Options::default()).unwrap().items[0].tensor.clone();
    assert_eq!(tensor.name, "token_embd.weight");
    file.weights[0][tensor.offset as usize..][..2].copy_from_slice(&f16::INFINITY.to_le_bytes());
    assert_eq!(error(file.load(with_head(&quant::Q4_0), 1 << 20)).kind, ErrorKind::NonFinite);
    // What is cut off is still told as that.
    let file = made(&quant::F32, None, true).gguf();
    let mut loader = Loader::new(file.plan(with_head(&quant::Q6_K)).unwrap()).unwrap();
    let range = loader.ranges()[0];
    let bytes = &file.weights[0][range.offset as usize..][..range.len as usize - 1];
    loader.feed(&Team::solo(), 0, range.offset, bytes).unwrap();
    assert_eq!(error(loader.finish()).kind, ErrorKind::Truncated);
}

#[test]
fn an_embedding_with_a_scale_beside_it_stays() {
    let mut file = Gguf::llama();
    let mut scale = file.tensors[1].clone();
    scale.name = "token_embd.scale".to_owned();
    (scale.dims, scale.data) = (vec![1], f32s(&[0.5]));
    file.tensors.push(scale);
    let plan = file.files().plan(with_head(&quant::Q8_0)).unwrap();
    assert!(plan.items.iter().any(|item| item.slot.field == Field::Scale));
    assert_eq!(plan.memory(), file.files().plan(Options::default()).unwrap().memory());
    let said = plan.warnings().join("\n");
    assert!(
        said.contains("token_embd.weight stays as it is stored, in F32: Q8_0 has no place for its scale"),
        "{said}"
    );
    assert_eq!(plan.heads().len(), 1);
}

#[test]
fn an_adapter_of_the_head_meets_the_rounded_one() {
    let lora = Lora::new(&mut Rng::new(7), &["attn_q", "output"], 4, 2.0).gguf("llama").files();
    for tied in [true, false] {
        let run = |files: Files, options: Options| {
            let mut engine = files.engine(options, Team::solo()).unwrap();
            let id =
                lora.adapter(&engine.model().config).and_then(|adapter| engine.add_adapter(adapter, None)).unwrap();
            adapted(&mut engine, &IDS, &[(id, 0.5)]).unwrap()
        };
        for (_, to) in TYPES {
            let found = run(made(&quant::F16, None, tied).gguf(), with_head(to));
            let expected = run(made(&quant::F16, Some(to), tied).gguf(), Options::default());
            assert!(found == expected, "{}, tied: {tied}", to.name);
            assert!(
                found
                    != all_logits(&made(&quant::F16, Some(to), tied).gguf(), Options::default(), Team::solo()).unwrap()
            );
        }
    }
}

#[test]
fn a_survey_counts_the_zeros_of_the_file() {
    for (from, head) in [(&quant::F32, Some(&quant::Q4_0)), (&quant::Q8_0, Some(&quant::Q4_0)), (&quant::F32, None)] {
        let file = made(from, None, true).gguf();
        let shares = |head| {
            let mut loader = Loader::survey(file.plan(Options { head, ..Options::default() }).unwrap()).unwrap();
            loader.feed(&Team::solo(), 0, 0, &file.weights[0]).unwrap();
            loader.zero_shares().unwrap()
        };
        assert_eq!(shares(head), shares(None));
        assert!(shares(head)[&"token_embd.weight".to_owned()] > 0.0);
    }
}
