//! Whole groups in a panel: their sums become floats while they are in registers.
//!
//! ```text
//! for each 3 tiles, each 128 tokens
//!   for each 520 values of k            unpack the panel, whole groups of it, and widen their scales
//!     for each block of 4 vectors
//!       for each token or two           both planes of one, or the only one of two: the same loop of products
//!         for each group along k        rising
//!           for each step               4 loads and 2 splats for 8 dots
//!           add to the results          finish::add_part, as every kernel does
//! ```
//!
//! Prompts of 128 tokens by turns on an AMD EPYC (Zen 5), two threads, with the sums of every group stored first and with this: `bench
//! --shape b2b,layers=4,vocab=4096 --type q4_0` 303, 307 and 365, 365 tokens/s, with `--activations int8` 422 to 429 and 578 to 583,
//! with `--type q2_0` 475 to 608 and 675 to 755.

use std::ops::Range;

use super::super::finish::{GroupInput, ROW_VECTORS, add_part, widen};
use super::super::unpack::unpack_tile;
use super::{BLOCK_VECTORS, PANEL_ROWS, PANEL_STEPS, Panel, cut_both, pair_of_planes, pair_of_sums};
use crate::kernels::act::ActRow;
use crate::kernels::isa::Isa;
use crate::kernels::packed::TILE;
use crate::quant::{ScaleType, Scales};

impl<I: Isa> Panel<'_, I> {
    /// Whether a panel holds whole groups, whose sums become floats while they are in registers.
    pub(super) fn in_groups(&self) -> bool {
        let Scales::Group { len, .. } = self.layout.scales else { return false };
        // The 1-bit weights ±1 count 2, and have one plane nearly always.
        let plain = !self.matrix.shape.five && !self.in_lanes() && (self.planes == 1 || self.layout.step == 1);
        plain && len / 4 <= PANEL_STEPS
    }

    /// Computes what [`Self::multiply`] does, some groups at a time.
    pub(super) fn multiply_groups(&mut self, tiles: Range<usize>, tokens: Range<usize>) {
        let (len, groups) = self.matrix.shape.groups();
        let mut out = vec![[0.0; PANEL_ROWS]; tokens.len()];
        for first in (0..groups).step_by(PANEL_STEPS / (len / 4)) {
            let groups = first..groups.min(first + PANEL_STEPS / (len / 4));
            self.unpack_groups(tiles.clone(), groups);
            for block in 0..(tiles.len() * ROW_VECTORS).div_ceil(BLOCK_VECTORS) {
                let each = 3 - self.planes;
                for (token, outs) in tokens.clone().step_by(each).zip(out.chunks_mut(each)) {
                    if self.dot2() {
                        self.add_groups::<true>(block, first, token, outs);
                    } else {
                        self.add_groups::<false>(block, first, token, outs);
                    }
                }
            }
        }
        for (place, tile) in self.out.iter_mut().enumerate() {
            tile.clear();
            tile.extend(out.iter().map(|rows| rows.as_chunks::<TILE>().0[place]));
        }
    }

    /// Unpacks the codes of some groups, one group's blocks behind another's, and their scales as floats.
    fn unpack_groups(&mut self, tiles: Range<usize>, groups: Range<usize>) {
        let half = matches!(self.layout.scales, Scales::Group { scale_type: ScaleType::F16, .. });
        let load = |from: &[u8], to: &mut [f32]| {
            if half { widen::<I>(from, to) } else { bytemuck::cast_slice_mut(to).copy_from_slice(from) }
        };
        let shape = &self.matrix.shape;
        let steps = shape.groups().0 / 4;
        let each = steps * PANEL_ROWS / 4;
        self.weights.resize(groups.len() * each, bytemuck::Zeroable::zeroed());
        self.scales.clear();
        self.scales.resize(groups.len(), [[0.0; PANEL_ROWS]; 2]);
        for (place, group) in groups.enumerate() {
            let weights = &mut self.weights[place * each..][..each];
            let [scales, mins] = &mut self.scales[place];
            for (i, tile) in tiles.clone().enumerate() {
                let (header, codes) = self.matrix.tile(tile)[group * shape.block_bytes()..][..shape.block_bytes()]
                    .split_at(shape.header());
                let rows = i * TILE..(i + 1) * TILE;
                let (of_scales, of_mins) = header.split_at(if half { 2 * TILE } else { 4 * TILE });
                load(of_scales, &mut scales[rows.clone()]);
                if !of_mins.is_empty() {
                    load(of_mins, &mut mins[rows]);
                }
                unpack_tile::<I>((self.layout.codes, shape.by_rows()), codes, BLOCK_VECTORS, i, steps, weights);
            }
        }
    }

    /// Multiplies a block of the panel's groups, of which `group` is the first, and adds to the results: both planes of a token, or the
    /// only one of two tokens.
    fn add_groups<const DOT2: bool>(&self, block: usize, group: usize, token: usize, outs: &mut [[f32; PANEL_ROWS]]) {
        let isa = I::default();
        let rows = &self.rows[token..][..outs.len()];
        let planes = pair_of_planes(self.planes, rows);
        let steps = self.matrix.shape.groups().0 / 4;
        let twice = u32::from(self.layout.step == 2);
        let (weights, _) = self.weights.as_chunks();
        let blocks = weights.chunks_exact(steps).skip(block).step_by(PANEL_ROWS / 4 / BLOCK_VECTORS);
        for (group, (weights, scales)) in (group..).zip(blocks.zip(&self.scales)) {
            let xs = cut_both(planes, group * steps, weights.len());
            let [first, second] = pair_of_sums::<I, DOT2>(self.flush_steps, weights, xs);
            if self.planes == 2 {
                let sum = |v| isa.add_i32(isa.shl_i32(first[v], 7), second[v]);
                self.add_sums(block, sum, scales, (&rows[0], group), &mut outs[0]);
                continue;
            }
            self.add_sums(block, |v| isa.shl_i32(first[v], twice), scales, (&rows[0], group), &mut outs[0]);
            if let [_, out] = outs {
                self.add_sums(block, |v| isa.shl_i32(second[v], twice), scales, (&rows[1], group), out);
            }
        }
    }

    /// Adds a group's sums of a block to a token's results.
    #[inline(always)]
    fn add_sums(
        &self,
        block: usize,
        sum: impl Fn(usize) -> I::V,
        scales: &[[f32; PANEL_ROWS]; 2],
        (row, group): (&ActRow<I>, usize),
        out: &mut [f32; PANEL_ROWS],
    ) {
        let isa = I::default();
        let has_min = matches!(self.layout.scales, Scales::Group { min: true, .. });
        let [scales, mins] =
            scales.each_ref().map(|rows| &rows.as_chunks::<4>().0.as_chunks::<BLOCK_VECTORS>().0[block]);
        let out = &mut out.as_chunks_mut::<4>().0.as_chunks_mut::<BLOCK_VECTORS>().0[block];
        let x = GroupInput::new(self.layout, row, group);
        for v in 0..BLOCK_VECTORS {
            let min = has_min.then(|| isa.load_f32(&mins[v]));
            add_part(isa, sum(v), isa.load_f32(&scales[v]), min, &x, &mut out[v]);
        }
    }
}
