//! The states of conversations on a hybrid: what its gated delta nets keep in place of keys and values. One has the same size whatever
//! its length, and belongs to exactly one position: unlike keys and values it cannot be cut back or shared.

use crate::error::{Result, reserve};

/// The sizes of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StateShape {
    /// Layers that have one.
    pub layers: usize,
    /// Values of a layer.
    pub layer: usize,
}

impl StateShape {
    fn values(&self) -> u64 {
        self.layers as u64 * self.layer as u64
    }

    /// Bytes of a state.
    pub fn bytes(&self) -> u64 {
        4 * self.values()
    }
}

/// The memory of a fixed number of states.
#[derive(Debug)]
pub struct States {
    shape: StateShape,
    /// The values of each; empty before it is first taken.
    slots: Vec<Vec<f32>>,
    free: Vec<usize>,
}

impl States {
    /// Reserves memory for so many states.
    ///
    /// # Errors
    /// `OutOfMemory` with the bytes of the state that did not fit.
    pub fn reserve(shape: StateShape, count: usize) -> Result<Self> {
        let mut slots = reserve("a table of states", count as u64)?;
        for _ in 0..count {
            slots.push(reserve("a conversation's state", shape.values())?);
        }
        Ok(Self { shape, slots, free: (0..count).rev().collect() })
    }

    /// The sizes of a state.
    pub fn shape(&self) -> StateShape {
        self.shape
    }

    /// How many there are, and how many of them are free.
    pub fn counts(&self) -> (usize, usize) {
        (self.slots.len(), self.free.len())
    }

    /// Takes a state, which has any values.
    pub fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// Makes a state that before the first position.
    pub fn clear(&mut self, slot: usize) {
        self.slots[slot].clear();
        self.slots[slot].resize(self.shape.values() as usize, 0.0);
    }

    /// Copies a state's values to another.
    pub fn copy(&mut self, from: usize, to: usize) {
        let source = std::mem::take(&mut self.slots[from]);
        self.slots[to].clone_from(&source);
        self.slots[from] = source;
    }

    /// Gives a state back.
    pub fn release(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// The values of a layer.
    pub fn layer(&mut self, slot: usize, layer: usize) -> &mut [f32] {
        &mut self.slots[slot][layer * self.shape.layer..][..self.shape.layer]
    }

    /// The bytes of a state.
    pub fn bytes(&self, slot: usize) -> &[u8] {
        bytemuck::cast_slice(&self.slots[slot])
    }

    /// Sets the bytes of a state.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn fill(&mut self, slot: usize, bytes: &[u8]) {
        bytemuck::cast_slice_mut(&mut self.slots[slot]).copy_from_slice(bytes);
    }
}
