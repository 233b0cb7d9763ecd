//! Small files made by hand: whole models of a few kilobytes, every field of which a test can set wrong.

use super::Files;

/// Sizes of the models here; wide enough for blocks of 256 values.
pub const HIDDEN: u64 = 256;
pub const HEAD: u64 = 64;
pub const VOCAB: u64 = 32;
const MATRICES: [&str; 7] = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
const HUGGING_FACE: [&str; 7] = [
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
];

/// What a model may have of each; the default is a small one.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub hidden: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head: u64,
    pub ffn: u64,
    pub vocab: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { hidden: HIDDEN, heads: HIDDEN / HEAD, kv_heads: 1, head: HEAD, ffn: HIDDEN, vocab: VOCAB }
    }
}

impl Sizes {
    /// Rows and columns of the layer's matrices.
    fn matrices(&self) -> [(u64, u64); 7] {
        let &Self { hidden, ffn, .. } = self;
        let (q, kv) = (self.heads * self.head, self.kv_heads * self.head);
        [(q, hidden), (kv, hidden), (kv, hidden), (hidden, q), (ffn, hidden), (ffn, hidden), (hidden, ffn)]
    }
}

/// A GGUF value: its type and its bytes.
#[derive(Clone)]
pub struct Value(pub u32, pub Vec<u8>);

pub fn uint(value: u32) -> Value {
    Value(4, value.to_le_bytes().into())
}

pub fn float(value: f32) -> Value {
    Value(6, value.to_le_bytes().into())
}

pub fn text(value: &str) -> Value {
    Value(8, string(value))
}

/// An array, with any count before its elements.
pub fn array(element: u32, count: u64, elements: &[u8]) -> Value {
    Value(9, [&element.to_le_bytes()[..], &count.to_le_bytes(), elements].concat())
}

fn string(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes()[..], value.as_bytes()].concat()
}

#[derive(Clone)]
pub struct Entry {
    pub name: String,
    /// As the format has them: GGUF the shortest stride first, safetensors the longest.
    pub dims: Vec<u64>,
    pub kind: u32,
    pub dtype: String,
    /// Where the data are said to be, where that is a lie.
    pub offset: Option<u64>,
    pub data: Vec<u8>,
}

#[derive(Clone)]
pub struct Gguf {
    pub version: u32,
    pub tensor_count: Option<u64>,
    pub pair_count: Option<u64>,
    pub alignment: usize,
    pub pairs: Vec<(String, Value)>,
    pub tensors: Vec<Entry>,
}

/// How a storage type lays out a block: its ggml id, values, bytes, and where its halves are.
#[derive(Clone, Copy)]
pub struct Blocks {
    pub id: u32,
    pub values: u64,
    pub bytes: u64,
    pub halves: &'static [usize],
}

pub const BLOCKS: [Blocks; 17] = [
    blocks(2, 32, 18, &[0]),
    blocks(3, 32, 20, &[0, 2]),
    blocks(6, 32, 22, &[0]),
    blocks(7, 32, 24, &[0, 2]),
    blocks(8, 32, 34, &[0]),
    blocks(10, 256, 84, &[80, 82]),
    blocks(11, 256, 110, &[108]),
    blocks(12, 256, 144, &[0, 2]),
    blocks(13, 256, 176, &[0, 2]),
    blocks(14, 256, 210, &[208]),
    blocks(34, 256, 54, &[52]),
    blocks(35, 256, 66, &[64]),
    blocks(41, 128, 18, &[0]),
    blocks(42, 64, 18, &[0]),
    blocks(142, 128, 34, &[0]),
    blocks(143, 128, 28, &[26]),
    // F16: every value is a half.
    blocks(1, 1, 2, &[0]),
];

const fn blocks(id: u32, values: u64, bytes: u64, halves: &'static [usize]) -> Blocks {
    Blocks { id, values, bytes, halves }
}

const F32: Blocks = blocks(0, 1, 4, &[]);
const ONE: [u8; 2] = [0x00, 0x3c];

impl Gguf {
    /// A model of one layer, all F32.
    pub fn llama() -> Self {
        Self::of(F32)
    }

    /// The same in any size.
    pub fn sized(sizes: Sizes) -> Self {
        Self::new(sizes, F32)
    }

