//! Every matrix kernel against naive code on unpacked values, with `==`: the documented arithmetic is carried out for one row
//! and one value at a time.

use super::{DotProduct, Product, add, chunk_size};
use crate::kernels::act::{Act, Precision};
use crate::kernels::isa::Isa;
use crate::kernels::packed::{DecodedRows, Matrix, MatrixShape, Packing, TILE};
use crate::kernels::suite::close;
use crate::kernels::{sections, spec};
use crate::quant::{Codes, Float, Layout, SUPER_BLOCK, ScaleType, Scales};
use crate::rng::Rng;
use crate::team::Team;

pub(in crate::kernels) const TERNARY: Packing = Packing::Ints(Layout::TERNARY);

fn grouped(codes: Codes, offset: i32, len: usize, scale_type: ScaleType, min: bool) -> Packing {
    Packing::Ints(Layout { codes, step: 1, offset, scales: Scales::Group { len, scale_type, min } })
}

fn ints(packing: Packing) -> Layout {
    let Packing::Ints(layout) = packing else { unreachable!() };
    layout
}

/// Returns every packing that a storage type leads to.
fn packings() -> Vec<Packing> {
    vec![
        TERNARY,
        Packing::Ints(Layout { step: 2, offset: 1, ..ints(grouped(Codes::B1, 1, 128, ScaleType::F16, false)) }),
        grouped(Codes::B1, 0, 32, ScaleType::F32, true),
        grouped(Codes::B1, 0, 128, ScaleType::F32, true),
        grouped(Codes::B2, 1, 256, ScaleType::F16, false),
        grouped(Codes::B2, 1, 64, ScaleType::F16, false),
        grouped(Codes::B2, 0, 64, ScaleType::F32, true),
        grouped(Codes::B2, 0, 16, ScaleType::SuperBlock, true),
        grouped(Codes::B4, 8, 32, ScaleType::F16, false),
        grouped(Codes::B4, 0, 32, ScaleType::F16, true),
        grouped(Codes::B4, 0, 128, ScaleType::F32, true),
        grouped(Codes::B4, 4, 16, ScaleType::SuperBlock, false),
        grouped(Codes::B4, 0, 32, ScaleType::SuperBlock, true),
        grouped(Codes::B6, 16, 32, ScaleType::F16, false),
        grouped(Codes::B6, 0, 32, ScaleType::F16, true),
        grouped(Codes::B6, 32, 16, ScaleType::SuperBlock, false),
        grouped(Codes::B6, 0, 32, ScaleType::SuperBlock, true),
        grouped(Codes::I8, 0, 32, ScaleType::F16, false),
        Packing::Dense(Float::F32),
        Packing::Dense(Float::F16),
        Packing::Dense(Float::BF16),
    ]
}

/// How codes may lie: packed for kernels that look sums up, and five to a byte.
#[derive(Clone, Copy, Debug, Default)]
struct Lie {
    lookup: bool,
    five: bool,
}

/// Returns every packing in each of its layouts.
fn layouts() -> impl Iterator<Item = (Packing, Lie)> {
    packings().into_iter().flat_map(|packing| {
        let shape = MatrixShape { rows: TILE, cols: 256, packing, parts: 1, lookup: true, five: true };
        let both = |is: bool| [false, true].into_iter().take(1 + usize::from(is));
        both(shape.by_rows())
            .flat_map(move |lookup| both(shape.suits_five()).map(move |five| (packing, Lie { lookup, five })))
    })
}

/// A matrix, and the unpacked codes and scales that it was made from.
struct Sample {
    matrix: Matrix,
    codes: Vec<u8>,
    scales: Vec<f32>,
    mins: Vec<f32>,
    super_scales: Vec<[f32; 2]>,
    values: Vec<f32>,
}

fn half(value: f32) -> f32 {
    half::f16::from_f32(value).to_f32()
}

fn sample(packing: Packing, rows: usize, cols: usize, parts: usize, rng: &mut Rng) -> Sample {
    sample_by(Lie::default(), packing, rows, cols, parts, rng)
}

