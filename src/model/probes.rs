//! Probes: rows that are read before the layouts are fixed, where a header leaves them open.

use litemap::LiteMap;

use super::config::Config;
use super::interleave;
use super::items::{Item, Reading, Target};
use super::names::{Slot, TensorRole};
use super::plan::{ByteRange, InterleaveSource, Plan};
use crate::error::Result;
use crate::formats::Tensor;
use crate::quant::{Block, Content, Interleave};

/// Some rows of a tensor.
#[derive(Clone, Debug)]
pub struct Probe {
    pub range: ByteRange,
    /// The tensor's place in [`Plan::items`].
    item: usize,
}

impl Plan {
    /// Fixes the layouts by the bytes of the probes, in their order.
    ///
    /// # Errors
    /// An error of a matrix that does not fit the layout that the probes decide.
    ///
    /// # Panics
    /// If there are not as many rows as [`Self::probes`].
    pub fn decide(&mut self, rows: &[impl AsRef<[u8]>]) -> Result<()> {
        assert_eq!(rows.len(), self.probes.len(), "every probe is answered");
        let mut neurons = Vec::new();
        for (probe, rows) in self.probes.iter().zip(rows) {
            let item = &self.items[probe.item];
            if matches!(item.target, Target::Matrix(_, Reading::I2s(_))) {
                neurons.push(rows.as_ref());
                continue;
            }
            let scale = row_scale(&item.tensor, rows.as_ref())?;
            let entry = self.row_scaled.entry(item.slot.role).or_insert(true);
            *entry &= scale.is_some();
        }
        let layers = neurons
            .chunks_exact(2)
            .map(|pair| interleave::scores(pair[0], self.config.hidden, pair[1], self.config.ffn));
        if let Some(found) = interleave::decide(&layers.collect::<Vec<_>>()) {
            self.i2s = Some((found, InterleaveSource::Weights));
        }
        self.probes.clear();
        self.fix_shapes()
    }

    /// Chooses the rows that decide what the header leaves open.
    pub(super) fn find_probes(&mut self) {
        if let Some((_, InterleaveSource::Default)) = self.i2s {
            self.probe_neurons();
        }
        if !self.options.repack {
            return;
        }
        // The first and the last row of the first and the last tensor of each kind.
        let mut kinds: LiteMap<TensorRole, Vec<usize>> = LiteMap::new();
        for (index, item) in self.items.iter().enumerate().filter(|(_, item)| self.open(item)) {
            kinds.entry(item.slot.role).or_default().push(index);
        }
        for (_, items) in kinds {
            let mut chosen = vec![items[0], items[items.len() - 1]];
            chosen.dedup();
            for item in chosen {
                let Tensor { file, offset, len, ref shape, .. } = *self.items[item].tensor;
                let row = len / shape[0];
                for at in [0, len - row].into_iter().take(if shape[0] > 1 { 2 } else { 1 }) {
                    self.probes.push(Probe { range: ByteRange { file, offset: offset + at, len: row }, item });
                }
            }
        }
    }

    /// The order of the I2_S codes as far as no weights are needed. A tensor is one list of codes in whole groups.
    pub(super) fn i2s_by_header(&self) -> Option<(Interleave, InterleaveSource)> {
        let mut sizes = self.items.iter().filter(|item| is_i2s(&item.tensor)).map(Item::parameters).peekable();
        sizes.peek()?;
        Some(match self.options.i2s {
            Some(asked) => (asked, InterleaveSource::Option),
            None if sizes.any(|values| !values.is_multiple_of(128)) => (Interleave::By64, InterleaveSource::Size),
            None => (Interleave::By128, InterleaveSource::Default),
        })
    }

    /// Rows of `ffn_up` and of `ffn_down`, in turns, from the first and the last layer where their columns stay in their rows.
    fn probe_neurons(&mut self) {
        let Config { hidden, ffn, layers, .. } = *self.config;
        if !hidden.is_multiple_of(128) || !ffn.is_multiple_of(128) {
            return;
        }
        let find = |layer, role| {
            self.items.iter().position(|item| item.slot == Slot::layer(layer, role) && is_i2s(&item.tensor))
        };
        let mut chosen = vec![0, layers - 1];
        chosen.dedup();
        let pairs = chosen
            .into_iter()
            .filter_map(|layer| Some((find(layer, TensorRole::FfnUp)?, find(layer, TensorRole::FfnDown)?)));
        for (up, down) in pairs.collect::<Vec<_>>() {
            for (item, rows, cols) in
                [(up, ffn.min(interleave::NEURONS), hidden), (down, hidden.min(interleave::ROWS), ffn)]
            {
                let Tensor { file, offset, .. } = *self.items[item].tensor;
                self.probes.push(Probe { range: ByteRange { file, offset, len: (rows * cols / 4) as u64 }, item });
            }
        }
    }
}

fn is_i2s(tensor: &Tensor) -> bool {
    matches!(tensor.content(), Some(Content::I2s))
}

/// The one magnitude of a row whose weights are all −s, 0 or +s; `None` where there is none.
fn row_scale(tensor: &Tensor, row: &[u8]) -> Result<Option<f32>> {
    let storage = tensor.runnable()?;
    let mut found = 0.0;
    // Zeros, and blocks of scale 0, go with any other.
    let mut fits = |magnitude: f32| {
        let fits = magnitude == 0.0 || found == 0.0 || magnitude == found;
        found = if magnitude == 0.0 { found } else { magnitude };
        fits
    };
    let fits = match storage.content {
        Content::Dense(float) => float.values(row).all(|value| fits(value.abs())),
        Content::Blocks { decode, .. } => row.chunks_exact(storage.bytes).all(|block| {
            let (mut codes, mut scales, mut mins) = ([0; 256], [0.0], [0.0]);
            let codes = &mut codes[..storage.block];
            decode(block, Block { codes, scales: &mut scales, mins: &mut mins, super_scales: &mut [0.0; 2] });
            fits(scales[0])
        }),
        _ => false,
    };
    Ok(fits.then_some(found))
}