    /// Its layer's matrices in another type, all scales 1.
    pub fn of(kind: Blocks) -> Self {
        Self::new(Sizes::default(), kind)
    }

    fn new(sizes: Sizes, kind: Blocks) -> Self {
        let Sizes { hidden, heads, kv_heads, head, ffn, vocab } = sizes;
        let pair = |name: &str, value| (format!("llama.{name}"), value);
        let mut pairs = vec![("general.architecture".to_owned(), text("llama"))];
        for (name, value) in [
            ("block_count", 1),
            ("context_length", 64),
            ("embedding_length", hidden),
            ("feed_forward_length", ffn),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv_heads),
        ] {
            pairs.push(pair(name, uint(value as u32)));
        }
        pairs.push(pair("attention.layer_norm_rms_epsilon", float(1e-5)));
        if heads * head != hidden {
            pairs.push(pair("attention.key_length", uint(head as u32)));
        }
        let dense = |name: &str, dims: &[u64]| Entry {
            name: name.to_owned(),
            dims: dims.to_vec(),
            kind: 0,
            dtype: "F32".to_owned(),
            offset: None,
            data: values(dims.iter().product()),
        };
        let mut tensors = vec![
            dense("token_embd.weight", &[hidden, vocab]),
            dense("output_norm.weight", &[hidden]),
            dense("blk.0.attn_norm.weight", &[hidden]),
            dense("blk.0.ffn_norm.weight", &[hidden]),
        ];
        for (name, (rows, cols)) in MATRICES.into_iter().zip(sizes.matrices()) {
            let mut entry = dense(&format!("blk.0.{name}.weight"), &[cols, rows]);
            if kind.id != 0 {
                let mut block = vec![0x55; kind.bytes as usize];
                kind.halves.iter().for_each(|&at| block[at..at + 2].copy_from_slice(&ONE));
                entry.data = block.repeat((rows * cols / kind.values) as usize);
                entry.kind = kind.id;
            }
            tensors.push(entry);
        }
        Self { version: 3, tensor_count: None, pair_count: None, alignment: 32, pairs, tensors }
    }

    pub fn set(mut self, key: &str, value: Value) -> Self {
        self.pairs.retain(|(own, _)| own != key);
        self.pairs.push((key.to_owned(), value));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.pairs.retain(|(key, _)| key != name);
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    pub fn tensor(mut self, name: &str, change: impl FnOnce(&mut Entry)) -> Self {
        change(self.tensors.iter_mut().find(|tensor| tensor.name == name).expect("a tensor of the model"));
        self
    }

    /// The bytes before the first tensor.
    pub fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.pair_count.unwrap_or(self.pairs.len() as u64).to_le_bytes());
        for (key, Value(kind, bytes)) in &self.pairs {
            out.extend(string(key));
            out.extend(kind.to_le_bytes());
            out.extend(bytes);
        }
        let mut at = 0;
        for tensor in &self.tensors {
            out.extend(string(&tensor.name));
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(at as u64).to_le_bytes());
            at = (at + tensor.data.len()).next_multiple_of(self.alignment);
        }
        out
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&tensor.data);
        }
        out
    }

    pub fn files(&self) -> Files {
        Files { config: None, weights: vec![self.bytes()] }
    }
}

/// Some dull floats.
fn values(count: u64) -> Vec<u8> {
    (0..count).flat_map(|i| (0.5 + (i % 7) as f32 * 0.25).to_le_bytes()).collect()
}

/// A safetensors file and its `config.json`.
#[derive(Clone)]
pub struct Safetensors {
    pub config: serde_json::Value,
    pub tensors: Vec<Entry>,
}

impl Safetensors {
    /// The same model in bf16's place: F32 throughout.
    pub fn llama() -> Self {
        Self::sized(Sizes::default())
    }

