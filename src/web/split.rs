//! An engine as one part of a split model.

use wasm_bindgen::prelude::*;

use super::Engine;
use crate::bindings::{Js, thrown};
use crate::engine::SessionId;

#[wasm_bindgen]
impl Engine {
    /// What the other parts need (see [`crate::engine::Engine::handover`]): for the pass under way, where it waits for them, and else
    /// nothing; or for an idle session, if its number is not 0.
    pub fn handover(&mut self, session: u32) -> Js<Vec<u32>> {
        self.engine.handover((session > 0).then_some(SessionId(session))).map_err(thrown)
    }

    /// Does what the first part says. Where it is about a pass, `step` computes it while this part is busy.
    pub fn follow(&mut self, numbers: Vec<u32>) {
        self.engine.follow(&numbers);
    }

    /// Whether the pass under way waits for the other parts; `done` lets it go on.
    pub fn waits(&mut self, done: bool) -> bool {
        let waits = self.engine.awaits_parts();
        if done {
            self.engine.continue_pass();
        }
        waits
    }

    /// The address of the hidden rows of the pass under way, and how many values they are.
    pub fn hidden(&mut self) -> Vec<u32> {
        let hidden = self.engine.hidden();
        vec![hidden.as_mut_ptr() as usize as u32, hidden.len() as u32]
    }

    /// What this part has of the first `positions` of a session, which it knows by its table.
    pub fn part(&mut self, table: u32, positions: usize) -> Js<Vec<u8>> {
        self.engine.part(table, positions).map_err(thrown)
    }

    /// Takes the blocks and the state of a session.
    #[wasm_bindgen(js_name = takePart)]
    pub fn take_part(&mut self, table: u32, bytes: Vec<u8>) {
        self.engine.take_part(table, &bytes);
    }

    /// Whether the inputs of all matrices here may be rounded as BitNet's, as far as these tell; `all` says whether that holds in every part.
    pub fn agree(&mut self, all: bool) -> bool {
        self.engine.agree(all)
    }
}
