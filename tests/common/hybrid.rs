//! Small hybrids: weights as training has them, under Hugging Face's names, and the GGUF that a converter makes of them.

use std::collections::BTreeMap;

use serde_json::json;
use ternlight::rng::Rng;

use super::craft::{Entry, Gguf, Safetensors, Value, array, float, text, uint};
use super::models::{entry, f32s, normal};
use super::{Files, Golden};

#[derive(Clone, Debug)]
pub struct Sizes {
    pub hidden: usize,
    pub ffn: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head: usize,
    pub state: usize,
    pub key_heads: usize,
    pub value_heads: usize,
    pub kernel: usize,
    pub vocab: usize,
    pub tied: bool,
    /// Whether each layer is a gated delta net.
    pub recurrent: Vec<bool>,
    /// Whether there is a head for further tokens.
    pub mtp: bool,
}

impl Sizes {
    /// Wide enough for blocks of 256 values.
    pub fn small() -> Self {
        Self {
            hidden: 256,
            ffn: 256,
            heads: 4,
            kv_heads: 2,
            head: 64,
            state: 64,
            key_heads: 2,
            value_heads: 4,
            kernel: 4,
            vocab: 64,
            tied: true,
            recurrent: vec![true, false, true],
            mtp: false,
        }
    }

    /// Those of `tests/golden/models/qwen35`.
    pub fn golden() -> Self {
        let recurrent = vec![true, true, true, false];
        Self { ffn: 512, state: 32, vocab: 512, recurrent, ..Self::small() }
    }

    pub fn rotated(&self) -> usize {
        self.head / 4
    }

    fn keys(&self) -> usize {
        self.key_heads * self.state
    }

    fn values(&self) -> usize {
        self.value_heads * self.state
    }

    /// Names, rows and columns of a layer's matrices: Hugging Face's and GGUF's.
    pub fn matrices(&self, layer: usize) -> Vec<(&'static str, &'static str, usize, usize)> {
        self.matrices_of(self.recurrent[layer])
    }

    /// Those of a gated delta net, or of a layer that attends.
    fn matrices_of(&self, recurrent: bool) -> Vec<(&'static str, &'static str, usize, usize)> {
        let (hidden, ffn, q, kv) = (self.hidden, self.ffn, self.heads * self.head, self.kv_heads * self.head);
        let mut matrices = match recurrent {
            true => vec![
                ("linear_attn.in_proj_qkv", "attn_qkv", 2 * self.keys() + self.values(), hidden),
                ("linear_attn.in_proj_z", "attn_gate", self.values(), hidden),
                ("linear_attn.in_proj_a", "ssm_alpha", self.value_heads, hidden),
                ("linear_attn.in_proj_b", "ssm_beta", self.value_heads, hidden),
                ("linear_attn.out_proj", "ssm_out", hidden, self.values()),
            ],
            false => vec![
                ("self_attn.q_proj", "attn_q", 2 * q, hidden),
                ("self_attn.k_proj", "attn_k", kv, hidden),
                ("self_attn.v_proj", "attn_v", kv, hidden),
                ("self_attn.o_proj", "attn_output", hidden, q),
            ],
        };
        matrices.extend([
            ("mlp.gate_proj", "ffn_gate", ffn, hidden),
            ("mlp.up_proj", "ffn_up", ffn, hidden),
            ("mlp.down_proj", "ffn_down", hidden, ffn),
        ]);
        matrices
    }
}

/// How a GGUF's matrices are folded into a rotated basis.
#[derive(Clone, Copy)]
pub struct Fold {
    pub block: usize,
    /// A seed for signs.
    pub signs: Option<u64>,
    /// Whether the columns of `ssm_out` stay in training's order.
    pub grouped: bool,
}

#[derive(Clone)]
pub struct Weights {
    pub sizes: Sizes,
    /// By their names in a checkpoint.
    pub values: BTreeMap<String, Vec<f32>>,
}

