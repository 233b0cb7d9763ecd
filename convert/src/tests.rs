//! What conversions of whole files cannot show: each refusal, and the numbers that GGUF derives from a config.

use super::codes::{Rounding, Signs};
use super::keys;
use super::kind::Kind;
use ternlight::error::Error;
use ternlight::formats::{Parsed, gguf};
use ternlight::model::Config;
use ternlight::quant::{Codes, Content, F32, Float, Layout, Q1_0, Q2_0, Q8_0, ScaleType, Scales, Storage, TQ2_0};

fn layout(storage: &Storage) -> Layout {
    match storage.content {
        Content::Blocks { layout, .. } => layout,
        _ => unreachable!("{} has blocks", storage.name),
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// One row of 256 values.
fn encode(kind: Kind, signs: &mut Signs) -> Result<Vec<f32>, Error> {
    let storage = kind.storage();
    let mut out = vec![0; 256 / storage.block * storage.bytes];
    signs.encode(kind, 0, 256, &mut Rounding::default(), &mut out)?;
    Ok(storage.values(&out))
}

#[test]
fn groups_join_where_their_scales_are_one() {
    // Four groups of 64: two share a scale, one has none, one is all zeros whatever its scale.
    let mut codes = vec![1; 256];
    codes[3] = 2;
    codes[70] = 0;
    codes[130] = 2;
    let mut signs = Signs::default();
    signs.take(layout(&Q2_0), 256, &codes, &[0.5, 0.5, 0.0, 7.0], &[0.0; 4], 1.0).unwrap();
    for kind in [Kind::Tq2, Kind::Tq1] {
        let values = encode(kind, &mut signs).unwrap();
        assert_eq!((values[3], values[70]), (0.5, -0.5), "{kind:?}");
        assert_eq!(values.iter().filter(|&&value| value != 0.0).count(), 2, "{kind:?}");
    }
    // Where all is 0 the scale means nothing, and none is refused.
    let mut idle = Signs::default();
    idle.take(Layout::TERNARY, 256, &[1; 256], &[], &[], 1e-9).unwrap();
    assert_eq!(encode(Kind::Tq2, &mut idle).unwrap(), [0.0; 256]);
    codes[200] = 2;
    signs.take(layout(&Q2_0), 256, &codes, &[0.5, 0.5, 0.0, 7.0], &[0.0; 4], 1.0).unwrap();
    let error = encode(Kind::Tq2, &mut signs).unwrap_err();
    assert!(error.to_string().contains("one scale for 256 values, found one for 64"), "{error}");
}

#[test]
fn what_a_type_cannot_say_is_refused() {
    let mut signs = Signs::default();
    // Codes that are no −1, 0 or +1.
    for (layout, codes, mins) in [
        (layout(&TQ2_0), vec![3; 256], [0.0]),
        (layout(&Q8_0), vec![1; 32], [0.0]),
        (
            Layout { scales: Scales::Group { len: 64, scale_type: ScaleType::F32, min: true }, ..layout(&Q2_0) },
            vec![1; 64],
            [-0.5],
        ),
    ] {
        let error = signs.take(layout, codes.len(), &codes, &[1.0], &mins, 1.0).unwrap_err();
        assert!(error.to_string().contains("not ternary"), "{error}");
    }
    // Magnitudes that differ within a block.
    let mut values = vec![0.25; 256];
    values[255] = -0.5;
    let error = signs.take_floats(Float::F32, 256, &floats(&values), 1.0).unwrap_err();
    assert!(error.to_string().contains("found 0.25 and 0.5"), "{error}");
    signs.take_floats(Float::F32, 128, &floats(&values[..128]), 1.0).unwrap();
    // A zero among signs, unless all of the block is.
    signs.take_floats(Float::F32, 128, &floats(&[vec![0.5; 255], vec![0.0]].concat()), 1.0).unwrap();
    let error = encode(Kind::Q1, &mut signs).unwrap_err();
    assert!(error.to_string().contains("a weight is 0"), "{error}");
    signs.take_floats(Float::F32, 128, &floats(&[vec![-0.5; 128], vec![0.0; 128]].concat()), 1.0).unwrap();
    assert_eq!(encode(Kind::Q1, &mut signs).unwrap(), [vec![-0.5; 128], vec![0.0; 128]].concat());
}

#[test]
fn signs_are_ternary_too() {
    let codes: Vec<u8> = (0..256).map(|i| u8::from(i % 3 == 0)).collect();
    let mut signs = Signs::default();
    signs.take(layout(&Q1_0), 256, &codes, &[0.5, 0.5], &[0.0; 2], 1.0).unwrap();
    let expected: Vec<f32> = codes.iter().map(|&code| if code == 1 { 0.5 } else { -0.5 }).collect();
    for kind in [Kind::Tq2, Kind::Tq1, Kind::Q1] {
        assert_eq!(encode(kind, &mut signs.clone()).unwrap(), expected, "{kind:?}");
    }
    // MLX's one bit: the lower value and the step to the upper one.
    let mlx = Layout {
        codes: Codes::B1,
        step: 1,
        offset: 0,
        scales: Scales::Group { len: 64, scale_type: ScaleType::F32, min: true },
    };
    signs.take(mlx, 256, &codes, &[1.0; 4], &[-0.5; 4], 1.0).unwrap();
    assert_eq!(encode(Kind::Q1, &mut signs).unwrap(), expected);
}

#[test]
fn scales_lose_half_a_unit_at_most() {
    let mut rounding = Rounding::default();
    assert_eq!(rounding.half(0.5).unwrap().to_f32(), 0.5);
    assert_eq!(rounding.worst, 0.0);
    rounding.half(1.0 / 3.0).unwrap();
    assert!(rounding.worst > 1e-5 && rounding.worst <= 1.0 / 2048.0, "{}", rounding.worst);
    for scale in [1e6, 1e-7, f64::INFINITY, f64::NAN] {
        assert!(rounding.half(scale).is_err(), "{scale}");
    }
    assert_eq!(rounding.single(f64::from(0.1f32)).unwrap(), 0.1);
}

#[test]
fn llama_3_frequencies_are_divided_as_llama_cpp_divides_them() {
    let json = include_bytes!("../../tests/golden/models/llama_f32/config.json");
    let file = include_bytes!("../../tests/golden/gguf/llama_f32.F32.gguf");
    let found = keys::rope_factors(&Config::from_json(json).unwrap()).unwrap();
    let Parsed::Done(parsed) = gguf::parse(file, file.len() as u64).unwrap() else { unreachable!("all is here") };
    let tensor = parsed.tensors.iter().find(|tensor| tensor.name == "rope_freqs.weight").unwrap();
    let expected = F32.values(&file[tensor.offset as usize..][..tensor.len as usize]);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} for {expected}");
    }
}

