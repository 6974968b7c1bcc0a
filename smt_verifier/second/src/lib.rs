//! The second checker of certificates, written from `docs/trust/spec.md` alone.
#![forbid(unsafe_code)]

pub mod audit;
mod behind;
pub mod certificate;
mod check;
mod context;
mod entry;
mod forms;
mod grammar;
pub mod header;
mod joined;
pub mod lanes;
pub mod limits;
mod masks;
pub mod model;
pub mod module;
mod moves;
pub mod order;
mod propagated;
mod state;
pub mod tables;
pub mod text;
mod threads;
pub mod wellformed;