/// With codes that lie so.
fn sample_by(
    Lie { lookup, five }: Lie,
    packing: Packing,
    rows: usize,
    cols: usize,
    parts: usize,
    rng: &mut Rng,
) -> Sample {
    let shape = MatrixShape { rows, cols, packing, parts, lookup, five };
    let groups = shape.groups().1;
    let mut random = |spread: f32| (rng.unit() as f32 - 0.5) * spread;
    let (mut codes, mut scales, mut mins, mut super_scales, mut values) = (vec![], vec![], vec![], vec![], vec![]);
    match packing {
        Packing::Dense(float) => {
            for _ in 0..rows * cols {
                let value = random(2.0);
                match float {
                    Float::F32 => codes.extend(value.to_le_bytes()),
                    Float::F16 => codes.extend(half::f16::from_f32(value * 1e-3).to_le_bytes()),
                    Float::BF16 => codes.extend(half::bf16::from_f32(value).to_le_bytes()),
                }
            }
            values = float.values(&codes).collect();
        }
        Packing::Ints(layout) => {
            scales = (0..rows * groups).map(|_| half(random(0.1))).collect();
            mins = (0..rows * groups).map(|_| half(random(0.1))).collect();
            if shape.has_super_blocks() {
                super_scales = (0..rows * shape.blocks().1).map(|_| [half(random(0.1)), half(random(0.1))]).collect();
                let each = SUPER_BLOCK / shape.groups().0;
                let largest = if layout.offset == 32 { 255.0 } else { 126.0 };
                for (i, (scale, min)) in scales.iter_mut().zip(&mut mins).enumerate() {
                    let [unit, least] = super_scales[i / each];
                    (*scale, *min) = (unit * random(largest).round(), least * random(126.0).round());
                }
            }
            let most = match layout.codes {
                _ if layout == Layout::TERNARY || five => 3,
                Codes::B1 => 2,
                Codes::B2 => 4,
                Codes::B4 => 16,
                Codes::B6 => 64,
                Codes::I8 => 256,
            };
            codes = (0..rows * cols).map(|_| (random(1.0) * most as f32 + most as f32 / 2.0) as u8).collect();
        }
    }
    let mut sample = Sample { matrix: Matrix::reserve(shape).unwrap(), codes, scales, mins, super_scales, values };
    sample.pack();
    sample
}

impl Sample {
    /// Packs the matrix, twice, over what it held.
    fn pack(&mut self) {
        let Self { matrix, codes, scales, mins, super_scales, .. } = self;
        let shape = matrix.shape;
        let ((_, groups), (_, blocks)) = (shape.groups(), shape.blocks());
        let width = if let Packing::Dense(float) = shape.packing { float.bytes() } else { 1 };
        let row = shape.cols * width;
        for tile in 0..shape.tiles() {
            let (from, to) = (shape.tile_rows(tile).start, shape.tile_rows(tile).end);
            let part = DecodedRows {
                codes: &codes[from * row..to * row],
                scales: scales.get(from * groups..to * groups).unwrap_or(&[]),
                mins: mins.get(from * groups..to * groups).unwrap_or(&[]),
                super_scales: super_scales.get(from * blocks..to * blocks).unwrap_or(&[]),
            };
            matrix.pack(tile, part);
            matrix.pack(tile, part);
        }
        if shape.has_row_scales() {
            matrix.row_scales.clone_from(scales);
        }
    }
}

/// The greatest code, and the least magnitude that becomes it, as `docs/numerics.md` has them.
fn rounding(precision: Precision) -> (f32, f32) {
    match precision {
        Precision::Int8 => (127.0, 1e-5),
        Precision::Int4 => (7.0, 1e-5),
        Precision::Int2 => (1.0, 1e-5),
        Precision::Int14 | Precision::Float => (8191.0, 1e-30),
    }
}

