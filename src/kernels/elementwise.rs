//! The operations between matrices, on rows of f32: norms, rotary embeddings, gates, exponentials.
//!
//! A sum over a row uses sixteen fixed lanes that are added in a fixed order, so that it does not depend on the instruction
//! set. `exp` is a polynomial of our own, and sines and cosines come from the `libm` crate, which is Rust: no platform's
//! mathematical library influences a result.

use super::isa::Isa;

/// Returns Σ x². Value i is added to lane i mod 16; the lanes are added at the end, then what is left of the row.
pub(super) fn square_sum<I: Isa>(isa: I, x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<16>();
    let mut sums = [isa.splat_f32(0.0); 4];
    for chunk in chunks {
        for (sum, four) in sums.iter_mut().zip(chunk.as_chunks::<4>().0) {
            let v = isa.load_f32(four);
            *sum = isa.add(*sum, isa.mul(v, v));
        }
    }
    let mut lanes = [0.0; 4];
    isa.store_f32(&mut lanes, isa.add(isa.add(sums[0], sums[1]), isa.add(sums[2], sums[3])));
    rest.iter().fold((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]), |sum, x| sum + x * x)
}

/// Returns the length of a row, √Σ x².
pub fn length<I: Isa>(x: &[f32]) -> f32 {
    square_sum(I::default(), x).sqrt()
}

/// RMSNorm (Zhang and Sennrich, 2019): `x = x / √(mean(x²) + eps) · weight`, in place. A row whose squares overflow becomes
/// NaN.
///
/// # Panics
/// If the lengths differ.
pub fn rms_norm<I: Isa>(x: &mut [f32], weight: &[f32], eps: f32) {
    assert_eq!(x.len(), weight.len(), "one length");
    let isa = I::default();
    let mean = square_sum(isa, x) / x.len() as f32;
    // With an infinite mean every value would become a plausible zero.
    let factor = if mean < f32::INFINITY { 1.0 / (mean + eps).sqrt() } else { f32::NAN };
    scale::<I>(x, factor);
    map2(isa, x, weight, |x, w| isa.mul(x, w));
}

/// Multiplies a row by a number: `x *= factor`.
pub fn scale<I: Isa>(x: &mut [f32], factor: f32) {
    let isa = I::default();
    let (fours, rest) = x.as_chunks_mut::<4>();
    for four in fours {
        let v = isa.mul(isa.load_f32(four), isa.splat_f32(factor));
        isa.store_f32(four, v);
    }
    rest.iter_mut().for_each(|x| *x *= factor);
}

/// Adds two rows: `x += y`.
///
/// # Panics
/// If the lengths differ.
pub fn add<I: Isa>(x: &mut [f32], y: &[f32]) {
    let isa = I::default();
    map2(isa, x, y, |x, y| isa.add(x, y));
}

/// The activation function of a gated feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x / (1 + e⁻ˣ)`
    Silu,
    /// `max(x, 0)²`
    Relu2,
}

impl Gate {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::Relu2 => "relu2",
        }
    }
}

/// Applies a gate: `g = activation(g) · up`.
///
/// # Panics
/// If the lengths differ.
pub fn gate<I: Isa>(kind: Gate, g: &mut [f32], up: &[f32]) {
    let isa = I::default();
    let (exp, zero) = (Exp::new(isa), isa.splat_f32(0.0));
    match kind {
        Gate::Silu => map2(isa, g, up, |g, up| isa.mul(isa.div(g, isa.add(exp.one(), exp.of(isa.sub(zero, g)))), up)),
        Gate::Relu2 => map2(isa, g, up, |g, up| {
            let positive = isa.max(g, zero);
            isa.mul(isa.mul(positive, positive), up)
        }),
    }
}

/// Multiplies a row by the sigmoid of a gate, or by the gate's own value as well (SiLU): `x = x · σ(g)`, `x = x · g · σ(g)`.
///
/// # Panics
/// If the lengths differ.
pub fn gated<I: Isa>(silu: bool, x: &mut [f32], g: &[f32]) {
    let isa = I::default();
    let exp = Exp::new(isa);
    map2(isa, x, g, |x, g| {
        let x = if silu { isa.mul(x, g) } else { x };
        isa.div(x, isa.add(exp.one(), exp.of(isa.sub(isa.splat_f32(0.0), g))))
    });
}

/// Computes `a = f(a, b)`, four values at a time. The rest of a row goes through the same operations in a padded vector.
#[inline(always)]
fn map2<I: Isa>(isa: I, a: &mut [f32], b: &[f32], f: impl Fn(I::V, I::V) -> I::V) {
    assert_eq!(a.len(), b.len(), "one length");
    let ((fours_a, rest_a), (fours_b, rest_b)) = (a.as_chunks_mut::<4>(), b.as_chunks::<4>());
    for (a, b) in fours_a.iter_mut().zip(fours_b) {
        let v = f(isa.load_f32(a), isa.load_f32(b));
        isa.store_f32(a, v);
    }
    if !rest_a.is_empty() {
        let pad = |rest: &[f32]| std::array::from_fn(|i| rest.get(i).copied().unwrap_or(0.0));
        let mut padded = [0.0; 4];
        isa.store_f32(&mut padded, f(isa.load_f32(&pad(rest_a)), isa.load_f32(&pad(rest_b))));
        rest_a.copy_from_slice(&padded[..rest_a.len()]);
    }
}

