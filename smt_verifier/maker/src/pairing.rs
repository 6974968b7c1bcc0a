//! Which instruction of the text after allocation stands for which one of the text before it.
//!
//! Moves and instructions without code never pair. The others pair in order: those that must stand on both sides by a
//! longest common subsequence of their operations, pure ones likewise between two of those.

use std::collections::BTreeSet;

use verilocc_check::certificate::Take;
use verilocc_check::context::Context;
use verilocc_check::lanes::{Map, Set};

use crate::chains::{follow, Chains};
use crate::matching::{common_subsequence, increasing};
use crate::program::{Place, Program, Role, Row};

/// Runs of steps, as a certificate has them.
pub type Steps = Vec<(u32, Take)>;

/// How both texts are gone through.
pub struct Pairing {
    pub steps: Vec<Steps>,
    /// For instructions of Q that may be repetitions, the instructions of P that they may repeat, likely ones first.
    pub choices: Map<Place, Vec<Place>>,
}

/// The instructions of a block that are of one role, or of another than a passive one, with their operations.
#[derive(Default, PartialEq, Eq)]
struct Listed {
    at: Vec<usize>,
    operations: Vec<u32>,
}

impl Listed {
    fn of(rows: &[Row], numbers: impl Iterator<Item = usize>, chosen: impl Fn(Role) -> bool) -> Listed {
        let at: Vec<usize> = numbers.filter(|number| chosen(rows[*number].role)).collect();
        let operations = at.iter().map(|number| rows[*number].operation).collect();
        Listed { at, operations }
    }

    /// Pairs of numbers of a longest common subsequence.
    fn common(&self, other: &Listed) -> Vec<(usize, usize)> {
        let pairs = common_subsequence(&self.operations, &other.operations);
        pairs.into_iter().map(|(a, b)| (self.at[a], other.at[b])).collect()
    }
}

/// How both texts are gone through. `unpaired`: instructions of P that stand alone. `in_order`: pure instructions pair as
/// they stand, whatever their readers call for.
pub fn pair_all(context: &Context<'_>, program: &Program, unpaired: &BTreeSet<Place>, in_order: bool) -> Pairing {
    let [ps, qs] = &program.rows;
    let every = |rows: &[Row], chosen: fn(Role) -> bool| Listed::of(rows, 0..rows.len(), chosen);
    let all = |role| role != Role::Passive;
    let certain = |role| role == Role::Certain;
    let differ: Vec<bool> =
        ps.iter().zip(qs).map(|(p, q)| every(p, all).operations != every(q, all).operations).collect();
    let anchors: Vec<_> = ps.iter().zip(qs).map(|(p, q)| every(p, certain).common(&every(q, certain))).collect();
    let mut chains = Chains::default();
    if (differ.contains(&true) || !unpaired.is_empty()) && !in_order {
        let at = |n: u32| move |(a, b): &(usize, usize)| ((n, *a as u32), (n, *b as u32));
        chains = follow(context, program, (0..).zip(&anchors).flat_map(|(n, pairs)| pairs.iter().map(at(n))).collect());
    }
    let none = BTreeSet::new();
    let mut steps = Vec::new();
    for (n, (p, q)) in ps.iter().zip(qs).enumerate() {
        let foreign = |at: usize| chains.foreign.contains(&(n as u32, at as u32));
        let mut pairs = if differ[n] {
            pairs(p, q, &anchors[n], chains.pairs.get(&n).unwrap_or(&none), foreign)
        } else {
            every(p, all).at.into_iter().zip(every(q, all).at).collect()
        };
        pairs.retain(|(a, _)| !unpaired.contains(&(n as u32, *a as u32)));
        steps.push(runs(&pairs, p.len(), q.len()));
    }
    let choices = candidates(program, &steps, &chains);
    Pairing { steps, choices }
}

/// The pairs of a block. `anchors`: those that are certain. `called_for`: those that readers call for. `foreign`:
/// instructions of Q that have no partner in the block.
fn pairs(
    p: &[Row], q: &[Row], anchors: &[(usize, usize)], called_for: &BTreeSet<(usize, usize)>,
    foreign: impl Fn(usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut within: Vec<Vec<(usize, usize)>> = vec![Vec::new(); anchors.len() + 1];
    for (a, b) in called_for {
        let gap = anchors.partition_point(|(anchor, _)| anchor <= a);
        if gap == anchors.partition_point(|(_, anchor)| anchor <= b) {
            within[gap].push((*a, *b));
        }
    }
    let gaps = within.iter().zip(anchors.iter().map(Some).chain([None]));
    let ordered = gaps.flat_map(|(within, anchor)| increasing(within).into_iter().chain(anchor.copied()));
    let (mut pairs, mut start) = (Vec::new(), (0, 0));
    for stop in ordered.chain([(p.len(), q.len())]) {
        let pure = |role| role == Role::Pure;
        let of_p = Listed::of(p, start.0..stop.0, pure);
        let of_q = Listed::of(q, (start.1..stop.1).filter(|at| !foreign(*at)), pure);
        pairs.extend(of_p.common(&of_q));
        pairs.push(stop);
        start = (stop.0 + 1, stop.1 + 1);
    }
    pairs.pop();
    pairs
}

fn runs(pairs: &[(usize, usize)], p_length: usize, q_length: usize) -> Steps {
    let mut steps: Steps = Vec::new();
    let mut add = |take: Take, count: usize| match steps.last_mut() {
        _ if count == 0 => {}
        Some((last, kind)) if *kind == take => *last += count as u32,
        _ => steps.push((count as u32, take)),
    };
    let (mut i, mut j) = (0, 0);
    for (a, b) in pairs.iter().copied().chain([(p_length, q_length)]) {
        add(Take::Before, a - i);
        add(Take::After, b - j);
        add(Take::Pair, usize::from(a < p_length));
        (i, j) = (a + 1, b + 1);
    }
    steps
}

/// For each instruction of Q that stands alone and is pure: the instructions of P that it may repeat.
fn candidates(program: &Program, steps: &[Steps], chains: &Chains) -> Map<Place, Vec<Place>> {
    let mut wanted: Vec<Place> = Vec::new();
    for (block, steps) in (0..).zip(steps) {
        let mut at = 0;
        for (count, take) in steps.iter().filter(|(_, take)| *take != Take::Before) {
            let alone = (at..at + count).map(|number| (block, number));
            wanted.extend(alone.filter(|of| *take == Take::After && program.row(1, *of).role == Role::Pure));
            at += count;
        }
    }
    let operations: Set<u32> = wanted.iter().map(|of| program.row(1, *of).operation).collect();
    let mut by_operation: Map<u32, Vec<Place>> = Map::default();
    for (block, rows) in (0..).zip(&program.rows[0]).filter(|_| !wanted.is_empty()) {
        let alike = |row: &Row| row.role == Role::Pure && operations.contains(&row.operation);
        for (number, row) in (0..).zip(rows).filter(|(_, row)| alike(row)) {
            by_operation.entry(row.operation).or_default().push((block, number));
        }
    }
    let mut found = Map::default();
    for of in wanted {
        let Some(all) = by_operation.get(&program.row(1, of).operation) else { continue };
        let mut places: Vec<Place> = chains.repeated.get(&of).cloned().unwrap_or_default();
        places.retain(|place| all.contains(place));
        let others: Vec<Place> = all.iter().copied().filter(|place| !places.contains(place)).collect();
        places.extend(others);
        found.insert(of, places);
    }
    found
}
