//! The kernels' tests, for the instruction set of the build that they run in. Matrix kernels and attention have suites of their own
//! beside them; here is what calls them, and the tests of activations and elementwise operations.

use super::act::{Act, Precision, rounding_error};
use super::attention::suite::{attention_is_softmax, groups_do_not_influence_each_other, what_is_not_finite_shows};
use super::delta::{self, HeadKind, HeadWeights, Position, Rows};
use super::elementwise::{self, Gate, Pairs};
use super::hadamard;
use super::isa::{Active, Isa, scalar::Scalar};
use super::linear::suite::{
    TERNARY, dense_products_are_added, many_tiles_multiply, matrices_multiply, narrow_sums_do_not_overflow,
    wide_rows_do_not_overflow,
};
use super::packed::{DecodedRows, Matrix, MatrixShape, Packing};
use super::spec;
use crate::quant::{self, Storage};
use crate::rng::Rng;
use crate::team::{Columns, Team};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Instantiates tests for the instruction set that this build is for, which natively is the scalar one.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        mod active {
            #[cfg(target_arch = "wasm32")]
            use wasm_bindgen_test::wasm_bindgen_test as test;
            $(#[test] fn $name() { super::$name::<super::Active>() })*
        }
    };
}

tests!(
    matrices_multiply,
    many_tiles_multiply,
    dense_products_are_added,
    wide_rows_do_not_overflow,
    narrow_sums_do_not_overflow,
    floats_round_to_codes,
    rounding_loses_what_is_said,
    norms_and_gates,
    rotations,
    exponentials,
    convolutions,
    recurrences,
    rotations_of_inputs,
    attention_is_softmax,
    groups_do_not_influence_each_other,
    what_is_not_finite_shows,
);

fn floats_round_to_codes<I: Isa>() {
    let golden = quant::tests::Golden::new(include_bytes!("../../tests/golden/ops/ops.safetensors"));
    let (x, expected) = (golden.floats("act.x"), golden.bytes("act.codes_i8"));
    let scales = golden.floats("act.scale");
    let shape = MatrixShape { rows: 1, cols: 96, packing: TERNARY, parts: 1, lookup: false, five: false };
    let spec = spec(&shape, Precision::Int8);
    let tokens = x.len() / 96;
    let mut act = Act::<I>::reserve(spec.bytes(tokens)).unwrap();
    act.prepare(&Team::solo(), spec, tokens, |row, out| out.copy_from_slice(&x[row * 96..][..96]));
    let isa = I::default();
    for token in 0..tokens {
        let row = act.row(token);
        assert_eq!(row.scales[0].to_bits(), scales[token].to_bits(), "scale of row {token}");
        let codes: Vec<i8> = expected[token * 96..][..96].iter().map(|&code| code as i8).collect();
        assert_eq!(row.sums[0], codes.iter().map(|&code| i32::from(code)).sum::<i32>());
        for (step, four) in codes.chunks_exact(4).enumerate() {
            let quad = isa.quad([four[0], four[1], four[2], four[3]]);
            assert_eq!(bytemuck::bytes_of(&row.planes[0][step]), bytemuck::bytes_of(&quad), "row {token}, step {step}");
        }
    }
}

