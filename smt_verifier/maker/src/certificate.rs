//! Certificates and their text (spec 15).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};

use verilocc_check::certificate::Take;
use verilocc_check::lanes::{Lane, Map, Of, Set};

use crate::pairing::Steps;
use crate::program::Place;

/// Lanes that one virtual register or slot may have.
const LANES: u32 = 128;

/// What is claimed of the scalars, or of one class of threads, at a block's entry.
#[derive(Clone, Default)]
pub struct Claims {
    /// A name and a place: the place holds the name's value, or the name is undefined.
    pub pairs: Vec<(Lane, Lane)>,
    pub undefined: Vec<Lane>,
    /// Further names that may be undefined.
    pub doubtful: Vec<Lane>,
}

/// A class of threads that is claimed, with its masks in order, and whether it is in them.
pub struct Class {
    pub kind: char,
    pub active: bool,
    pub member: Vec<(u32, bool)>,
    pub claims: Claims,
}

/// All that is claimed at a block's entry.
#[derive(Default)]
pub struct Entry {
    pub classes: Vec<Class>,
    pub scalars: Claims,
    /// Masks by number, with the names that hold their parts.
    pub masks: BTreeMap<u32, Vec<Lane>>,
    pub nonempty: BTreeSet<u32>,
    pub beside: BTreeSet<u32>,
    pub some: bool,
}

#[derive(Default)]
pub struct Block {
    pub steps: Steps,
    pub repeats: BTreeMap<u32, Place>,
    pub splits: BTreeSet<u32>,
    pub entry: Option<Entry>,
}

/// Of one function. Slots have P's numbers.
pub struct Certificate<'a> {
    pub function: &'a str,
    pub blocks: Vec<Block>,
    /// Lanes are 32 bits (spec 3.1).
    pub coarse: bool,
}

impl Certificate<'_> {
    /// Leave out what is claimed of instructions that nothing repeats after all.
    pub fn drop_unused(&mut self) {
        let used: Set<Place> = self.blocks.iter().flat_map(|block| block.repeats.values().copied()).collect();
        let is_used = |lane: &Lane| !matches!(lane.of, Of::Read | Of::Result) || used.contains(&(lane.a, lane.b));
        for entry in self.blocks.iter_mut().filter_map(|block| block.entry.as_mut()) {
            entry.masks.retain(|_, names| names.iter().all(is_used));
            let known: BTreeSet<u32> = entry.masks.keys().copied().collect();
            entry.nonempty.retain(|mask| known.contains(mask));
            entry.beside.retain(|mask| known.contains(mask));
            entry.classes.iter_mut().for_each(|class| class.member.retain(|(mask, _)| known.contains(mask)));
            let of_classes = entry.classes.iter_mut().map(|class| &mut class.claims);
            for claims in of_classes.chain([&mut entry.scalars]) {
                claims.pairs.retain(|(name, place)| is_used(name) && is_used(place));
                claims.undefined.retain(is_used);
                claims.doubtful.retain(is_used);
            }
        }
    }

    pub fn text(&self) -> String {
        let mut text = format!("verilocc-certificate 2\nfunction {}\n", self.function);
        for (number, block) in self.blocks.iter().enumerate() {
            line(&mut text, format_args!("block {number}"));
            if let Some(entry) = &block.entry {
                self.entry(&mut text, entry);
            }
            let step = |(count, take): &(u32, Take)| format!("{count}{}", kind(*take));
            words(&mut text, "steps", block.steps.iter().map(step));
            for (at, (of, number)) in &block.repeats {
                line(&mut text, format_args!("repeat {at} {of} {number}"));
            }
            block.splits.iter().for_each(|at| line(&mut text, format_args!("split {at}")));
        }
        text + "end\n"
    }

    fn entry(&self, text: &mut String, entry: &Entry) {
        text.push_str("entry\n");
        for (number, class) in entry.classes.iter().enumerate() {
            let active = if class.active { "on" } else { "off" };
            line(text, format_args!("class {number} {} {active}", class.kind));
        }
        for (mask, names) in &entry.masks {
            match names.first() {
                Some(first) if is_plain(first) => line(text, format_args!("mask {mask} {first} {}", names.len())),
                _ => names.iter().for_each(|name| line(text, format_args!("mask {mask} {name} 1"))),
            }
        }
        for (number, class) in entry.classes.iter().enumerate().filter(|(_, class)| !class.member.is_empty()) {
            words(text, &format!("member {number}"), members(&class.member));
        }
        for (word, masks) in [("nonempty", &entry.nonempty), ("beside", &entry.beside)] {
            if !masks.is_empty() {
                words(text, word, masks);
            }
        }
        if entry.some {
            text.push_str("some\n");
        }
        text.push_str("in wave\n");
        self.claims(text, &entry.scalars);
        for (numbers, claims) in by_owners(&entry.classes) {
            words(text, "in", spans(&numbers));
            self.claims(text, &claims);
        }
    }

    fn claims(&self, text: &mut String, claims: &Claims) {
        let mut pairs = claims.pairs.clone();
        pairs.sort_by_cached_key(|(name, place)| (order(name), order(place)));
        let written = |[name, place]: [Lane; 2], count| format!("h {name} {place} {count}");
        self.lines(text, pairs.into_iter().map(|(name, place)| [name, place]).collect(), written);
        for (kind, names) in [('u', &claims.undefined), ('d', &claims.doubtful)] {
            let mut names = names.clone();
            names.sort_by_cached_key(order);
            let written = |[name]: [Lane; 1], count| format!("{kind} {name} {count}");
            self.lines(text, names.into_iter().map(|name| [name]).collect(), written);
        }
    }

    /// Rows of names, or of names and places, with runs of lanes in one line.
    fn lines<const N: usize>(
        &self, text: &mut String, rows: Vec<[Lane; N]>, written: impl Fn([Lane; N], u32) -> String,
    ) {
        let mut waiting: Set<[Lane; N]> = rows.iter().copied().collect();
        for first in rows {
            let (mut count, mut row) = (0, Some(first));
            while let Some(next) = row.filter(|row| count < LANES && waiting.remove(row)) {
                count += 1;
                let alone = next.iter().any(|lane| lane.cell != 0);
                row = (!alone).then(|| first.map(|lane| lane.advanced(count, self.coarse).unwrap_or(lane)));
            }
            if count > 0 {
                line(text, format_args!("{}", written(first, count)));
            }
        }
    }
}

