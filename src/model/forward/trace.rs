//! What the last operation's matrices read and wrote, looked up between two operations: all of it still lies in the scratch.

use super::pass::multiplied;
use super::{Forward, LAYER, row};
use crate::kernels::act::Precision;
use crate::kernels::isa::Isa;
use crate::kernels::packed::Matrix;
use crate::model::weights::Model;
use crate::observe::{Operation, ValueStats};

#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// `None` for the head.
    pub layer: Option<usize>,
    pub operation: Operation,
    /// Which of the operation's matrices.
    pub index: usize,
    pub matrix: &'a Matrix,
    pub precision: Precision,
    /// Before it is rounded.
    pub input: ValueStats,
    pub output: ValueStats,
    /// How often each code occurs where int8 rounds every row of the input by one scale: [`CODES`] counts, or none. The head has none.
    pub codes: &'a [u32],
}

/// Codes of int8: −127 to 127.
pub const CODES: usize = 255;

/// Counts the codes that int8 rounds these values to by one scale.
fn count(codes: &mut [u32], values: &[f32]) {
    let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    if most > 0.0 {
        let factor = Precision::Int8.factor(most);
        for value in values {
            codes[((value * factor).round_ties_even() + 127.0) as usize] += 1;
        }
    }
}

/// The values that an operation has read, or of the head those that it has written.
#[derive(Clone, Copy, Debug)]
pub struct OperationValues<'a> {
    pub operation: Operation,
    pub layer: usize,
    pub rows: usize,
    /// Values from one row to the next, and how many of them count.
    pub stride: usize,
    pub width: usize,
    pub values: &'a [f32],
}

impl<I: Isa> Forward<I> {
    /// What the operation that ran last leaves to be seen, if it has matrices.
    pub fn last_values(&self, model: &Model) -> Option<OperationValues<'_>> {
        let past = self.operation.checked_sub(2)?;
        let (operation, config) = (self.at(self.operation - 1, model), &model.config);
        let number = past / LAYER.len();
        let layer = model.layer_range.start + number;
        let rows = self.rows.len();
        if rows == 0 {
            // Nothing was wanted of the last layer's: the operation did not run.
            return None;
        }
        let seen = |stride, width, values| Some(OperationValues { operation, layer, rows, stride, width, values });
        if operation == Operation::Head && self.largest(0).is_some() {
            // They are no numbers of the model's.
            return None;
        }
        match operation {
            Operation::Qkv | Operation::GateUp => seen(config.hidden, config.hidden, &self.hidden[..]),
            Operation::Output => {
                let width = model.layers[number].output.inputs[0].spec.cols;
                seen(width, width, &self.attended[..])
            }
            // The gate is multiplied by what was gated, in place.
            Operation::Down => seen(2 * config.ffn, config.ffn, &self.gate_up[..]),
            Operation::Head => {
                let rows = self.logits.len() / config.vocab;
                seen(config.vocab, config.vocab, &self.logits[..]).map(|seen| OperationValues { rows, ..seen })
            }
            _ => None,
        }
    }

    /// Every matrix of the operation that ran last, if it has any; `counted` says whether the codes of its input are counted.
    pub fn trace(&self, model: &Model, counted: bool, note: &mut dyn FnMut(Traced)) {
        let Some(past) = self.operation.checked_sub(2) else { return };
        let operation = self.at(self.operation - 1, model);
        if operation == Operation::Head {
            // A pass that began without a trace may have no more than the largest logits.
            if self.largest(0).is_some() {
                return;
            }
            return self.trace_head(model, past - model.layer_range.len() * LAYER.len(), note);
        }
        if self.rows.is_empty() {
            return;
        }
        let (number, config) = (past / LAYER.len(), &model.config);
        let layer = &model.layers[number];
        let (linear, from, result) = match operation {
            Operation::Qkv => (&layer.qkv, &self.hidden, &self.qkv),
            Operation::Output => (&layer.output, &self.attended, &self.update),
            Operation::GateUp => (&layer.gate_up, &self.hidden, &self.gate_up),
            Operation::Down => (&layer.down, &self.gate_up, &self.update),
            _ => return,
        };
        let (mut first, mut index) = (0, 0);
        for part in &linear.inputs {
            let mut input = ValueStats::default();
            let mut codes = vec![0; if counted { CODES } else { 0 }];
            let mut values = vec![0.0; part.spec.cols];
            for i in 0..self.rows.len() {
                multiplied::<I>(config, layer, operation, from, i, &mut values);
                part.finish::<I>(&mut values);
                input.add(&values);
                if counted {
                    count(&mut codes, &values);
                }
            }
            for matrix in &part.matrices {
                let mut output = ValueStats::default();
                for i in 0..self.rows.len() {
                    output.add(&row(result, linear.width, i)[first..][..matrix.shape.rows]);
                }
                let precision = part.spec.precision;
                note(Traced {
                    layer: Some(model.layer_range.start + number),
                    operation,
                    index,
                    matrix,
                    precision,
                    input,
                    output,
                    codes: &codes,
                });
                first += matrix.shape.rows;
                index += 1;
            }
        }
    }

    fn trace_head(&self, model: &Model, chunk: usize, note: &mut dyn FnMut(Traced)) {
        let (mut input, mut output) = (ValueStats::default(), ValueStats::default());
        for (i, &index) in self.wanted.iter().skip(chunk * self.head_rows).take(self.head_rows).enumerate() {
            let mut state = self.state(model, index);
            if let Some(rotation) = &model.head_rotation {
                rotation.rotate::<I>(&mut state);
            }
            input.add(&state);
            output.add(self.logits(i));
        }
        let (operation, matrix, precision) = (Operation::Head, model.head(), model.head_precision);
        note(Traced { layer: None, operation, index: 0, matrix, precision, input, output, codes: &[] });
    }
}
