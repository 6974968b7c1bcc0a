//! Which pure instructions belong together, by who reads their results.
//!
//! Instructions that must stand on both sides pair beyond doubt. What defines an operand of the one defines that operand of
//! the other: from there on, definitions are followed backwards through the moves of both texts, across blocks.

use std::collections::BTreeSet;
use std::rc::Rc;

use verilocc_check::context::Context;
use verilocc_check::lanes::{Lane, Map, Set};
use verilocc_check::model::{Function, Operand};

use crate::program::{Place, Program, Role};

/// Block and number of an instruction, and which lane of its results.
type Defined = (u32, u32, u32);

/// Definitions of one lane, in order. A lane without any is left out.
type Known = Map<Lane, Rc<Vec<Defined>>>;

/// Of each instruction, and each operand that it reads, the definitions of its lanes.
type Reads = Vec<Vec<(usize, Vec<Rc<Vec<Defined>>>)>>;

/// Definitions of one lane that are followed.
const MOST: usize = 8;

/// What readers call for.
#[derive(Default)]
pub struct Chains {
    /// Of each block, instructions of P and of Q whose results are read in the same place.
    pub pairs: Map<usize, BTreeSet<(usize, usize)>>,
    /// Instructions of Q whose result P's reader takes from another block.
    pub foreign: BTreeSet<Place>,
    /// For instructions of Q, those of P whose result is read in the same place.
    pub repeated: Map<Place, Vec<Place>>,
}

/// Where the lanes that each instruction of one text reads were defined.
struct Definitions<'a> {
    text: &'a Function,
    program: &'a Program,
    side: usize,
    entries: Vec<Option<Known>>,
}

impl<'a> Definitions<'a> {
    fn of(text: &'a Function, program: &'a Program, side: usize) -> Self {
        let mut all = Definitions { text, program, side, entries: vec![None; text.blocks.len()] };
        all.entries[0] = Some(Known::default());
        let mut pending: Set<usize> = program.order.iter().copied().collect();
        while !pending.is_empty() {
            let turn: Vec<usize> = program.order.iter().copied().filter(|block| pending.contains(block)).collect();
            for block in turn {
                pending.remove(&block);
                let Some(mut known) = all.entries[block].clone() else { continue };
                (0..text.blocks[block].instructions.len()).for_each(|number| all.apply(block, number, &mut known));
                for next in text.blocks[block].successors.iter().copied() {
                    if join(&mut all.entries[next], &known) {
                        pending.insert(next);
                    }
                }
            }
        }
        all
    }

    /// Go over one instruction.
    fn apply(&self, block: usize, number: usize, known: &mut Known) {
        let row = &self.program.rows[self.side][block][number];
        if let Some(moved) = &row.moved {
            let from: Vec<_> = moved.pairs.iter().map(|(to, from)| (*to, known.get(from).cloned())).collect();
            for (to, origins) in from {
                match origins {
                    Some(origins) => drop(known.insert(to, origins)),
                    None => drop(known.remove(&to)),
                }
            }
            return;
        }
        let lanes = self.text.blocks[block].instructions[number].defined().flat_map(|o| &o.lanes);
        for (n, lane) in (0..).zip(lanes) {
            if row.role == Role::Pure {
                known.insert(*lane, Rc::new(vec![(block as u32, number as u32, n)]));
            } else {
                known.remove(lane);
            }
        }
    }

    fn read(&self, block: usize) -> Reads {
        let mut known = self.entries[block].clone().unwrap_or_default();
        let mut rows = Vec::new();
        for (number, i) in self.text.blocks[block].instructions.iter().enumerate() {
            let origins =
                |o: &Operand| o.lanes.iter().map(|lane| known.get(lane).cloned().unwrap_or_default()).collect();
            rows.push(
                i.operands.iter().enumerate().filter(|(_, o)| o.is_use()).map(|(n, o)| (n, origins(o))).collect(),
            );
            self.apply(block, number, &mut known);
        }
        rows
    }
}

/// What is known at an edge is known at the block's entry too; says whether that is news.
fn join(entry: &mut Option<Known>, known: &Known) -> bool {
    let Some(entry) = entry else {
        *entry = Some(known.clone());
        return true;
    };
    let mut changed = false;
    for (lane, origins) in known {
        let old = entry.entry(*lane).or_default();
        if old.len() < MOST && !Rc::ptr_eq(old, origins) && !origins.iter().all(|origin| old.contains(origin)) {
            let all: BTreeSet<Defined> = old.iter().chain(origins.iter()).copied().collect();
            *old = Rc::new(all.into_iter().collect());
            changed = true;
        }
    }
    changed
}

/// Pairs that follow from pairs that are certain.
pub fn follow(context: &Context<'_>, program: &Program, anchors: Vec<(Place, Place)>) -> Chains {
    let texts = [context.before, context.after];
    let sides = [0, 1].map(|side| Definitions::of(texts[side], program, side));
    let mut reads: [Map<u32, Reads>; 2] = Default::default();
    let mut chains = Chains::default();
    let mut seen: Set<(Place, Place)> = anchors.iter().copied().collect();
    let mut elsewhere: BTreeSet<Place> = BTreeSet::new();
    let mut pending = anchors;
    while let Some((a, b)) = pending.pop() {
        for (side, block) in [(0, a.0), (1, b.0)] {
            reads[side].entry(block).or_insert_with(|| sides[side].read(block as usize));
        }
        let of_q = &reads[1][&b.0][b.1 as usize];
        for (number, x) in &reads[0][&a.0][a.1 as usize] {
            let Some((_, y)) = of_q.iter().find(|(n, _)| n == number) else { continue };
            for (x, q) in x.iter().zip(y).flat_map(|(x, y)| y.iter().map(move |q| (x, q))) {
                let of = program.row(1, (q.0, q.1)).operation;
                let fits = |p: &&Defined| p.2 == q.2 && program.row(0, (p.0, p.1)).operation == of;
                let fitting: Vec<&Defined> = x.iter().filter(fits).collect();
                let mut near: Vec<&Defined> = fitting.iter().copied().filter(|p| p.0 == q.0).collect();
                if near.is_empty() && x.len() == 1 {
                    near.clone_from(&fitting);
                }
                // What is no operation that P's reader may take is in a register that P leaves undefined.
                if !fitting.is_empty() && near.is_empty() {
                    elsewhere.insert((q.0, q.1));
                }
                for p in near {
                    let (p, q) = ((p.0, p.1), (q.0, q.1));
                    if seen.insert((p, q)) {
                        pending.push((p, q));
                        chains.repeated.entry(q).or_default().push(p);
                        if p.0 == q.0 {
                            chains.pairs.entry(p.0 as usize).or_default().insert((p.1 as usize, q.1 as usize));
                        }
                    }
                }
            }
        }
    }
    let called = elsewhere.into_iter().chain(chains.repeated.keys().copied());
    let near = |q: &Place| chains.repeated.get(q).is_some_and(|all| all.iter().any(|p| p.0 == q.0));
    chains.foreign = called.filter(|q| !near(q)).collect();
    chains
}