fn kind(take: Take) -> char {
    match take {
        Take::Pair => '=',
        Take::Before => '-',
        Take::After => '+',
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    _ = writeln!(text, "{words}");
}

fn words(text: &mut String, first: &str, more: impl IntoIterator<Item = impl Display>) {
    text.push_str(first);
    more.into_iter().for_each(|word| _ = write!(text, " {word}"));
    text.push('\n');
}

/// A lane of a register or slot.
pub fn is_plain(lane: &Lane) -> bool {
    lane.cell == 0 && matches!(lane.of, Of::Unit | Of::Virtual | Of::Slot)
}

/// A key to sort names and places by: lanes of registers and slots first.
pub fn order(lane: &Lane) -> (u8, u64, u64) {
    let (a, b) = (u64::from(lane.a), u64::from(lane.b));
    let register = match lane.of {
        Of::Unit => a,
        Of::Virtual => (1 << 20) + a * u64::from(LANES) + b,
        _ => (1 << 44) + a * u64::from(LANES) + b,
    };
    match lane.of {
        _ if lane.cell != 0 => (2, register, lane.cell.into()),
        Of::Unit | Of::Virtual | Of::Slot => (0, register, 0),
        Of::Result => (1, a << 32 | b, lane.c.into()),
        Of::Read => (3, a << 32 | b, lane.c.into()),
        Of::Entry | Of::Unchanged => (4, a, 0),
    }
}

/// What several classes claim alike stands once: claims by the numbers of those that make them.
fn by_owners(classes: &[Class]) -> BTreeMap<Vec<u32>, Claims> {
    let mut owners: Map<(char, Lane, Lane), Vec<u32>> = Map::default();
    for (number, class) in (0..).zip(classes) {
        let claims = &class.claims;
        let held = claims.pairs.iter().map(|(name, place)| ('h', *name, *place));
        let undefined = claims.undefined.iter().map(|name| ('u', *name, *name));
        let doubtful = claims.doubtful.iter().map(|name| ('d', *name, *name));
        held.chain(undefined).chain(doubtful).for_each(|claim| owners.entry(claim).or_default().push(number));
    }
    let mut all: BTreeMap<Vec<u32>, Claims> = BTreeMap::new();
    for ((kind, name, place), numbers) in owners {
        let claims = all.entry(numbers).or_default();
        match kind {
            'h' => claims.pairs.push((name, place)),
            'u' => claims.undefined.push(name),
            _ => claims.doubtful.push(name),
        }
    }
    all
}

/// Ascending numbers, those that follow each other as `FIRST-LAST`.
fn spans(numbers: &[u32]) -> Vec<String> {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    runs.map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    })
    .collect()
}

/// The masks that a class is in (`+`) and out of, in order.
fn members(member: &[(u32, bool)]) -> Vec<String> {
    let mut member = member.to_vec();
    member.sort_unstable();
    let runs = member.chunk_by(|one, next| one.1 == next.1);
    runs.flat_map(|run| {
        let sign = if run[0].1 { '+' } else { '-' };
        let numbers: Vec<u32> = run.iter().map(|(mask, _)| *mask).collect();
        spans(&numbers).into_iter().map(move |span| format!("{sign}{span}"))
    })
    .collect()
}