fn rounding_loses_what_is_said<I: Isa>() {
    let scales = quant::Scales::Group { len: 16, scale_type: quant::ScaleType::SuperBlock, min: false };
    let packing = Packing::Ints(quant::Layout { codes: quant::Codes::B6, step: 1, offset: 32, scales });
    let shape = MatrixShape { rows: 1, cols: 768, packing, parts: 1, lookup: false, five: false };
    let mut rng = Rng::new(7);
    for size in [1e-7, 1.0, 1e6] {
        let x: Vec<f32> = random(&mut rng, 768).iter().map(|x| x * size).collect();
        for precision in [Precision::Int8, Precision::Int14] {
            let spec = spec(&shape, precision);
            let mut act = Act::<I>::reserve(spec.bytes(1)).unwrap();
            act.prepare(&Team::solo(), spec, 1, |_, out| out.copy_from_slice(&x));
            let row = act.row(0);
            let code = |at: usize| {
                let [first, second] =
                    row.planes.map(|plane| plane.get(at / 4).map(|quad| I::default().codes(quad)[at % 4]));
                second.map_or(i32::from(first.unwrap()), |low| 128 * i32::from(first.unwrap()) + i32::from(low))
            };
            let lost = |at: usize| f64::from(x[at]) - f64::from(code(at)) * f64::from(row.scales[at / 256]);
            let expected = (0..768).map(|at| lost(at).powi(2)).sum::<f64>().sqrt();
            let found = f64::from(rounding_error::<I>(&spec, &x));
            // The last place of a value, 2⁻²⁴ of it, is a thousandth of what int14 loses of the largest ones.
            assert!((found / expected - 1.0).abs() < 2e-3, "{precision:?} of {size}: {found} for {expected}");
        }
    }
    let spec = spec(&shape, Precision::Int8);
    assert!(rounding_error::<I>(&spec, &[[1.0; 767].as_slice(), &[f32::NAN]].concat()).is_nan());
    assert!(rounding_error::<I>(&spec, &[[f32::INFINITY].as_slice(), &[1.0; 767]].concat()).is_nan());
}

pub(in crate::kernels) fn close(found: &[f32], expected: &[f32], tolerance: f32) {
    let most = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance * most, "{i}: {found} for {expected} (of {most})");
    }
}

fn norms_and_gates<I: Isa>() {
    let golden = quant::tests::Golden::new(include_bytes!("../../tests/golden/ops/ops.safetensors"));
    let (weight, x) = (golden.floats("rmsnorm.weight"), golden.floats("rmsnorm.x"));
    for (x, expected) in x.chunks_exact(96).zip(golden.floats("rmsnorm.out_eps1e-5").chunks_exact(96)) {
        let mut out = x.to_vec();
        elementwise::rms_norm::<I>(&mut out, &weight, 1e-5);
        close(&out, expected, 1e-6);
    }
    let x = golden.floats("relu2.x");
    let ones = vec![1.0; x.len()];
    for (kind, name) in [(Gate::Relu2, "relu2.out"), (Gate::Silu, "silu.out")] {
        let mut out = x.clone();
        elementwise::gate::<I>(kind, &mut out, &ones);
        close(&out, &golden.floats(name), 1e-6);
        // A length that is no multiple of a vector gives the same values.
        for len in [1, 3, 7] {
            let mut short = x[..len].to_vec();
            elementwise::gate::<I>(kind, &mut short, &ones[..len]);
            assert_eq!(short, out[..len]);
        }
    }
    let mut sum = vec![1.0, 2.0, 3.0, 4.0, 5.0];
    elementwise::add::<I>(&mut sum, &[0.5; 5]);
    assert_eq!(sum, [1.5, 2.5, 3.5, 4.5, 5.5]);
}

fn rotations<I: Isa>() {
    let golden = quant::tests::Golden::new(include_bytes!("../../tests/golden/ops/ops.safetensors"));
    for name in ["default", "hd100", "llama3", "linear"] {
        let frequencies = golden.floats(&format!("rope.{name}.inv_freq"));
        let positions: Vec<i32> = golden
            .bytes(&format!("rope.{name}.positions"))
            .chunks_exact(4)
            .map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        let head = 2 * frequencies.len();
        let mut x = golden.floats(&format!("rope.{name}.x"));
        let mut adjacent = x.clone();
        for (i, (x, adjacent)) in x.chunks_exact_mut(head).zip(adjacent.chunks_exact_mut(head)).enumerate() {
            let angle = |f: &f32| positions[i % positions.len()] as f32 * f;
            let cos: Vec<f32> = frequencies.iter().map(|f| libm::cosf(angle(f))).collect();
            let sin: Vec<f32> = frequencies.iter().map(|f| libm::sinf(angle(f))).collect();
            // The other style is the same rotation of rows in another order.
            let (low, high) = x.split_at(head / 2);
            for i in 0..head / 2 {
                adjacent[2 * i] = low[i];
                adjacent[2 * i + 1] = high[i];
            }
            elementwise::rope::<I>(Pairs::Halves, x, head, &cos, &sin);
            elementwise::rope::<I>(Pairs::Adjacent, adjacent, head, &cos, &sin);
            for i in 0..head / 2 {
                assert_eq!((x[i], x[i + head / 2]), (adjacent[2 * i], adjacent[2 * i + 1]));
            }
        }
        close(&x, &golden.floats(&format!("rope.{name}.out")), 1e-6);
    }
}

