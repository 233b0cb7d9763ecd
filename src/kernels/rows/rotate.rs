//! The Hadamard rotation of rows before they are rounded to integers.
//!
//! Keys and values often have a few large dimensions, which would determine the row's scale and leave the others few levels. An
//! orthogonal rotation spreads them over all dimensions. QuaRot (Ashkboos et al., 2024) uses a Hadamard matrix for this, in the
//! KV cache among other places. Its transform needs additions alone: the fast Walsh–Hadamard transform has log₂ n passes of
//! butterflies.
//!
//! ```text
//! (a, b) → (a + b, a − b)      over halves of 2, 4, 8, … fours of values
//! ```
//!
//! The four values of a quad stay apart, so that a butterfly is a vector operation; n is the number of quads, or the largest
//! power of two that divides it. The matrix H is symmetric and H · H = n, so that
//!
//! - scores need no inverse: `(H q) · (H k) = n · (q · k)`, and n goes into the query's scale,
//! - a weighted sum of rotated values is the rotated sum: it is rotated once more at the end, and divided by n.
//!
//! For a head of 12 values n is 1, for 96 it is 8: such rows are spread less.

/// Rotates a row in place; returns n. Rotating twice multiplies the row by n, a power of two.
///
/// ```
/// let mut row = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
/// assert_eq!(ternlight::kernels::rows::rotate(&mut row), 2.0);
/// assert_eq!(row, [6.0, 8.0, 10.0, 12.0, -4.0, -4.0, -4.0, -4.0]);
/// ternlight::kernels::rows::rotate(&mut row);
/// assert_eq!(row, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]);
/// ```
pub fn rotate(row: &mut [f32]) -> f32 {
    let fours = row.len() / 4;
    let count = fours & fours.wrapping_neg();
    let mut half = 1;
    while half < count {
        for pair in row.chunks_exact_mut(8 * half) {
            let (a, b) = pair.split_at_mut(4 * half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    count as f32
}