impl Weights {
    pub fn random(sizes: Sizes, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut values = BTreeMap::new();
        let mut put = |name: String, count: usize, value: &mut dyn FnMut() -> f32| {
            values.insert(name, (0..count).map(|_| value()).collect::<Vec<f32>>());
        };
        let mut random = |scale: f32, add: f32| normal(&mut rng) * scale + add;
        put("model.embed_tokens.weight".into(), sizes.vocab * sizes.hidden, &mut || random(0.3, 0.0));
        if !sizes.tied {
            put("lm_head.weight".into(), sizes.vocab * sizes.hidden, &mut || random(0.2, 0.0));
        }
        put("model.norm.weight".into(), sizes.hidden, &mut || random(0.2, 0.5));
        for (layer, &recurrent) in sizes.recurrent.iter().enumerate() {
            let name = |name: &str| format!("model.layers.{layer}.{name}");
            for (matrix, _, rows, cols) in sizes.matrices(layer) {
                put(name(&format!("{matrix}.weight")), rows * cols, &mut || random(1.2 / (cols as f32).sqrt(), 0.0));
            }
            put(name("input_layernorm.weight"), sizes.hidden, &mut || random(0.2, 0.0));
            put(name("post_attention_layernorm.weight"), sizes.hidden, &mut || random(0.2, 0.0));
            if recurrent {
                let channels = 2 * sizes.keys() + sizes.values();
                put(name("linear_attn.conv1d.weight"), channels * sizes.kernel, &mut || random(0.5, 0.0));
                put(name("linear_attn.A_log"), sizes.value_heads, &mut || random(0.5, 0.0));
                put(name("linear_attn.dt_bias"), sizes.value_heads, &mut || random(0.5, -1.0));
                put(name("linear_attn.norm.weight"), sizes.state, &mut || random(0.2, 1.0));
            } else {
                put(name("self_attn.q_norm.weight"), sizes.head, &mut || random(0.2, 0.0));
                put(name("self_attn.k_norm.weight"), sizes.head, &mut || random(0.2, 0.0));
            }
        }
        if sizes.mtp {
            let hidden = sizes.hidden;
            put("mtp.fc.weight".into(), 2 * hidden * hidden, &mut || random(0.8 / (hidden as f32).sqrt(), 0.0));
            for (matrix, _, rows, cols) in sizes.matrices_of(false) {
                let scale = 1.2 / (cols as f32).sqrt();
                put(format!("mtp.layers.0.{matrix}.weight"), rows * cols, &mut || random(scale, 0.0));
            }
            for (name, width) in [
                ("pre_fc_norm_embedding", hidden),
                ("pre_fc_norm_hidden", hidden),
                ("norm", hidden),
                ("layers.0.input_layernorm", hidden),
                ("layers.0.post_attention_layernorm", hidden),
                ("layers.0.self_attn.q_norm", sizes.head),
                ("layers.0.self_attn.k_norm", sizes.head),
            ] {
                put(format!("mtp.{name}.weight"), width, &mut || random(0.2, 0.0));
            }
        }
        Self { sizes, values }
    }

    /// Those of a golden checkpoint.
    pub fn golden(sizes: Sizes, file: &Golden) -> Self {
        let mut weights = Self::random(sizes, 0);
        for (name, values) in &mut weights.values {
            *values = file.floats(name).unwrap_or_else(|| panic!("{name} is missing"));
        }
        weights
    }

    pub fn config(&self) -> serde_json::Value {
        let sizes = &self.sizes;
        let kinds = |&recurrent: &bool| if recurrent { "linear_attention" } else { "full_attention" };
        json!({
            "architectures": ["Qwen3_5ForCausalLM"],
            "hidden_size": sizes.hidden,
            "intermediate_size": sizes.ffn,
            "num_hidden_layers": sizes.recurrent.len(),
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.kv_heads,
            "head_dim": sizes.head,
            "linear_conv_kernel_dim": sizes.kernel,
            "linear_key_head_dim": sizes.state,
            "linear_value_head_dim": sizes.state,
            "linear_num_key_heads": sizes.key_heads,
            "linear_num_value_heads": sizes.value_heads,
            "layer_types": sizes.recurrent.iter().map(kinds).collect::<Vec<_>>(),
            "tie_word_embeddings": sizes.tied,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "rope_parameters": { "rope_theta": 1e7, "rope_type": "default", "partial_rotary_factor": 0.25 },
            "vocab_size": sizes.vocab,
        })
    }

    fn shape(&self, name: &str, count: usize) -> Vec<usize> {
        let (hidden, kernel) = (self.sizes.hidden, self.sizes.kernel);
        let matrices = [true, false].into_iter().flat_map(|recurrent| self.sizes.matrices_of(recurrent));
        let cols = matrices.into_iter().find(|(own, ..)| name.contains(&format!(".{own}."))).map(|(.., cols)| cols);
        match cols {
            Some(cols) => vec![count / cols, cols],
            None if name.contains("conv1d") => vec![count / kernel, 1, kernel],
            None if name == "mtp.fc.weight" => vec![hidden, 2 * hidden],
            None if name.contains("embed_tokens") || name.contains("lm_head") => vec![count / hidden, hidden],
            None => vec![count],
        }
    }