/// Computes one output as documented, from unpacked weights and activations that are not prepared.
fn naive(sample: &Sample, row: usize, x: &[f32], precision: Precision) -> f32 {
    let shape = &sample.matrix.shape;
    let cols = shape.cols;
    let (len, groups) = shape.groups();
    let layout = match shape.packing {
        Packing::Ints(layout) => Some(layout),
        Packing::Dense(_) => None,
    };
    let scale = |col: usize| sample.scales[row * groups + col / len];
    let min = |col: usize| sample.mins[row * groups + col / len];
    let has_min = matches!(layout, Some(Layout { scales: Scales::Group { min: true, .. }, .. }));
    if layout.is_none() || precision == Precision::Float {
        let value = |col: usize| match layout {
            None => sample.values[row * cols + col],
            Some(layout) => {
                let scale = if sample.matrix.divide { 1.0 / scale(col) } else { scale(col) };
                layout.value(sample.codes[row * cols + col], scale, has_min.then(|| min(col)))
            }
        };
        return (0..cols)
            .step_by(64)
            .fold(0.0, |y, from| y + (from..cols.min(from + 64)).fold(0.0, |sum, col| sum + value(col) * x[col]));
    }
    let layout = layout.unwrap();
    if shape.has_super_blocks() {
        return naive_super_blocks(sample, layout, row, x, precision);
    }
    let (limit, least) = rounding(precision);
    let mut y = 0.0;
    for group in 0..groups {
        let range = group * len..cols.min((group + 1) * len);
        let most = x[range.clone()].iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let factor = 1.0 / most.max(least) * limit;
        let q = |col: usize| (x[col] * factor).round_ties_even() as i64;
        let code = |col: usize| {
            let code = sample.codes[row * cols + col];
            i64::from(layout.step) * if layout.codes == Codes::I8 { i64::from(code as i8) } else { i64::from(code) }
        };
        let sum: i64 = range.clone().map(|col| (code(col) - i64::from(layout.offset)) * q(col)).sum();
        let sum = sum as i32 as f32;
        if layout.scales == Scales::Row {
            return if sample.matrix.divide { sum / (factor * scale(0)) } else { sum / factor * scale(0) };
        }
        let total: i64 = range.clone().map(q).sum();
        let mut part = sum * scale(range.start);
        if has_min {
            part += total as i32 as f32 * min(range.start);
        }
        y += part * (most / limit);
    }
    y
}

/// Computes one output of K-quants: 256 values in integers, then one float for each plane.
fn naive_super_blocks(sample: &Sample, layout: Layout, row: usize, x: &[f32], precision: Precision) -> f32 {
    let shape = &sample.matrix.shape;
    let ((len, groups), (_, blocks)) = (shape.groups(), shape.blocks());
    let has_min = matches!(layout.scales, Scales::Group { min: true, .. });
    let (limit, least) = rounding(precision);
    let one_plane = precision.stored() == Precision::Int8 && layout.codes != Codes::B2;
    let factor = |value: f32, unit: f32| if unit == 0.0 { 0 } else { (value / unit) as i64 };
    (0..blocks).fold(0.0, |y, block| {
        let range = block * SUPER_BLOCK..(block + 1) * SUPER_BLOCK;
        let most = x[range.clone()].iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let [unit, unit_min] = sample.super_scales[row * blocks + block];
        let (mut high, mut low, mut mins) = (0, 0, 0);
        for col in range {
            let q = (x[col] * (1.0 / most.max(least) * limit)).round_ties_even() as i64;
            let group = row * groups + col / len;
            let weight = (i64::from(sample.codes[row * shape.cols + col]) - i64::from(layout.offset))
                * factor(sample.scales[group], unit);
            high += weight * if one_plane { 0 } else { q >> 7 };
            low += weight * if one_plane { q } else { q & 127 };
            mins += factor(sample.mins[group], unit_min) * q;
        }
        let mut part = (high as i32 as f32 * 128.0 + low as i32 as f32) * unit;
        if has_min {
            part += mins as i32 as f32 * unit_min;
        }
        y + part * (most / limit)
    })
}

fn product<I: Isa>(matrix: &Matrix, x: &[f32], precision: Precision, team: &Team) -> Vec<f32> {
    let [y, other] = DotProduct::ALL.map(|dots| product_by::<I>(dots, matrix, x, precision, team));
    assert!(y == other, "{:?} {precision:?}: both ways to sum", matrix.shape);
    y
}

fn product_by<I: Isa>(dots: DotProduct, matrix: &Matrix, x: &[f32], precision: Precision, team: &Team) -> Vec<f32> {
    let shape = &matrix.shape;
    let tokens = x.len() / shape.cols;
    let spec = spec(shape, precision);
    let mut act = Act::<I>::reserve(spec.bytes(tokens)).unwrap();
    let mut y = vec![f32::NAN; tokens * shape.rows];
    act.prepare(team, spec, tokens, |row, values| values.copy_from_slice(&x[row * shape.cols..][..shape.cols]));
    let product = Product::by(dots, matrix, &act);
    let sections: Vec<_> = sections(shape, 0).collect();
    team.columns(&mut y, shape.rows, &sections, chunk_size(tokens), |part, tiles, mut columns| {
        product.multiply(part, tiles, &mut columns);
    });
    y
}