fn exponentials<I: Isa>() {
    let isa = I::default();
    let mut worst = 0.0f64;
    for i in -9000..=8800 {
        let x = i as f32 / 100.0;
        let mut out = [0.0; 4];
        isa.store_f32(&mut out, elementwise::Exp::new(isa).of(isa.splat_f32(x)));
        if x < -87.34 {
            assert_eq!(out[0], 0.0, "exp({x})");
        } else if x > -87.3 {
            let expected = f64::from(x).exp();
            worst = worst.max((f64::from(out[0]) / expected - 1.0).abs());
        }
    }
    assert!(worst < 1.5e-7, "{worst}");
    let mut out = [0.0; 4];
    isa.store_f32(&mut out, elementwise::Exp::new(isa).of(isa.splat_f32(0.0)));
    assert_eq!(out, [1.0; 4]);
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn random(rng: &mut Rng, count: usize) -> Vec<f32> {
    (0..count).map(|_| rng.unit() as f32 * 2.0 - 1.0).collect()
}

/// Against a sum over all of the past, channel by channel.
fn convolutions<I: Isa>() {
    let mut rng = Rng::new(3);
    for (head, kernel, rows) in [(4, 4, 1), (16, 4, 7), (20, 2, 5), (128, 5, 40)] {
        for kind in [HeadKind::Query, HeadKind::Key, HeadKind::Value] {
            // Two heads side by side, of which the second is convolved, and channels of others before it.
            let (channels, channel) = (3 * head, 2 * head);
            let weights: Vec<Vec<f32>> = (0..kernel).map(|_| random(&mut rng, channels)).collect();
            let input = random(&mut rng, rows * 2 * head);
            let run = |piece: usize| {
                let mut out = input.clone();
                let mut history = vec![0.0; delta::history_len(head, kernel)];
                let mut columns = Columns::all(&mut out, 2 * head);
                for from in (0..rows).step_by(piece) {
                    let all = from..rows.min(from + piece);
                    let span = Rows { tried: all.end, all };
                    delta::convolve::<I>(kind, &mut columns, (&span, head), &mut history, &weights, (channel, head));
                }
                (out, history)
            };
            let (out, history) = run(rows);
            for piece in [1, 3] {
                assert!(run(piece) == (out.clone(), history.clone()), "pieces of {piece}");
            }
            for row in 0..rows {
                let value = |at: usize| {
                    let past = (0..kernel).filter(|&k| row + k + 1 >= kernel);
                    let term = |k: usize| {
                        let from = row + k + 1 - kernel;
                        f64::from(weights[k][channel + at]) * f64::from(input[from * 2 * head + head + at])
                    };
                    let sum: f64 = past.map(term).sum();
                    sum * sigmoid(sum)
                };
                let values: Vec<f64> = (0..head).map(value).collect();
                let length = (values.iter().map(|v| v * v).sum::<f64>() + 1e-6).sqrt();
                let factor = match kind {
                    HeadKind::Query => 1.0 / length / (head as f64).sqrt(),
                    HeadKind::Key => 1.0 / length,
                    HeadKind::Value => 1.0,
                };
                let expected: Vec<f32> = values.iter().map(|value| (value * factor) as f32).collect();
                close(&out[row * 2 * head + head..][..head], &expected, 2e-6);
                assert_eq!(out[row * 2 * head..][..head], input[row * 2 * head..][..head], "its neighbour");
            }
        }
    }
}

/// Against the recurrence as it is written, on a whole matrix of f64. Its cases exceed 60 lines.
fn recurrences<I: Isa>() {
    let mut rng = Rng::new(4);
    for (head, rows) in [(4, 3), (16, 9), (20, 40), (64, 70)] {
        let [query, key, value, gate] = std::array::from_fn(|_| random(&mut rng, rows * head));
        let numbers: Vec<[f32; 2]> = (0..rows).map(|_| [0, 1].map(|_| rng.unit() as f32 * 60.0 - 30.0)).collect();
        let norm = random(&mut rng, head);
        let weights = HeadWeights { a: -0.7, dt: 0.3, norm: &norm, eps: 1e-6 };
        let part = |values: &[f32], row: usize| values[row * head..][..head].to_vec();
        let rows_of: Vec<[Vec<f32>; 4]> =
            (0..rows).map(|row| [part(&query, row), part(&key, row), part(&value, row), part(&gate, row)]).collect();
        let position = |row: usize| {
            let [query, key, value, gate] = &rows_of[row];
            Position { query, key, value, gate, alpha: numbers[row][0], beta: numbers[row][1] }
        };
        let run = |piece: usize| {
            let mut state = vec![0.0; delta::state_len(head)];
            let mut out = vec![0.0; rows * 2 * head];
            let mut columns = Columns::all(&mut out, 2 * head);
            for from in (0..rows).step_by(piece) {
                let all = from..rows.min(from + piece);
                let span = Rows { tried: all.end, all };
                delta::recur::<I>(&mut state, weights, &mut columns, (&span, head), &position);
            }
            (out, state)
        };
        let (out, state) = run(rows);
        for piece in [1, 7] {
            assert!(run(piece) == (out.clone(), state.clone()), "pieces of {piece}");
        }
        // What is only tried has the same results, and leaves the state of what came before.
        if rows <= 32 {
            for tried in 0..rows {
                let (mut after, mut before) = (vec![0.0; delta::state_len(head)], vec![0.0; delta::state_len(head)]);
                let (mut all, mut some) = (vec![0.0; rows * 2 * head], vec![0.0; rows * 2 * head]);
                let take = |state: &mut [f32], out: &mut [f32], end: usize| {
                    let span = Rows { all: 0..end, tried };
                    delta::recur::<I>(state, weights, &mut Columns::all(out, 2 * head), (&span, head), &position);
                };
                take(&mut after, &mut all, rows);
                take(&mut before, &mut some, tried);
                assert!(all == out && after == before, "{tried} of {rows}");
            }
        }
        let mut s = vec![vec![0.0f64; head]; head];
        for row in 0..rows {
            let [q, k, v, z] =
                rows_of[row].each_ref().map(|part| part.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
            let [alpha, beta] = numbers[row].map(f64::from);
            let decay = (f64::from(weights.a) * (alpha + f64::from(weights.dt)).exp().ln_1p()).exp();
            for j in 0..head {
                (0..head).for_each(|i| s[i][j] *= decay);
                let known: f64 = (0..head).map(|i| s[i][j] * k[i]).sum();
                let learnt = (v[j] - known) * sigmoid(beta);
                (0..head).for_each(|i| s[i][j] += k[i] * learnt);
            }
            let o: Vec<f64> = (0..head).map(|j| (0..head).map(|i| s[i][j] * q[i]).sum()).collect();
            let mean = o.iter().map(|o| o * o).sum::<f64>() / head as f64;
            let expected = (0..head).map(|j| o[j] / (mean + 1e-6).sqrt() * f64::from(norm[j]) * z[j] * sigmoid(z[j]));
            close(&out[row * 2 * head + head..][..head], &expected.map(|x| x as f32).collect::<Vec<_>>(), 2e-5);
        }
    }
}

/// Against the matrix by its definition.
fn rotations_of_inputs<I: Isa>() {
    let mut rng = Rng::new(5);
    for block in [1, 2, 4, 8, 16, 128, 1024] {
        let x = random(&mut rng, 3 * block);
        let signs: Vec<f32> = (0..3 * block).map(|_| if rng.below(2) == 0 { -1.0 } else { 1.0 }).collect();
        for signs in [None, Some(&signs[..])] {
            let of = |at: usize| signs.map_or(1.0, |signs| f64::from(signs[at]));
            let value = |at: usize| {
                let (first, row) = (at / block * block, at % block);
                let term = |col: usize| {
                    let sign = if (row & col).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                    sign * of(first + col) * f64::from(x[first + col])
                };
                ((0..block).map(term).sum::<f64>() / (block as f64).sqrt()) as f32
            };
            let expected: Vec<f32> = (0..3 * block).map(value).collect();
            let (mut rotated, mut same) = (x.clone(), x.clone());
            hadamard::rotate::<I>(&mut rotated, block, signs);
            close(&rotated, &expected, 1e-6);
            // The order of additions is one for all instruction sets.
            hadamard::rotate::<Scalar>(&mut same, block, signs);
            assert!(rotated == same, "block {block}");
            hadamard::restore::<I>(&mut rotated, block, signs);
            close(&rotated, &x, 1e-6);
        }
    }
}

/// Packed rows decode to the values of the storage type, from the bytes of a file on. The list of types makes it exceed 60
/// lines.
#[test]
fn storage_types_reach_the_kernels_unchanged() {
    let mut rng = Rng::new(11);
    for storage in [
        &quant::Q4_0,
        &quant::Q4_1,
        &quant::Q5_0,
        &quant::Q5_1,
        &quant::Q8_0,
        &quant::Q2_K,
        &quant::Q3_K,
        &quant::Q4_K,
        &quant::Q5_K,
        &quant::Q6_K,
        &quant::TQ1_0,
        &quant::TQ2_0,
        &quant::Q1_0,
        &quant::Q2_0,
        &quant::PQ2_0,
        &quant::PTQ1_0,
    ] {
        let storage: &'static Storage = storage;
        let quant::Content::Blocks { layout, decode } = storage.content else { unreachable!() };
        let (rows, cols) = (40, 512);
        let shape = MatrixShape { rows, cols, packing: Packing::Ints(layout), parts: 1, lookup: false, five: false };
        let (len, groups) = shape.groups();
        let mut bytes: Vec<u8> =
            (0..storage.size((rows * cols) as u64).unwrap()).map(|_| rng.next_u64() as u8).collect();
        for block in bytes.chunks_exact_mut(storage.bytes) {
            // An f16 without a large exponent wherever a type has one, so that no scale is NaN.
            let end = block.len();
            for at in [0, 2, end - 4, end - 2] {
                block[at + 1] = block[at + 1] & 0x83 | 0x24;
            }
        }
        let expected = storage.values(&bytes);
        let (_, blocks) = shape.blocks();
        let (mut codes, mut scales, mut mins) =
            (vec![0; rows * cols], vec![0.0; rows * groups], vec![0.0; rows * groups]);
        let mut super_scales = vec![[1.0; 2]; rows * cols / storage.block];
        for (i, block) in bytes.chunks_exact(storage.bytes).enumerate() {
            let group = i * storage.block / len..(i + 1) * storage.block / len;
            decode(
                block,
                quant::Block {
                    codes: &mut codes[i * storage.block..][..storage.block],
                    scales: &mut scales[group.clone()],
                    mins: &mut mins[group],
                    super_scales: &mut super_scales[i],
                },
            );
        }
        let mut matrix = Matrix::reserve(shape).unwrap();
        for tile in 0..shape.tiles() {
            let range = shape.tile_rows(tile);
            matrix.pack(
                tile,
                DecodedRows {
                    codes: &codes[range.start * cols..range.end * cols],
                    scales: &scales[range.start * groups..range.end * groups],
                    mins: &mins[range.start * groups..range.end * groups],
                    super_scales: super_scales.get(range.start * blocks..range.end * blocks).unwrap_or(&[]),
                },
            );
        }
        let mut row = vec![0.0; cols];
        for i in 0..rows {
            matrix.row(i, &mut row);
            assert_eq!(row, expected[i * cols..][..cols], "{} row {i}", storage.name);
        }
    }
}
