//! One audit: two texts and a certificate (spec 1, 2.4), and what calls rely on (9).

use std::collections::BTreeSet;

use crate::check::Texts;
use crate::context::{is_coarse, resolve, Context, Premises};
use crate::header::Objects;
use crate::model::{need, Done, File, Function, Instruction, Kind, Refused};
use crate::tables::tables;
use crate::{certificate, check, forms, header, joined, limits, module, text, wellformed};

/// The rule of an error in how the program was called; no text is at fault.
pub const USAGE: &str = "usage";

/// Check that `after` is right for `before`, as the certificate says. How many operands were compared.
///
/// # Errors
/// The rule that does not hold, or [`USAGE`] for an unknown processor or function.
pub fn audit_phase(
    before: &str, after: &str, certificate: &str, cpu: &str, function: Option<&str>, premises: Premises,
) -> Done<usize> {
    with_context([text::read(before)?, text::read(after)?], cpu, function, premises, |context| {
        judge(context, certificate, None)
    })
}

/// What a certificate shows of two texts, as [`audit_phase`] says. `texts`: what is known of them without one, if it is
/// known.
///
/// # Errors
/// As [`audit_phase`].
pub fn judge(context: &mut Context<'_>, certificate: &str, texts: Option<&Texts>) -> Done<usize> {
    let parts = certificate::read(certificate, context)?;
    context.repeated = parts.iter().flat_map(|part| part.repeats.values().copied()).collect();
    match texts {
        Some(texts) => check::check(context, texts, &parts),
        None => check::check(context, &check::texts(context)?, &parts),
    }
}