    /// As a checkpoint.
    pub fn checkpoint(&self) -> Safetensors {
        let tensors = self.values.iter().map(|(name, values)| Entry {
            name: name.clone(),
            ..entry(0, "F32", self.shape(name, values.len()), f32s(values))
        });
        Safetensors { config: self.config(), tensors: tensors.collect() }
    }

    /// As llama.cpp's converter writes them: value heads take turns at the key heads, norms have their 1, the decay its exponential.
    pub fn gguf(&self, fold: Option<Fold>) -> Gguf {
        let sizes = &self.sizes;
        let mut tensors = Vec::new();
        let mut put = |name: &str, dims: Vec<usize>, values: &[f32]| {
            let dims = dims.into_iter().rev().collect();
            tensors.push(Entry { name: name.to_owned(), ..entry(0, "F32", dims, f32s(values)) });
        };
        let mut folding = Folding::new(fold, sizes);
        let of = |name: &str| &self.values[name];
        let gain = |name: &str| of(name).iter().map(|weight| weight + 1.0).collect::<Vec<f32>>();
        let (vocab, hidden) = (sizes.vocab, sizes.hidden);
        put("token_embd.weight", vec![vocab, hidden], &folding.table(of("model.embed_tokens.weight"), hidden));
        if !sizes.tied {
            put("output.weight", vec![vocab, hidden], &folding.matrix("output.weight", of("lm_head.weight"), hidden));
        }
        put("output_norm.weight", vec![hidden], &gain("model.norm.weight"));
        for (layer, &recurrent) in sizes.recurrent.iter().enumerate() {
            let from = |name: &str| format!("model.layers.{layer}.{name}");
            let to = |name: &str| format!("blk.{layer}.{name}");
            for (matrix, name, rows, cols) in sizes.matrices(layer) {
                let mut values = of(&from(&format!("{matrix}.weight"))).clone();
                match name {
                    "attn_qkv" => tiled(sizes, &mut values[2 * sizes.keys() * cols..], sizes.state * cols),
                    "attn_gate" => tiled(sizes, &mut values, sizes.state * cols),
                    "ssm_alpha" | "ssm_beta" => tiled(sizes, &mut values, cols),
                    "ssm_out" if !folding.grouped() => {
                        values.chunks_exact_mut(cols).for_each(|row| tiled(sizes, row, sizes.state));
                    }
                    _ => {}
                }
                let name = to(&format!("{name}.weight"));
                if !name.contains("ssm_alpha") && !name.contains("ssm_beta") {
                    values = folding.matrix(&name, &values, cols);
                }
                put(&name, vec![rows, cols], &values);
            }
            put(&to("attn_norm.weight"), vec![hidden], &gain(&from("input_layernorm.weight")));
            put(&to("post_attention_norm.weight"), vec![hidden], &gain(&from("post_attention_layernorm.weight")));
            if recurrent {
                let mut conv = of(&from("linear_attn.conv1d.weight")).clone();
                tiled(sizes, &mut conv[2 * sizes.keys() * sizes.kernel..], sizes.state * sizes.kernel);
                put(&to("ssm_conv1d.weight"), vec![conv.len() / sizes.kernel, sizes.kernel], &conv);
                let mut a: Vec<f32> = of(&from("linear_attn.A_log")).iter().map(|a| -a.exp()).collect();
                let mut dt = of(&from("linear_attn.dt_bias")).clone();
                tiled(sizes, &mut a, 1);
                tiled(sizes, &mut dt, 1);
                put(&to("ssm_a"), vec![a.len()], &a);
                put(&to("ssm_dt.bias"), vec![dt.len()], &dt);
                put(&to("ssm_norm.weight"), vec![sizes.state], of(&from("linear_attn.norm.weight")));
            } else {
                put(&to("attn_q_norm.weight"), vec![sizes.head], &gain(&from("self_attn.q_norm.weight")));
                put(&to("attn_k_norm.weight"), vec![sizes.head], &gain(&from("self_attn.k_norm.weight")));
            }
        }
        if sizes.mtp {
            let layer = sizes.recurrent.len();
            let to = |name: &str| format!("blk.{layer}.{name}.weight");
            put(&to("nextn.eh_proj"), vec![hidden, 2 * hidden], of("mtp.fc.weight"));
            for (matrix, name, rows, cols) in sizes.matrices_of(false) {
                let values = of(&format!("mtp.layers.0.{matrix}.weight"));
                put(&to(name), vec![rows, cols], &folding.matrix(&to(name), values, cols));
            }
            for (own, name) in [
                ("pre_fc_norm_embedding", "nextn.enorm"),
                ("pre_fc_norm_hidden", "nextn.hnorm"),
                ("norm", "nextn.shared_head_norm"),
                ("layers.0.input_layernorm", "attn_norm"),
                ("layers.0.post_attention_layernorm", "post_attention_norm"),
                ("layers.0.self_attn.q_norm", "attn_q_norm"),
                ("layers.0.self_attn.k_norm", "attn_k_norm"),
            ] {
                let values = gain(&format!("mtp.{own}.weight"));
                put(&to(name), vec![values.len()], &values);
            }
        }
        let mut pairs = self.pairs();
        pairs.extend(folding.pairs());
        Gguf { version: 3, tensor_count: None, pair_count: None, alignment: 32, pairs, tensors }
    }

