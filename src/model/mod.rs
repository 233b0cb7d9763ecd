//! A model: what it is, what it is made of, how it is loaded and run.
//!
//! [`config`] reads what it is, [`items`] puts its tensors in their
//! places, [`options`] are what a caller may choose, [`plan`] says which bytes they need and what they will take (asking [`interleave`] about I2_S), [`load`] packs them, [`weights`] are the
//! result, [`adapter`]s may be added to them, [`forward`] runs a batch through it, [`describe`] tells people.

pub mod adapter;
pub mod checkpoint;
pub mod config;
pub mod describe;
pub mod forward;
pub mod interleave;
pub mod items;
pub mod load;
pub mod names;
pub mod options;
pub mod plan;
pub mod weights;

pub use adapter::Adapter;
pub use checkpoint::Checkpoint;
pub use config::Config;
pub use load::{Intake, Loader};
pub use options::{Options, Scheduling};
pub use plan::Plan;
pub use weights::Model;
