//! What does not agree where a certificate was refused.

use verilocc_check::certificate::Take;
use verilocc_check::check::{Texts, Walk};
use verilocc_check::context::Context;
use verilocc_check::forms::{self, Mode};
use verilocc_check::lanes::{Lane, Set};
use verilocc_check::model::{Done, Instruction, UNDEF};
use verilocc_check::threads::WAVE;

use crate::infer::{begin, Found};

/// Names that Q reads otherwise than P, with the number of the instruction, and whether something is
/// wrong on the path.
#[derive(Default)]
pub struct Wrong {
    pub reads: Set<(u32, Lane)>,
    pub on_path: bool,
}

/// What a block reads that does not agree.
///
/// # Errors
/// It cannot be executed.
pub fn wrong_reads<'a>(context: &'a Context<'a>, texts: &'a Texts, found: &'a Found, block: usize) -> Done<Wrong> {
    let (p, q) = (&context.before.blocks[block].instructions, &context.after.blocks[block].instructions);
    let mut walk =
        Walk::of(context, texts, &found.parts[block], block, begin(context, found.entries[block].as_ref(), block));
    walk.is_search = true;
    let mut wrong = Wrong::default();
    for (count, take) in &found.pairing.steps[block] {
        for _ in 0..*count {
            let (i, j) = walk.at;
            let repeat = found.parts[block].repeats.get(&(j as u32)).filter(|_| *take == Take::After);
            if *take == Take::Pair {
                forms::compare(context, &p[i], &q[j], Mode::Pair)?;
                note_wrong(&mut walk, &p[i], &q[j], i as u32, &mut wrong);
            }
            walk.step(*take, repeat.map_or(&[], std::slice::from_ref))?;
            if repeat.is_some() && walk.repeated.is_none() {
                wrong.on_path = true;
            }
        }
    }
    Ok(wrong)
}

/// What a pair reads that does not agree.
fn note_wrong(walk: &mut Walk<'_>, p: &Instruction, q: &Instruction, number: u32, wrong: &mut Wrong) {
    let (_, reading, upper) = walk.reading(p);
    let state = &walk.state;
    for (n, (x, y)) in p.operands.iter().zip(&q.operands).enumerate() {
        if !x.is_use() || x.is(UNDEF) && reading.mask != Some(n) {
            continue;
        }
        let readers = reading.of(n);
        for (at, (name, place)) in x.lanes.iter().zip(&y.lanes).enumerate() {
            if reading.skip.contains(&(n, at)) || upper.contains(&(n, at)) {
                continue;
            }
            let told = !y.is(UNDEF) || x.is(UNDEF);
            let fits = |class: &usize| {
                let class = &state.classes[*class];
                state.reads(class, *name, *place) && (told || state.is_undefined(*name, &readers))
            };
            let classes = if name.vector { &readers[..] } else { &[WAVE] };
            let revived = name == place && walk.revived.contains(place);
            if !revived && !classes.iter().all(fits) {
                wrong.reads.insert((number, *name));
                wrong.on_path |= !name.vector || !classes.iter().all(|n| state.classes[*n].kind != 'P' || fits(n));
            }
        }
    }
}