/// Products of every packing, at sizes with every kind of remainder, are those of naive code. The checks share each sample, so
/// that the test exceeds 60 lines.
pub(in crate::kernels) fn matrices_multiply<I: Isa>() {
    let mut rng = Rng::new(158);
    for (packing, lie) in layouts() {
        for (number, (rows, cols, parts)) in [
            (1, 256, 1),
            (40, 256, 1),
            (64, 512, 1),
            (100, 768, 1),
            (48, 256, 4),
            (256, 256, 4),
            (33, 100, 1),
            (5, 37, 1),
        ]
        .into_iter()
        .enumerate()
        {
            let grouped = matches!(packing, Packing::Ints(Layout { scales: Scales::Group { .. }, .. }));
            if grouped && cols % 256 != 0 {
                continue;
            }
            let mut sample = sample_by(lie, packing, rows, cols, parts, &mut rng);
            sample.matrix.divide = number % 2 == 1 && packing == TERNARY;
            // Some numbers of tokens are enough for the panel, and leave every kind of remainder.
            let tokens = [6, 24, 7, 29, 5, 25, 6, 134][number];
            let mut x: Vec<f32> = (0..tokens * cols).map(|_| (rng.unit() as f32 - 0.5) * 20.0).collect();
            x[..cols].iter_mut().step_by(3).for_each(|x| *x = 0.0);
            x[cols..2 * cols].fill(0.0);
            for precision in Precision::ALL {
                let y = product::<I>(&sample.matrix, &x, precision, &Team::solo());
                for token in 0..tokens {
                    let x = &x[token * cols..][..cols];
                    for row in 0..rows {
                        let expected = naive(&sample, row, x, precision);
                        let found = y[token * rows + row];
                        assert!(
                            expected == found,
                            "{packing:?} {lie:?} {rows}x{cols}/{parts} {precision:?} token {token} row {row}: {expected} {found}"
                        );
                    }
                    let alone = product::<I>(&sample.matrix, x, precision, &Team::solo());
                    assert!(alone == y[token * rows..][..rows], "{packing:?} {precision:?}: alone and in a batch");
                }
                #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
                for members in [2, 3] {
                    assert!(product::<I>(&sample.matrix, &x, precision, &Team::new(members).unwrap()) == y);
                }
            }
            let mut values = vec![0.0; cols];
            for row in [0, rows / 2, rows - 1] {
                if let Packing::Ints(_) = packing {
                    let found = (0..cols).map(|col| sample.matrix.code(row, col).0);
                    assert!(found.eq(sample.codes[row * cols..][..cols].iter().copied()), "{packing:?} {lie:?}");
                }
                if packing != TERNARY {
                    sample.matrix.row(row, &mut values);
                    let unpacked: Vec<f32> = (0..cols)
                        .map(|col| match packing {
                            Packing::Dense(_) => sample.values[row * cols + col],
                            Packing::Ints(layout) => {
                                let (code, scale, min) = sample.matrix.code(row, col);
                                layout.value(code, scale, min)
                            }
                        })
                        .collect();
                    assert_eq!(values, unpacked);
                }
            }
        }
    }
}

/// One call multiplies more tiles than wait for their results together; the last has fewer rows.
pub(in crate::kernels) fn many_tiles_multiply<I: Isa>() {
    let mut rng = Rng::new(37);
    for (packing, lie) in layouts() {
        let sample = sample_by(lie, packing, 37 * TILE + 5, 256, 1, &mut rng);
        let x: Vec<f32> = (0..256).map(|_| rng.unit() as f32 - 0.5).collect();
        for precision in Precision::ALL {
            let y = product::<I>(&sample.matrix, &x, precision, &Team::solo());
            let wrong = (0..y.len()).find(|&row| y[row] != naive(&sample, row, &x, precision));
            assert!(wrong.is_none(), "{packing:?} {lie:?} {precision:?} row {wrong:?}");
        }
    }
}

