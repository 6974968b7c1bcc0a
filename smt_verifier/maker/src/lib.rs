//! Makes certificates (docs/trust/spec.md, 15): which instructions of two texts pair, and what is claimed at the entry of each
//! block. Untrusted: the checker reads each certificate as text, and judges it.
#![forbid(unsafe_code)]

mod certificate;
mod chains;
mod infer;
mod judged;
mod liveness;
mod matching;
mod observed;
mod pairing;
mod probe;
mod produce;
mod program;

use verilocc_check::audit::with_context;
use verilocc_check::check::texts;
use verilocc_check::context::Premises;
use verilocc_check::model::{Done, File};

pub use judged::Judged;

/// Make a certificate for one function of two texts, and have it checked. The search has a copy of what the checker knows of
/// both texts.
///
/// # Errors
/// There is none, or [`verilocc_check::audit::USAGE`] for an unknown processor or function.
pub fn certify(files: [File; 2], cpu: &str, function: Option<&str>, premises: Premises) -> Done<Judged> {
    with_context(files, cpu, function, premises, |context| {
        let (mut own, texts) = (context.clone(), texts(context)?);
        produce::certify(&mut own, &texts, |text| Judged::of(context, &texts, text))
    })
}
