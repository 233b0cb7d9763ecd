//! Every decoder against ggml's own, bit for bit, on blocks that its quantisers made and on arbitrary bits.

use super::*;
use crate::formats::{Parsed, Tensor, safetensors};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

static BLOCKS: &[u8] = include_bytes!("../../tests/golden/gguf/blocks.safetensors");
static I2S_BLOCKS: &[u8] = include_bytes!("../../tests/golden/gguf/i2s_blocks.safetensors");

pub(crate) struct Golden {
    tensors: Vec<Tensor>,
    bytes: &'static [u8],
}

impl Golden {
    pub(crate) fn new(bytes: &'static [u8]) -> Self {
        match safetensors::parse(bytes, bytes.len() as u64).unwrap() {
            Parsed::Done(parsed) => Self { tensors: parsed.tensors, bytes },
            Parsed::Need(_) => unreachable!("the whole file is here"),
        }
    }

    fn find(&self, name: &str) -> Option<&'static [u8]> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name)?;
        Some(&self.bytes[tensor.offset as usize..][..tensor.len as usize])
    }

    pub(crate) fn bytes(&self, name: &str) -> &'static [u8] {
        self.find(name).unwrap_or_else(|| panic!("no {name}"))
    }

    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        F32.values(self.bytes(name))
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn blocks_decode_as_in_ggml() {
    let golden = Golden::new(BLOCKS);
    let mut failed = Vec::new();
    for storage in [&F16, &BF16, &Q8_0, &Q4_0, &Q4_1, &Q6_K, &TQ1_0, &TQ2_0] {
        for (bytes, expected) in [("bytes", "expected"), ("random_bytes", "random_expected")] {
            let Some(bytes) = golden.find(&format!("{}.{bytes}", storage.name)) else {
                assert!(matches!(storage.content, Content::Dense(_)), "{}", storage.name);
                continue;
            };
            let expected = golden.floats(&format!("{}.{expected}", storage.name));
            if bits(&storage.values(bytes)) != bits(&expected) {
                failed.push((storage.name, expected.len()));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn i2_s_decodes_as_in_bitnet_cpp() {
    let golden = Golden::new(I2S_BLOCKS);
    for name in ["a", "b"] {
        let expected = golden.floats(&format!("{name}.expected"));
        for writer in ["x86", "python_converter"] {
            let bytes = golden.bytes(&format!("{name}.{writer}"));
            let mut codes = vec![9; expected.len()];
            ternary::i2_s(&bytes[..expected.len() / 4], &mut codes);
            let scale = Float::F32.value(&bytes[expected.len() / 4..][..4]);
            let values: Vec<f32> = codes.iter().map(|&code| Layout::TERNARY.value(code, scale, None)).collect();
            assert_eq!(values, expected, "{name}.{writer}");
        }
    }
}

#[test]
fn every_ternary_byte_decodes() {
    // All 256 bytes of a TQ1_0 block against base-3 arithmetic on the number that the byte stands for.
    for byte in 0..=255u8 {
        let mut block = [0u8; 54];
        block[..48].fill(byte);
        block[52..].copy_from_slice(&half::f16::ONE.to_le_bytes());
        let values = TQ1_0.values(&block);
        let mut rest = u32::from(byte);
        for digit in 0..5 {
            rest *= 3;
            let expected = (rest >> 8) as f32 - 1.0;
            rest &= 255;
            assert_eq!(values[32 * digit], expected, "byte {byte}, digit {digit}");
            assert_eq!(values[160 + 16 * digit], expected, "byte {byte}, digit {digit}");
        }
    }
}