/// Products are added in any order of the result's rows, and with any division of tokens.
pub(in crate::kernels) fn dense_products_are_added<I: Isa>() {
    let mut rng = Rng::new(31);
    for float in [Float::F32, Float::F16, Float::BF16] {
        for (rows, cols) in [(1, 5), (40, 16), (70, 100), (33, 64)] {
            let Sample { matrix, .. } = sample(Packing::Dense(float), rows, cols, 1, &mut rng);
            let tokens = 7;
            let x: Vec<f32> = (0..tokens * cols).map(|_| rng.unit() as f32 - 0.5).collect();
            let before: Vec<f32> = (0..tokens * rows).map(|_| rng.unit() as f32).collect();
            let spec = spec(&matrix.shape, Precision::Float);
            let mut act = Act::<I>::reserve(spec.bytes(tokens)).unwrap();
            act.prepare(&Team::solo(), spec, tokens, |t, out| out.copy_from_slice(&x[t * cols..][..cols]));
            let place = |t: usize| (3 * t + 1) % tokens;
            let sections: Vec<_> = sections(&matrix.shape, 0).collect();
            let add = |tokens: std::ops::Range<usize>, y: &mut Vec<f32>, team: &Team| {
                team.columns(y, rows, &sections, 1, |_, tiles, columns| {
                    add::<I>(&matrix, tiles, &act, tokens.clone(), &place, columns);
                });
            };
            let mut y = before.clone();
            add(0..tokens, &mut y, &Team::solo());
            let plain = product::<I>(&matrix, &x, Precision::Float, &Team::solo());
            for t in 0..tokens {
                let expected: Vec<f32> =
                    (0..rows).map(|row| before[place(t) * rows + row] + plain[t * rows + row]).collect();
                if cols <= 64 {
                    assert!(y[place(t) * rows..][..rows] == expected, "{float:?} {rows}x{cols}: one block of k");
                } else {
                    close(&y[place(t) * rows..][..rows], &expected, 1e-5);
                }
            }
            let mut apart = before.clone();
            (0..tokens).for_each(|t| add(t..t + 1, &mut apart, &Team::solo()));
            assert!(apart == y, "{float:?} {rows}x{cols}: one by one");
            #[cfg(all(feature = "threads", not(target_arch = "wasm32")))]
            {
                let mut shared = before.clone();
                add(0..tokens, &mut shared, &Team::new(3).unwrap());
                assert!(shared == y, "{float:?} {rows}x{cols}: by three");
            }
        }
    }
}

pub(in crate::kernels) fn wide_rows_do_not_overflow<I: Isa>() {
    let cols = 32768;
    for (lookup, five) in [(false, false), (true, false), (false, true), (true, true)] {
        let shape = MatrixShape { rows: TILE, cols, packing: TERNARY, parts: 1, lookup, five };
        let mut matrix = Matrix::reserve(shape).unwrap();
        matrix.pack(0, DecodedRows { codes: &vec![2; TILE * cols], scales: &[], mins: &[], super_scales: &[] });
        matrix.row_scales.fill(1.0);
        for precision in [Precision::Int8, Precision::Int14] {
            for tokens in [1, 24] {
                let y = product::<I>(&matrix, &vec![-3.0; tokens * cols], precision, &Team::solo());
                assert!(y.iter().all(|y| (y / (-3.0 * cols as f32) - 1.0).abs() < 1e-6), "{y:?}");
            }
        }
    }
}

/// The largest possible products must not overflow where they are summed in 16 bits.
pub(in crate::kernels) fn narrow_sums_do_not_overflow<I: Isa>() {
    let cols = 1024;
    // All as large as any, or all but one in each group of scales a little smaller.
    let extremes = |x: f32| (0..cols).map(|k| if k % 256 == 255 { x.signum() } else { x }).collect::<Vec<_>>();
    for (packing, lie) in layouts().filter(|(packing, _)| matches!(packing, Packing::Ints(_))) {
        let mut sample = sample_by(lie, packing, 3 * TILE, cols, 1, &mut Rng::new(7));
        let bits = ints(packing).codes.bits();
        let most = if bits == 8 { 127 } else { (1 << bits) - 1 - u8::from(lie.five) };
        for code in [most, 0] {
            sample.codes.fill(code);
            sample.pack();
            for x in [1.0, -1.0, -0.993].map(extremes) {
                for precision in [Precision::Int8, Precision::Int14] {
                    for tokens in [1, 8, 25] {
                        let y = product::<I>(&sample.matrix, &x.repeat(tokens), precision, &Team::solo());
                        assert_eq!(y[0], naive(&sample, 0, &x, precision), "{packing:?} {code} {precision:?} {tokens}");
                    }
                }
            }
        }
    }
}