    pub fn sized(sizes: Sizes) -> Self {
        let mut config = serde_json::json!({
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": sizes.hidden,
            "intermediate_size": sizes.ffn,
            "num_hidden_layers": 1,
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.kv_heads,
            "max_position_embeddings": 64,
            "rms_norm_eps": 1e-5,
            "vocab_size": sizes.vocab,
            "tie_word_embeddings": true,
        });
        if sizes.heads * sizes.head != sizes.hidden {
            config["head_dim"] = sizes.head.into();
        }
        let rename = |name: &str| match name {
            "token_embd.weight" => "model.embed_tokens.weight".to_owned(),
            "output_norm.weight" => "model.norm.weight".to_owned(),
            "blk.0.attn_norm.weight" => "model.layers.0.input_layernorm.weight".to_owned(),
            "blk.0.ffn_norm.weight" => "model.layers.0.post_attention_layernorm.weight".to_owned(),
            matrix => {
                let index = MATRICES.iter().position(|own| matrix == format!("blk.0.{own}.weight")).unwrap();
                format!("model.layers.0.{}.weight", HUGGING_FACE[index])
            }
        };
        let mut tensors = Gguf::sized(sizes).tensors;
        for tensor in &mut tensors {
            tensor.name = rename(&tensor.name);
            tensor.dims.reverse();
        }
        Self { config, tensors }
    }

    /// With its layer's matrices in Hugging Face's packing.
    pub fn packed() -> Self {
        Self::llama().pack()
    }

    /// Rows must be multiples of 4.
    pub fn pack(self) -> Self {
        let mut model = self;
        model.config["quantization_config"] =
            serde_json::json!({ "quant_method": "bitnet", "linear_class": "bitlinear" });
        let mut scales = Vec::new();
        for tensor in model.tensors.iter_mut().filter(|tensor| tensor.name.contains("_proj")) {
            tensor.dtype = "U8".to_owned();
            tensor.dims[0] /= 4;
            tensor.data = vec![0x24; tensor.dims.iter().product::<u64>() as usize];
            scales.push(Entry {
                name: format!("{}_scale", tensor.name),
                dims: vec![1],
                dtype: "F32".to_owned(),
                data: 2f32.to_le_bytes().into(),
                ..tensor.clone()
            });
        }
        model.tensors.extend(scales);
        model
    }

    /// With its layer's matrices as MLX packs them: 2 bits in groups of 64.
    pub fn mlx() -> Self {
        let mut model = Self::llama();
        model.config["quantization"] = serde_json::json!({ "bits": 2, "group_size": 64 });
        let mut beside = Vec::new();
        for tensor in model.tensors.iter_mut().filter(|tensor| tensor.name.contains("_proj")) {
            let groups = vec![tensor.dims[0], tensor.dims[1] / 64];
            tensor.dtype = "U32".to_owned();
            tensor.dims[1] /= 16;
            tensor.data = vec![0x24; 4 * tensor.dims.iter().product::<u64>() as usize];
            for field in ["scales", "biases"] {
                beside.push(Entry {
                    name: tensor.name.replace("weight", field),
                    dims: groups.clone(),
                    dtype: "F32".to_owned(),
                    data: values(groups.iter().product()),
                    ..tensor.clone()
                });
            }
        }
        model.tensors.extend(beside);
        model
    }

    pub fn config(mut self, key: &str, value: serde_json::Value) -> Self {
        self.config[key] = value;
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.config.as_object_mut().expect("an object").remove(name);
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    pub fn tensor(mut self, name: &str, change: impl FnOnce(&mut Entry)) -> Self {
        change(self.tensors.iter_mut().find(|tensor| tensor.name == name).expect("a tensor of the model"));
        self
    }

    pub fn header(&self) -> String {
        let mut at = 0;
        let entries = self.tensors.iter().map(|tensor| {
            let begin = tensor.offset.unwrap_or(at);
            at += tensor.data.len() as u64;
            format!(
                r#"{:?}:{{"dtype":{:?},"shape":{:?},"data_offsets":[{begin},{}]}}"#,
                tensor.name,
                tensor.dtype,
                tensor.dims,
                begin.wrapping_add(tensor.data.len() as u64)
            )
        });
        format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
    }

    pub fn bytes(&self) -> Vec<u8> {
        let data: Vec<u8> = self.tensors.iter().flat_map(|tensor| tensor.data.iter().copied()).collect();
        with_header(self.header().as_bytes(), &data)
    }

    pub fn files(&self) -> Files {
        Files { config: Some(self.config.to_string().into_bytes()), weights: vec![self.bytes()] }
    }
}

/// A safetensors file of any header and data.
pub fn with_header(header: &[u8], data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header, data].concat()
}