    fn pairs(&self) -> Vec<(String, Value)> {
        let sizes = &self.sizes;
        let mtp = sizes.mtp.then_some(&false);
        let recurrent: Vec<u8> = sizes.recurrent.iter().chain(mtp).map(|&recurrent| u8::from(recurrent)).collect();
        let mut pairs = vec![("general.architecture".to_owned(), text("qwen35"))];
        for (name, value) in [
            ("block_count", recurrent.len()),
            ("context_length", 4096),
            ("embedding_length", sizes.hidden),
            ("feed_forward_length", sizes.ffn),
            ("attention.head_count", sizes.heads),
            ("attention.head_count_kv", sizes.kv_heads),
            ("attention.key_length", sizes.head),
            ("attention.value_length", sizes.head),
            ("rope.dimension_count", sizes.rotated()),
            ("ssm.conv_kernel", sizes.kernel),
            ("ssm.state_size", sizes.state),
            ("ssm.group_count", sizes.key_heads),
            ("ssm.time_step_rank", sizes.value_heads),
            ("ssm.inner_size", sizes.values()),
        ] {
            pairs.push((format!("qwen35.{name}"), uint(value as u32)));
        }
        if sizes.mtp {
            pairs.push(("qwen35.nextn_predict_layers".into(), uint(1)));
        }
        pairs.push(("qwen35.rope.freq_base".into(), float(1e7)));
        pairs.push(("qwen35.attention.layer_norm_rms_epsilon".into(), float(1e-6)));
        pairs.push(("qwen35.attention.recurrent_layers".into(), array(7, recurrent.len() as u64, &recurrent)));
        pairs
    }

    pub fn files(&self) -> Files {
        self.checkpoint().files()
    }
}

/// A PEFT adapter for every matrix of the layers, and the weights with what it adds to them.
pub fn lora(weights: &Weights, rank: usize, seed: u64) -> (Files, Weights) {
    let (mut rng, mut merged, mut tensors) = (Rng::new(seed), weights.clone(), Vec::new());
    for layer in 0..weights.sizes.recurrent.len() {
        for (matrix, _, rows, cols) in weights.sizes.matrices(layer) {
            let name = format!("model.layers.{layer}.{matrix}");
            let mut values = |count: usize, of: usize| -> Vec<f32> {
                (0..count).map(|_| 0.5 * normal(&mut rng) / (of as f32).sqrt()).collect()
            };
            let (a, b) = (values(rank * cols, cols), values(rows * rank, rank));
            let own = merged.values.get_mut(&format!("{name}.weight")).unwrap();
            for (i, weight) in own.iter_mut().enumerate() {
                *weight += (0..rank).map(|k| b[i / cols * rank + k] * a[k * cols + i % cols]).sum::<f32>();
            }
            for (half, shape, values) in [("A", vec![rank, cols], a), ("B", vec![rows, rank], b)] {
                let name = format!("base_model.model.{name}.lora_{half}.weight");
                tensors.push(Entry { name, ..entry(0, "F32", shape, f32s(&values)) });
            }
        }
    }
    let config = json!({ "peft_type": "LORA", "r": rank, "lora_alpha": rank });
    (Safetensors { config, tensors }.files(), merged)
}

/// Value heads of `size` values each, from the order of training to that in which they take turns at the key heads.
pub fn tiled(sizes: &Sizes, values: &mut [f32], size: usize) {
    let old = values.to_vec();
    let share = sizes.value_heads / sizes.key_heads;
    for (to, head) in values.chunks_exact_mut(size).enumerate() {
        let from = to % sizes.key_heads * share + to / sizes.key_heads;
        head.copy_from_slice(&old[from * size..][..size]);
    }
}

