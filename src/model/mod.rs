//! A model: what it is, what it is made of, how it is loaded and run.
//!
//! A [`checkpoint`] is the parsed headers of its files. [`config`] reads what the model is, [`items`] assigns its tensors to their places,
//! [`options`] are what a caller may choose, [`plan`] decides their layouts and counts memory, where the header leaves a layout open by [`probes`] of a few rows (and [`interleave`] for
//! I2_S), [`head`] rounds the embedding and the head where that is asked for. [`load`] packs the weights, [`weights`] are the result, [`adapter`]s may be added to them, [`forward`] runs a batch through
//! the model, [`describe`] summarises it for people, [`tune`] chooses between variants of its kernels,
//! [`times`] measures its matrices.

pub mod adapter;
mod cache_size;
pub mod checkpoint;
pub mod config;
pub mod describe;
pub mod forward;
pub mod head;
pub mod interleave;
pub mod items;
pub mod load;
pub mod names;
pub mod options;
pub mod plan;
pub mod probes;
pub mod times;
pub mod tune;
pub mod weights;

pub use adapter::Adapter;
pub use checkpoint::Checkpoint;
pub use config::Config;
pub use load::{Begun, Intake, Loader};
pub use options::{Activations, Options, Scheduling};
pub use plan::Plan;
pub use weights::Model;