/// Computes eˣ. Its constants are loaded once, before a loop: V8 rebuilds literals at every use, which takes as long as all else.
pub struct Exp<I: Isa> {
    isa: I,
    least: I::V,
    most: I::V,
    log2_e: I::V,
    ln2: [I::V; 2],
    /// The coefficients, the highest power's first; the last is 1.
    polynomial: [I::V; 7],
    bias: I::V,
}

/// In the order of [`Exp`]'s fields. The bias of an exponent stands as an integer's bits.
static EXP_CONSTANTS: [f32; 13] = [
    -87.33,
    88.0,
    std::f32::consts::LOG2_E,
    0.693_359_4,
    2.121_944_4e-4,
    f32::from_bits(127),
    1.987_569_2e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    0.5,
    1.0,
];

impl<I: Isa> Exp<I> {
    /// Loads the constants.
    #[inline(always)]
    pub fn new(isa: I) -> Self {
        let constants = std::hint::black_box(&EXP_CONSTANTS).map(|constant| isa.splat_f32(constant));
        let [least, most, log2_e, high, low, bias, polynomial @ ..] = constants;
        Self { isa, least, most, log2_e, ln2: [high, low], polynomial, bias }
    }

    /// 1, which gates need too.
    #[inline(always)]
    pub fn one(&self) -> I::V {
        self.polynomial[6]
    }

    /// Computes eˣ to about one unit in the last place. Below −87.33 the result is 0, and x is clamped to 88 above.
    ///
    /// With x = n · ln 2 + r, |r| ≤ ln 2 / 2: the polynomial in r is that of Cephes' `expf`, and 2ⁿ is written into the exponent.
    /// ln 2 is subtracted in two parts, so that r keeps its precision.
    #[inline(always)]
    pub fn of(&self, x: I::V) -> I::V {
        let isa = self.isa;
        // The comparison is false for NaN, which therefore stays.
        let dead = isa.gt(self.least, x);
        let whole = x;
        let x = isa.min(isa.max(x, self.least), self.most);
        let power_of_two = isa.round(isa.mul(x, self.log2_e));
        let n = isa.to_f32(power_of_two);
        let r = isa.add(isa.sub(x, isa.mul(n, self.ln2[0])), isa.mul(n, self.ln2[1]));
        let [first, rest @ .., one] = self.polynomial;
        let p = rest.into_iter().fold(first, |p, term| isa.add(isa.mul(p, r), term));
        let y = isa.add(isa.add(isa.mul(p, isa.mul(r, r)), r), one);
        let power = isa.shl_i32(isa.add_i32(power_of_two, self.bias), 23);
        // Compilers and engines differ in what min and max return for a NaN, so it bypasses them.
        let nan = isa.mul(isa.and_not(whole, dead), isa.splat_f32(0.0));
        isa.add(isa.and_not(isa.mul(y, power), dead), nan)
    }
}

/// Which dimensions of a head form a pair that rotary embeddings turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// 2i with 2i + 1, as in GGUF files of the architecture `llama`, whose Q and K rows the converter has permuted.
    Adjacent,
    /// i with i + half, as in all other models.
    Halves,
}

/// Rotary position embedding (Su et al., "RoFormer", 2021): turns the first `2 · cos.len()` values of every head of `head`
/// values by the angles of one position.
///
/// # Panics
/// If the angles do not fit the head, or `cos` and `sin` differ in length.
pub fn rope<I: Isa>(pairs: Pairs, heads: &mut [f32], head: usize, cos: &[f32], sin: &[f32]) {
    let isa = I::default();
    let half = cos.len();
    assert!(sin.len() == half && 2 * half <= head, "angles fit the head");
    for head in heads.chunks_exact_mut(head) {
        match pairs {
            Pairs::Adjacent => {
                for (pair, (cos, sin)) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos.iter().zip(sin)) {
                    let [a, b] = *pair;
                    *pair = [a * cos - b * sin, b * cos + a * sin];
                }
            }
            Pairs::Halves => {
                let (low, high) = head[..2 * half].split_at_mut(half);
                let ((a4, a1), (b4, b1)) = (low.as_chunks_mut::<4>(), high.as_chunks_mut::<4>());
                let ((c4, c1), (s4, s1)) = (cos.as_chunks::<4>(), sin.as_chunks::<4>());
                for ((a, b), (cos, sin)) in a4.iter_mut().zip(b4).zip(c4.iter().zip(s4)) {
                    let (va, vb, cos, sin) = (isa.load_f32(a), isa.load_f32(b), isa.load_f32(cos), isa.load_f32(sin));
                    isa.store_f32(a, isa.sub(isa.mul(va, cos), isa.mul(vb, sin)));
                    isa.store_f32(b, isa.add(isa.mul(vb, cos), isa.mul(va, sin)));
                }
                for ((a, b), (cos, sin)) in a1.iter_mut().zip(b1).zip(c1.iter().zip(s1)) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
        }
    }
}
