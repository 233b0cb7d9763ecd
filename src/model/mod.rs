//! A model: what it is, what it is made of, how it is loaded and run.
//!
//! In the order of a load:
//!
//! - [`checkpoint`]: the parsed headers of its files
//! - [`config`]: what the model is
//! - [`names`], [`items`]: its tensors, and where each belongs
//! - [`options`]: what a caller may choose
//! - [`plan`]: how matrices are packed, and the memory that all takes
//! - [`probes`], [`interleave`]: a few rows, where the header leaves a layout open
//! - [`head`]: rounding of the embedding and the head, where that is asked for
//! - [`load`]: packs the weights as they come
//! - [`weights`]: the result
//! - [`tune`]: chooses between variants of its kernels
//!
//! Afterwards [`forward`] runs batches through it, [`adapter`]s are added beside it, [`describe`] summarises it for people, and [`times`]
//! measures its matrices.

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
pub use load::{BackgroundLoader, EarlyPrefill, Loader};
pub use options::{Activations, Options, Scheduling};
pub use plan::Plan;
pub use weights::Model;
