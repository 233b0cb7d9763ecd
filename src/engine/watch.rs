//! Numbers for a host that watches the memory between two steps: where things lie, and what the last operation has left there.
//! Nothing here changes a result.

use super::Engine;
use crate::kernels::isa::Isa;
use crate::kernels::packed::Matrix;
use crate::kernels::rows::Codec;
use crate::model::forward::OperationValues;

/// The address of what a slice begins with.
fn address<T>(values: &[T]) -> f64 {
    values.as_ptr() as usize as f64
}

impl<I: Isa> Engine<I> {
    /// Whether the passes that begin from now on compute every logit where the largest alone would do, so that [`Self::last_operation`] tells of them.
    pub fn watch_logits(&mut self, on: bool) {
        self.watched = on;
    }

    /// Seven numbers for each matrix, those of the layers in the order of a pass, then the head, then the embedding where it is another one:
    /// address and number of its tiles, bytes of a tile, rows, columns, address and number of its scales of rows.
    pub fn matrices(&self) -> Vec<f64> {
        let model = self.model();
        let mut numbers = Vec::new();
        let mut note = |matrix: &Matrix| {
            let Matrix { shape, row_scales, .. } = matrix;
            let sizes = [shape.tiles(), shape.tile_bytes(), shape.rows, shape.cols, row_scales.len()];
            let [tiles, bytes, rows, cols, scales] = sizes.map(|size| size as f64);
            numbers.extend_from_slice(&[
                address(matrix.codes()),
                tiles,
                bytes,
                rows,
                cols,
                address(row_scales),
                scales,
            ]);
        };
        model.for_each_matrix(&mut note);
        if model.head.is_some() {
            note(&model.embedding);
        }
        numbers
    }

    /// How keys and values lie: layers that attend, key/value heads, values of a head, the codec's place in [`Codec::ALL`]; then for each
    /// conversation the number of its positions, that of its blocks, and the address of each.
    pub fn cached(&self) -> Vec<f64> {
        let (shape, codec) = self.cache.layout();
        let place = Codec::ALL.iter().position(|&one| one == codec).unwrap_or(0);
        let mut numbers = Vec::new();
        numbers.extend_from_slice(&[shape.layers, shape.heads, shape.dim, place].map(|number| number as f64));
        for session in self.sessions.values() {
            let blocks = self.cache.blocks(session.table);
            numbers.extend_from_slice(&[session.cached as f64, blocks as f64]);
            for block in self.cache.bytes(session.table, blocks) {
                numbers.push(address(block));
            }
        }
        numbers
    }

    /// Of the operation that ran last, if it has matrices: its place in [`Operation::NAMES`](crate::observe::Operation::NAMES), its layer,
    /// rows, values from one row to the next, values of a row that count, their address. Then for each matrix how its input is rounded (in the
    /// order of [`Precision`](crate::kernels::act::Precision)), values of the input, of these at the limit of int8, and what is not finite in the
    /// input and in the output.
    pub fn last_operation(&self) -> Vec<f64> {
        let model = self.model();
        let Some(OperationValues { operation, layer, rows, stride, width, values }) = self.forward.last_values(model)
        else {
            return Vec::new();
        };
        let mut numbers = Vec::new();
        numbers.extend_from_slice(&[operation as usize, layer, rows, stride, width].map(|number| number as f64));
        numbers.push(address(values));
        self.forward.trace(model, false, &mut |traced| {
            let [input, output] = [traced.input, traced.output].map(|values| values.nans + values.infinities);
            let counts = [traced.precision as u64, traced.input.count, traced.input.saturated, input, output];
            numbers.extend_from_slice(&counts.map(|count| count as f64));
        });
        numbers
    }
}
