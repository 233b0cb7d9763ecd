//! A rotation that spreads a row's few large values over many, so that one scale suits all of them.
//!
//! It is a Hadamard matrix over as many fours of values as the largest power of two that divides the row: its own inverse but
//! for a factor, so that rotated queries and keys have the products they had, and rotated values are rotated back when mixed.

/// Rotates a row. Twice gives the row times the number that it answers, a power of two.
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