/// Do something with what two texts say where no certificate is asked for.
///
/// # Errors
/// As [`audit_phase`].
pub fn with_context<T>(
    [mut p, mut q]: [File; 2], cpu: &str, function: Option<&str>, premises: Premises,
    then: impl FnOnce(&mut Context<'_>) -> Done<T>,
) -> Done<T> {
    let processor = need!(tables().processor(cpu), USAGE, "", "unknown processor `{cpu}`");
    let (at, of_q) = (position(&p, function)?, position(&q, function)?);
    let promised = promises(&p, &p.functions[at].name);
    let is_obscure = is_obscure(&p) || is_obscure(&q);
    let (mut x, mut y) = (p.functions.swap_remove(at), q.functions.swap_remove(of_q));
    wellformed::check(&x, processor)?;
    wellformed::check(&y, processor)?;
    module::compare(&p.module, &q.module, processor)?;
    let limits = limits::limits(&x, &p.module, processor)?;
    let objects = header::compare(&x, &y, &limits, processor)?;
    let module::Attributes { convention, strings, .. } = module::attributes(&p.module, &x.name)?;
    header::frame(&x, &y, &convention)?;
    header::scratch(&x, &y, processor, &strings)?;
    check::same_blocks(&x, &y)?;
    [&mut x, &mut y].into_iter().for_each(joined::join);
    let (coarse, wave32) = (is_coarse(&x) && is_coarse(&y), processor.wave_size == 32);
    let features = strings.get("target-features").map_or("", String::as_str);
    let is_stated = |one: &str| features.split(',').any(|feature| feature == one);
    let mut of_function = processor.clone();
    of_function.half_moves = (processor.half_moves || is_stated("+real-true16")) && !is_stated("-real-true16");
    of_function.xnack &= processor.major >= 10 || !is_stated("-xnack");
    let own = Objects::of(&x);
    resolve(&mut x, &own, coarse, wave32, of_function.xnack)?;
    resolve(&mut y, &objects, coarse, wave32, of_function.xnack)?;
    let mut context = Context::new(&x, &y, &of_function, &limits, &objects, coarse)?;
    let preserved = limits::preserved(&convention, processor)?;
    context.promised = promised.difference(&preserved).copied().collect();
    context.preserved = preserved;
    context.convention = convention;
    context.keeps_frame_pointer = strings.get("frame-pointer").is_some_and(|which| which != "none");
    context.premises = premises;
    context.is_obscure = is_obscure;
    context.is_counted = forms::counts_accesses(&x, is_obscure);
    then(&mut context)
}

/// Likewise, where nothing is saved later.
///
/// # Errors
/// As [`audit_phase`].
pub fn audit(before: &str, after: &str, certificate: &str, cpu: &str, function: Option<&str>) -> Done<usize> {
    audit_phase(before, after, certificate, cpu, function, Premises::default())
}

/// Units that calls of a function in this file say it preserves, by register masks that are written out: calls that name
/// no other one, by a name without escapes that is no alias.
fn promises(file: &File, name: &str) -> BTreeSet<u32> {
    let plain = |text: &str| text.replace('"', "");
    let globals = file.module.lines().filter(|line| line.starts_with('@'));
    let aliases: BTreeSet<String> = globals.map(|line| plain(line.split(' ').next().unwrap_or_default())).collect();
    let is_other =
        |callee: &str| callee != format!("@{name}") && !aliases.contains(callee) && !callee.contains(['\\', ' ']);
    let names_another = |i: &Instruction| {
        let mut callees = i.operands.iter().filter(|o| o.text.starts_with('@')).map(|o| plain(&o.text)).peekable();
        callees.peek().is_some() && callees.all(|callee| is_other(&callee))
    };
    let calls = file.functions.iter().flat_map(Function::instructions).filter(|i| !names_another(i));
    let masks = calls.flat_map(|call| &call.operands).filter(|o| o.kind == Kind::RegMask);
    let custom = masks.filter(|o| o.text.starts_with("CustomRegMask"));
    custom.filter_map(|o| tables().mask(&o.text)).flatten().collect()
}

/// Whether some assembly of a file may be other than its texts show (spec 5.4).
pub fn is_obscure(file: &File) -> bool {
    let operands = file.functions.iter().flat_map(Function::operands);
    let mut texts = operands.filter(|o| o.kind == Kind::AsmString);
    let is_defining = file.module.lines().any(|line| line.starts_with("module asm"));
    texts.any(|o| is_defining || !is_plain(&o.text))
}

/// Whether a text of assembly has no escapes but of line feeds, tabs and quotes, no directives, and operands that stand
/// apart from words.
fn is_plain(text: &str) -> bool {
    let text = text.replace("\\0A", "\n").replace("\\09", "\t").replace("\\22", "\"");
    let bytes = text.as_bytes();
    let is_word = |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = 0;
    while at < bytes.len() {
        let is_behind_word = at > 0 && is_word(at - 1);
        match bytes[at] {
            b'\\' => return false,
            b'.' if !is_behind_word => return false,
            b'$' => {
                let in_braces = bytes.get(at + 1) == Some(&b'{');
                let count = digits(at + 1 + usize::from(in_braces));
                let mut end = at + 1 + usize::from(in_braces) + count;
                if in_braces {
                    end += if bytes.get(end) == Some(&b':') && is_word(end + 1) { 2 } else { 0 };
                    if bytes.get(end) != Some(&b'}') {
                        return false;
                    }
                    end += 1;
                }
                let is_apart = !is_behind_word && (at == 0 || bytes[at - 1] != b'.') && !is_word(end);
                if count == 0 || !is_apart || bytes.get(end) == Some(&b'.') {
                    return false;
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    true
}

/// Where the function stands that is named, or the only one.
fn position(file: &File, name: Option<&str>) -> Done<usize> {
    let is_meant = |f: &Function| name.is_none_or(|name| f.name == name);
    let places: Vec<usize> = (0..file.functions.len()).filter(|at| is_meant(&file.functions[*at])).collect();
    match places[..] {
        [one] => Ok(one),
        [] => Err(Refused::new(USAGE, "no such function", "")),
        _ => Err(Refused::new(USAGE, "several functions: name one with --function=NAME", "")),
    }
}
