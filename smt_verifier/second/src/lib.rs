//! The second checker of certificates, written from `docs/trust/spec.md` alone.
#![forbid(unsafe_code)]

mod cursor;
pub mod header;
pub mod limits;
pub mod model;
pub mod module;
mod operands;
pub mod tables;
pub mod text;
pub mod wellformed;
mod yaml;
