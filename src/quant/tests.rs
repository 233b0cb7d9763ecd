//! Every decoder is compared with ggml's, bit for bit, on blocks that its quantisers made and on random bits.

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
    for storage in [
        &F16, &BF16, &Q8_0, &Q4_0, &Q4_1, &Q5_0, &Q5_1, &Q2_K, &Q3_K, &Q4_K, &Q5_K, &Q6_K, &TQ1_0, &TQ2_0, &Q1_0, &Q2_0,
    ] {
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
        let bytes = golden.bytes(&format!("{name}.arm"));
        let mut codes = vec![9; expected.len()];
        ternary::i2_s_arm(&bytes[..expected.len() / 4], &mut codes);
        let scale = Float::F32.value(&bytes[expected.len() / 4..][..4]);
        let values: Vec<f32> = codes.iter().map(|&code| Layout::TERNARY.value(code, scale, None)).collect();
        assert_eq!(values, expected, "{name}.arm");
    }
}

#[test]
fn encoders_are_the_decoders_inverse() {
    let golden = Golden::new(BLOCKS);
    type Encode = fn(&[u8], half::f16, &mut [u8]);
    // Random TQ1_0 blocks hold bytes that no encoder writes.
    let codes: [(&Storage, &[&str], Encode, usize); 3] = [
        (&TQ1_0, &["bytes"], ternary::encode_tq1_0, 52),
        (&TQ2_0, &["bytes", "random_bytes"], ternary::encode_tq2_0, 64),
        (&Q1_0, &["bytes", "random_bytes"], binary::encode_q1_0, 0),
    ];
    for (storage, kinds, encode, at) in codes {
        for kind in kinds {
            let bytes = golden.bytes(&format!("{}.{kind}", storage.name));
            for block in bytes.chunks_exact(storage.bytes) {
                let Content::Blocks { decode, .. } = storage.content else { unreachable!() };
                let mut codes = vec![9; storage.block];
                decode(
                    block,
                    Block { codes: &mut codes, scales: &mut [0.0], mins: &mut [0.0], super_scales: &mut [0.0; 2] },
                );
                let mut again = vec![9; storage.bytes];
                encode(&codes, half::f16::from_le_bytes([block[at], block[at + 1]]), &mut again);
                assert_eq!(again, block, "{}.{kind}", storage.name);
            }
        }
    }
    for block in golden.bytes("Q4_1.random_bytes").chunks_exact(20) {
        let (mut codes, mut again) = (vec![9; 32], vec![9; 20]);
        simple::q4_1(
            block,
            Block { codes: &mut codes, scales: &mut [0.0], mins: &mut [0.0], super_scales: &mut [0.0; 2] },
        );
        let half = |at: usize| half::f16::from_le_bytes([block[at], block[at + 1]]);
        simple::encode_q4_1(&codes, half(0), half(2), &mut again);
        assert_eq!(again, block);
    }
    let golden = Golden::new(I2S_BLOCKS);
    for name in ["a", "b"] {
        let bytes = golden.bytes(&format!("{name}.x86"));
        let bytes = &bytes[..bytes.len() - I2S_TAIL as usize];
        let (mut codes, mut again) = (vec![9; bytes.len() * 4], vec![9; bytes.len()]);
        ternary::i2_s(bytes, &mut codes);
        ternary::encode_i2_s(&codes, &mut again);
        assert_eq!(again, bytes, "{name}");
    }
}

#[test]
fn values_are_rounded_as_in_ggml() {
    let golden = Golden::new(BLOCKS);
    let encoders: [(&Storage, Round); 3] =
        [(&Q8_0, simple::encode_q8_0), (&Q4_0, simple::encode_q4_0), (&Q6_K, kquants::encode_q6_k)];
    for (storage, encode) in encoders {
        let values = golden.floats(&format!("{}.input", storage.name));
        let expected = golden.bytes(&format!("{}.bytes", storage.name));
        let mut block = vec![9; storage.bytes];
        for (i, values) in values.chunks_exact(storage.block).enumerate() {
            encode(values, &mut block);
            assert_eq!(block, expected[i * storage.bytes..][..storage.bytes], "{}, block {i}", storage.name);
        }
        encode(&vec![0.0; storage.block], &mut block);
        assert!(storage.values(&block).iter().all(|&value| value == 0.0), "{}", storage.name);
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

#[test]
fn prism_types_decode_as_described() {
    // No golden bytes exist: the older Q2_0 is Q2_0 with longer blocks, and PTQ1_0 is TQ1_0's code in another order.
    let mut rng = crate::rng::Rng::new(4);
    let codes: Vec<u8> = (0..128).map(|_| rng.below(3) as u8).collect();
    let mut pq2 = vec![0x00, 0x38];
    pq2.extend(codes.chunks(4).map(|four| four.iter().rev().fold(0, |byte, code| byte << 2 | code)));
    let expected: Vec<f32> = codes.iter().map(|&code| 0.5 * (f32::from(code) - 1.0)).collect();
    assert_eq!(PQ2_0.values(&pq2), expected);

    let byte = |digits: [u8; 5]| {
        let number = digits.iter().fold(0u16, |number, &digit| 3 * number + u16::from(digit));
        (number * 256).div_ceil(243) as u8
    };
    let mut ptq1: Vec<u8> = (0..16).map(|m| byte(std::array::from_fn(|n| codes[16 * n + m]))).collect();
    ptq1.extend((0..8).map(|m| byte(std::array::from_fn(|n| codes[80 + 8 * n + m]))));
    ptq1.extend((0..2).map(|h| byte(std::array::from_fn(|n| if n < 4 { codes[120 + 2 * n + h] } else { 0 }))));
    ptq1.extend([0x00, 0x38]);
    assert_eq!(PTQ1_0.values(&ptq1), expected);
}