#[test]
fn yarn_has_the_keys_that_llama_cpp_reads() {
    let text = include_str!("../../tests/golden/models/qwen3/config.json");
    let mut json: serde_json::Value = serde_json::from_str(text).unwrap();
    let found = |json: &serde_json::Value| -> Vec<(String, String)> {
        let keys = keys::keys(&Config::from_json(json.to_string().as_bytes()).unwrap()).unwrap();
        let own = keys.iter().filter_map(|key| Some((key.key.strip_prefix("qwen3.rope.scaling.")?, &key.value)));
        own.map(|(key, value)| (key.to_owned(), format!("{value:?}"))).collect()
    };
    let expected = |own: &[(&str, &str)]| -> Vec<(String, String)> {
        own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let usual = [
        ("type", "Str(\"yarn\")"),
        ("factor", "F32(4.0)"),
        ("original_context_length", "U32(16384)"),
        ("yarn_beta_fast", "F32(32.0)"),
        ("yarn_beta_slow", "F32(1.0)"),
    ];
    json["rope_parameters"] =
        serde_json::json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16384 });
    assert_eq!(found(&json), expected(&usual));
    json["rope_parameters"]["attention_factor"] = (2.0 * 1.138_629_436_111_989).into();
    assert_eq!(found(&json), expected(&[&usual[..], &[("attn_factor", "F32(2.0)")]].concat()));
}

/// A GGUF may have one without any scaling.
#[test]
fn a_magnitude_stays_without_yarn() {
    let text = include_str!("../../tests/golden/models/qwen3/config.json");
    let mut config = Config::from_json(text.as_bytes()).unwrap();
    let factor = |config: &Config| {
        let keys = keys::keys(config).unwrap();
        let own = keys.iter().find(|key| key.key.ends_with("rope.scaling.attn_factor"));
        own.map(|key| format!("{:?}", key.value))
    };
    assert_eq!(factor(&config), None);
    config.rope.magnitude = 1.5;
    assert_eq!(factor(&config).as_deref(), Some("F32(1.5)"));
}

#[test]
fn architectures_have_gguf_names() {
    let name = |architecture: &str, activation: &str| {
        let text = include_str!("../../tests/golden/models/qwen3/config.json");
        let mut json: serde_json::Value = serde_json::from_str(text).unwrap();
        json["architectures"] = serde_json::json!([architecture]);
        json["hidden_act"] = activation.into();
        keys::architecture(&Config::from_json(json.to_string().as_bytes()).unwrap())
    };
    for (architecture, activation, expected) in [
        ("LlamaForCausalLM", "silu", "llama"),
        ("Qwen2ForCausalLM", "silu", "qwen2"),
        ("Qwen3ForCausalLM", "silu", "qwen3"),
        ("BitNetForCausalLM", "relu2", "bitnet-b1.58"),
        ("BitnetForCausalLM", "silu", "bitnet"),
    ] {
        assert_eq!(name(architecture, activation).unwrap(), expected);
    }
    let error = name("LlamaForCausalLM", "relu2").unwrap_err();
    assert_eq!(error.place.key.as_deref(), Some("hidden_act"));
}
