//! The search for a certificate that the checker accepts.
//!
//! Pure instructions that look alike may have been paired in the wrong order. Where a value does not agree, those that define
//! it, and those like them, lose their partners: the text after allocation then repeats them, which shows by itself what each
//! result is.

use std::collections::BTreeSet;

use verilocc_check::check::Texts;
use verilocc_check::context::Context;
use verilocc_check::forms::is_plain_load;
use verilocc_check::lanes::{Lane, Set};
use verilocc_check::model::{Done, Operand, Refused};

use crate::infer::{find, Found, Options};
use crate::judged::Judged;
use crate::probe::wrong_reads;
use crate::program::{Place, Program, Role};

/// Certificates that are tried with one strategy; one of a function of more instructions than `LARGE`, where each takes
/// seconds.
const ATTEMPTS: usize = 5;
const LARGE: usize = 10_000;
/// Above that classes are joined: told apart by every mask they take minutes.
const JOINED: usize = 2_000;

/// Why a strategy has no certificate that is accepted.
enum Failed {
    /// The first one that was refused.
    Refused(Judged),
    /// Likewise, of joined classes, where nothing is wrong on the path.
    OfThreads(Judged),
    /// There is none.
    None(Refused),
}

/// The first certificate that is accepted, else the first one of all.
///
/// Classes of threads are joined first, which keeps them few, and instructions pair by their readers. Where that is not
/// enough, classes are split by what decides whom a mask wakes, instructions pair in order, or classes are told apart by
/// every mask: pairing last, if all that is wrong is of threads that may wait, and nothing on the path.
///
/// # Errors
/// There is no certificate to be had, whatever is paired.
pub fn certify(context: &mut Context<'_>, texts: &Texts, mut check: impl FnMut(String) -> Judged) -> Done<Judged> {
    let program = Program::of(context)?;
    let joined = Options { joined: true, ..Options::default() };
    let mut strategies = vec![
        joined,
        Options { waking_splits: true, ..joined },
        Options { in_order: true, ..joined },
        Options::default(),
    ];
    strategies.retain(|strategy| strategy.joined || instructions(&program) <= JOINED);
    let mut first: Option<Done<Judged>> = None;
    while !strategies.is_empty() {
        let strategy = strategies.remove(0);
        let failed = match try_strategy(context, texts, &program, strategy, &mut check) {
            Ok(judged) => return Ok(judged),
            Err(Failed::Refused(judged)) => Ok(judged),
            Err(Failed::OfThreads(judged)) => {
                strategies.sort_by_key(|left| left.in_order);
                Ok(judged)
            }
            Err(Failed::None(error)) => Err(error),
        };
        if first.as_ref().is_none_or(|first| first.is_err() && failed.is_ok()) {
            first = Some(failed);
        }
    }
    first.unwrap_or_else(|| Err(Refused::new("certificate", "there is none", "")))
}

fn instructions(program: &Program) -> usize {
    program.rows[1].iter().map(Vec::len).sum()
}

/// By one strategy: the first certificate that is accepted.
fn try_strategy(
    context: &mut Context<'_>, texts: &Texts, program: &Program, strategy: Options,
    check: &mut impl FnMut(String) -> Judged,
) -> Result<Judged, Failed> {
    let mut unpaired: BTreeSet<Place> = BTreeSet::new();
    if let Ok(found) = find(context, texts, program, &unpaired, Options { hasty: true, ..strategy }) {
        let judged = check(found.certificate(context).text());
        if judged.is_accepted() {
            return Ok(judged);
        }
    }
    // Why, is to be seen where nothing is left out.
    let (mut first, mut witnesses) = (None, false);
    for _ in 0..if instructions(program) > LARGE { 1 } else { ATTEMPTS } {
        let found = match find(context, texts, program, &unpaired, Options { witnesses, ..strategy }) {
            Ok(found) => found,
            Err(error) if error.rule == "inactive-lanes" && !witnesses => {
                witnesses = true;
                continue;
            }
            Err(error) => return Err(Failed::None(error)),
        };
        let judged = check(found.certificate(context).text());
        if judged.is_accepted() {
            return Ok(judged);
        }
        let refused = first.take().unwrap_or(judged);
        let (suspects, on_path) = suspects(context, texts, program, &found);
        if strategy.joined && unpaired.is_empty() && !on_path {
            return Err(Failed::OfThreads(refused));
        }
        first = Some(refused);
        if suspects.is_subset(&unpaired) {
            break;
        }
        unpaired.extend(suspects);
    }
    let none = || Failed::None(Refused::new("certificate", "there is none", ""));
    Err(first.map_or_else(none, Failed::Refused))
}

/// Pure instructions of P that may be paired with the wrong one, and whether something is wrong on the path.
fn suspects(context: &Context<'_>, texts: &Texts, program: &Program, found: &Found) -> (BTreeSet<Place>, bool) {
    let (mut operations, mut names, mut on_path): (Set<u32>, Set<Lane>, bool) = Default::default();
    let rows = &program.rows[0];
    for (number, entry) in found.entries.iter().enumerate() {
        if number > 0 && entry.is_none() {
            continue;
        }
        let Ok(wrong) = wrong_reads(context, texts, found, number) else { continue };
        on_path |= wrong.on_path;
        for (at, name) in wrong.reads {
            names.insert(name);
            let row = &rows[number][at as usize];
            if row.role == Role::Pure {
                operations.insert(row.operation);
            }
        }
    }
    let code = || context.before.blocks.iter().zip(rows).flat_map(|(block, rows)| block.instructions.iter().zip(rows));
    for (i, row) in code().filter(|(_, row)| row.role == Role::Pure) {
        if i.lanes(Operand::is_def).iter().any(|lane| names.contains(lane)) {
            operations.insert(row.operation);
        }
    }
    let mut all = BTreeSet::new();
    for (n, (block, rows)) in (0..).zip(context.before.blocks.iter().zip(rows)) {
        for (number, (i, row)) in (0..).zip(block.instructions.iter().zip(rows)) {
            if operations.contains(&row.operation) && (row.role == Role::Pure || is_plain_load(i)) {
                all.insert((n, number));
            }
        }
    }
    (all, on_path)
}
