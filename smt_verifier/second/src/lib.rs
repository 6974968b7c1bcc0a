//! The second checker of certificates, written from `docs/trust/spec.md` alone.
#![forbid(unsafe_code)]

pub mod model;
