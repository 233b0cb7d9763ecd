//! The multi-token-prediction (MTP) head, behind a pass.
//!
//! Its row at a position joins the token there with the hidden state of the position before, behind the output norm, and goes through a
//! layer of its own, whose keys and values lie in the cache beside those of the model's layers. What the model's head makes of it is a
//! guess of the next token, which a later pass of the model checks: nothing here changes what is said.

use super::pass::{Pass, multiply};
use super::{BatchRow, Forward, Wanted, row};
use crate::kernels::elementwise;
use crate::kernels::isa::Isa;
use crate::kv::{Cache, TableId};
use crate::model::adapter::Site;
use crate::model::weights::{Model, Mtp};
use crate::observe::Operation;
use crate::team::Team;

/// A row of the MTP head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MtpRow {
    pub table: TableId,
    pub position: usize,
    pub token: u32,
    /// The row of the last pass that has the state before it; zeros are taken where none has.
    pub after: Option<usize>,
}

impl<I: Isa> Forward<I> {
    /// Keeps the keys and values of some rows behind a pass that is done. With `guesses`, the last row goes on to its logits, which are then
    /// [`Self::logits`] of row 0, and the hidden states of the pass are gone. The cache must have room for every row's position.
    pub fn mtp(&mut self, team: &Team, model: &Model, cache: &mut Cache, rows: &[MtpRow], guesses: bool) {
        let Some(mtp) = &model.mtp else { return };
        // Those of the pass are still asked for.
        let passed = std::mem::replace(&mut self.rows, std::mem::take(&mut self.mtp_rows));
        let most = passed.capacity().max(1);
        let chunks = rows.len().div_ceil(most);
        for (i, rows) in rows.chunks(most).enumerate() {
            self.mtp_chunk(team, model, mtp, cache, rows, guesses && i + 1 == chunks);
        }
        self.mtp_rows = std::mem::replace(&mut self.rows, passed);
    }

    fn mtp_chunk(&mut self, team: &Team, model: &Model, mtp: &Mtp, cache: &mut Cache, rows: &[MtpRow], guesses: bool) {
        let config = &model.config;
        let batch = |&MtpRow { table, position, token, .. }: &MtpRow| BatchRow::kv_only(table, position, token);
        self.rows.clear();
        self.rows.extend(rows.iter().map(batch));
        self.compute_angles(model);
        let site = Site { team, layer: config.layers, operation: Operation::Qkv };
        let hidden = &self.hidden;
        let added = (&mut self.adapters, &mut self.tally);
        multiply(site, &mtp.fc, added, &mut self.act, rows.len(), &mut self.update, &|i, out| {
            let (token, state) = out.split_at_mut(config.hidden);
            model.embed::<I>(rows[i].token, token);
            elementwise::rms_norm::<I>(token, &mtp.token_norm, config.eps);
            match rows[i].after {
                Some(index) => {
                    state.copy_from_slice(row(hidden, config.hidden, index));
                    elementwise::rms_norm::<I>(state, &model.output_norm, config.eps);
                    elementwise::rms_norm::<I>(state, &mtp.state_norm, config.eps);
                }
                None => state.fill(0.0),
            }
        });
        // The hidden rows of the layer; those of the pass wait where a layer's updates go.
        std::mem::swap(&mut self.hidden, &mut self.update);
        let mut pass = Pass { forward: self, site, config, cache };
        pass.qkv(&mtp.layer);
        pass.rotate_and_keep(&mtp.layer);
        if !guesses {
            return std::mem::swap(&mut self.hidden, &mut self.update);
        }
        let last = rows.len() - 1;
        let (width, stride) = (mtp.layer.qkv.width, config.hidden);
        pass.forward.qkv.copy_within(last * width..(last + 1) * width, 0);
        pass.forward.hidden.copy_within(last * stride..(last + 1) * stride, 0);
        pass.forward.qkv.truncate(width);
        pass.forward.hidden.truncate(stride);
        pass.forward.rows.drain(..last);
        pass.attend(&mtp.layer);
        pass.output(&mtp.layer);
        pass.gate_up(&mtp.layer);
        pass.down(&mtp.layer);
        self.multiply_head(team, model, mtp.norm.as_deref().unwrap_or(&model.output_norm), &[0], &[Wanted::Largest]);
    }
}