/// The signs of a folded file by width; none where no sign changes.
pub fn signs(file: &Gguf) -> BTreeMap<usize, Vec<f32>> {
    let find = |name: &str| {
        let key = format!("prism.hadamard.{name}");
        // Behind an array's type and length.
        file.pairs.iter().find(|(own, _)| *own == key).map_or(&[][..], |(_, value)| &value.1[12..])
    };
    let mut values = find("sign_values").iter().map(|&sign| f32::from(sign as i8));
    let widths = find("sign_widths").as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes) as usize);
    widths.map(|width| (width, values.by_ref().take(width).collect())).collect()
}

/// Rows of a folded matrix as they were before: s ∘ (H w), by the matrix' definition.
pub fn unfold(values: &[f32], block: usize, signs: Option<&[f32]>, cols: usize) -> Vec<f32> {
    let root = (block as f64).sqrt();
    let mut out = Vec::with_capacity(values.len());
    for (values, at) in values.chunks_exact(block).zip((0..cols / block).cycle()) {
        for row in 0..block {
            let sign = |col: usize| if (row & col).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            let sum: f64 = values.iter().enumerate().map(|(col, &value)| sign(col) * f64::from(value)).sum();
            out.push((sum / root) as f32 * signs.map_or(1.0, |signs| signs[at * block + row]));
        }
    }
    out
}

/// Folds matrices, and notes which.
struct Folding {
    fold: Option<Fold>,
    signs: BTreeMap<usize, Vec<f32>>,
    names: Vec<String>,
    rng: Rng,
}

impl Folding {
    fn new(fold: Option<Fold>, _sizes: &Sizes) -> Self {
        let rng = Rng::new(fold.and_then(|fold| fold.signs).unwrap_or(0));
        Self { fold, signs: BTreeMap::new(), names: Vec::new(), rng }
    }

    fn grouped(&self) -> bool {
        self.fold.is_some_and(|fold| fold.grouped)
    }

    fn table(&mut self, values: &[f32], cols: usize) -> Vec<f32> {
        let Some(Fold { block, signs, .. }) = self.fold else { return values.to_vec() };
        let rng = &mut self.rng;
        let sign = || if signs.is_some() && rng.below(2) == 0 { -1.0 } else { 1.0 };
        let own = self.signs.entry(cols).or_insert_with(|| std::iter::repeat_with(sign).take(cols).collect());
        // H · (s ∘ w), by the matrix' definition.
        let root = (block as f64).sqrt();
        let mut out = Vec::with_capacity(values.len());
        for blocks in values.chunks_exact(block).zip((0..cols / block).cycle()) {
            let (values, at) = blocks;
            for row in 0..block {
                let term = |col: usize| {
                    let sign = if (row & col).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                    sign * f64::from(own[at * block + col]) * f64::from(values[col])
                };
                out.push(((0..block).map(term).sum::<f64>() / root) as f32);
            }
        }
        out
    }

    fn matrix(&mut self, name: &str, values: &[f32], cols: usize) -> Vec<f32> {
        if self.fold.is_some() {
            self.names.push(name.to_owned());
        }
        self.table(values, cols)
    }

    fn pairs(&self) -> Vec<(String, Value)> {
        let Some(Fold { block, signs, grouped }) = self.fold else { return Vec::new() };
        let key = |name: &str, value| (format!("prism.hadamard.{name}"), value);
        let mut pairs = vec![
            key("version", uint(1)),
            key("block_size", uint(block as u32)),
            key("transform", text("normalized-sylvester-walsh-hadamard")),
            key("axis", text("input-last-dimension")),
            key("sign_mode", text(if signs.is_some() { "explicit" } else { "identity" })),
            key("weight_names", texts(&self.names)),
            key("inverse_weight_names", texts(&["token_embd.weight".to_owned()])),
            key("gdn_v_grouped", Value(7, vec![u8::from(grouped)])),
        ];
        if signs.is_some() {
            let widths: Vec<u8> = self.signs.keys().flat_map(|&width| (width as i32).to_le_bytes()).collect();
            // Published files have signed bytes here.
            let values: Vec<u8> = self.signs.values().flatten().map(|&sign| sign as i8 as u8).collect();
            pairs.push(key("sign_widths", array(5, self.signs.len() as u64, &widths)));
            pairs.push(key("sign_values", array(1, values.len() as u64, &values)));
        }
        pairs
    }
}

/// An array of strings.
pub fn texts(texts: &[String]) -> Value {
    let elements: Vec<u8> = texts.iter().flat_map(|one| text(one).1).collect();
    array(8, texts.len() as u64, &elements)
}
