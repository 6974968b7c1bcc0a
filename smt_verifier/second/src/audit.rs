//! One audit: two texts and a certificate (spec 1, 2.4), and what calls rely on (9).

use crate::context::Context;
use std::collections::BTreeSet;

use crate::model::{File, Function, Kind, Operand, Refused};
use crate::tables::tables;
use crate::{certificate, check, header, limits, module, text, wellformed};

/// The rule of an error in how the program was called; no text is at fault.
pub const USAGE: &str = "usage";

/// Check that `after` is right for `before`, as the certificate says. How many operands were compared.
///
/// # Errors
/// The rule that does not hold, or [`USAGE`] for an unknown processor or function.
pub fn audit(
    before: &str, after: &str, certificate: &str, cpu: &str, function: Option<&str>,
) -> Result<usize, Refused> {
    audit_phase(before, after, certificate, cpu, function, false)
}

/// Likewise; `saved_later`: LLVM saves what a callee must restore behind the phase (spec 12.3, 9.1).
///
/// # Errors
/// As [`audit`].
pub fn audit_phase(
    before: &str, after: &str, certificate: &str, cpu: &str, function: Option<&str>, saved_later: bool,
) -> Result<usize, Refused> {
    let usage = |message: String| Refused::new(USAGE, message, "");
    let processor = tables().processor(cpu).ok_or_else(|| usage(format!("unknown processor `{cpu}`")))?;
    let (p, q) = (text::read(before)?, text::read(after)?);
    let (x, y) = (named(&p, function)?, named(&q, function)?);
    let certificate = certificate::read(certificate)?;
    wellformed::check(x, processor)?;
    wellformed::check(y, processor)?;
    module::compare(&p.module, &q.module, processor)?;
    let limits = limits::limits(x, &p.module, processor)?;
    let objects = header::compare(x, y, &limits, processor)?;
    let mut context = Context::new(x, y, objects.stack, processor, &limits)?;
    let convention = module::attributes(&p.module, &x.name)?.convention;
    let own = limits::preserved(&convention, processor)?;
    context.promised = promises(&p, &x.name).into_iter().filter(|unit| !own.contains(unit)).collect();
    context.saved_later = saved_later;
    check::check(&context, &certificate)
}

/// Units that calls of a function in this file say it preserves, by register masks that are written out.
fn promises(file: &File, name: &str) -> BTreeSet<u32> {
    let mut units = BTreeSet::new();
    let all = file.functions.iter().flat_map(|f| &f.blocks).flat_map(|block| &block.instructions);
    let named = |o: &Operand| !o.is_register() && o.text.trim_start_matches('@').trim_matches('"') == name;
    for call in all.filter(|i| i.operands.iter().any(named)) {
        let masks = call.operands.iter().filter(|o| o.kind == Kind::RegMask && o.text.starts_with("CustomRegMask"));
        units.extend(masks.filter_map(|o| tables().mask(&o.text)).flatten());
    }
    units
}

fn named<'a>(file: &'a File, name: Option<&str>) -> Result<&'a Function, Refused> {
    let found: Vec<&Function> = file.functions.iter().filter(|f| name.is_none_or(|name| f.name == name)).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(Refused::new(USAGE, "no such function", "")),
        _ => Err(Refused::new(USAGE, "several functions: name one with --function=NAME", "")),
    }
}
