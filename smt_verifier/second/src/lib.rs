//! The second checker of certificates, written from `docs/trust/spec.md` alone.
#![forbid(unsafe_code)]

pub mod audit;
mod behind;
pub mod certificate;
pub mod check;
pub mod context;
pub mod entry;
pub mod forms;
mod grammar;
pub mod header;
mod joined;
pub mod lanes;
pub mod limits;
pub mod masks;
pub mod model;
pub mod module;
pub mod moves;
pub mod order;
pub mod program;
mod propagated;
pub mod state;
pub mod tables;
pub mod text;
pub mod threads;
pub mod vccz;
pub mod wellformed;
