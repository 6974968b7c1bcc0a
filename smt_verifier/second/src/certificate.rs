//! The strict reader of certificates (spec 15). All that it reads is about lanes that the texts have.

use std::collections::BTreeMap;

use crate::context::Context;
use crate::entry::{Claimed, Claims, Part};
use crate::lanes::{Lane, Map, Of, Set};
use crate::model::{ensure, Done, Refused};
use crate::threads::{MOST_CLASSES, WAVE};

/// Which instructions a run of steps takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    Pair,
    Before,
    After,
}

#[derive(Default)]
pub struct BlockPart {
    pub entry: Option<Claimed>,
    pub steps: Option<Vec<(u32, Take)>>,
    /// Instruction of this block of Q: block and instruction of P.
    pub repeats: Map<u32, (u32, u32)>,
    pub splits: Set<u32>,
}

/// More lanes than this are claimed by no certificate of a function that is followed.
const MOST_CLAIMS: usize = 6_000_000;

/// A slot of 128 KiB; no register has as many lanes.
const MOST_IN_A_RANGE: u32 = 65_536;

/// First words of lines, in the order in which they stand in a block. `true`: several may stand there.
const ORDER: [(&[&str], bool); 13] = [
    (&["verilocc-certificate"], false),
    (&["function"], false),
    (&["block"], true),
    (&["entry"], false),
    (&["class"], true),
    (&["mask"], true),
    (&["member"], true),
    (&["nonempty"], false),
    (&["some"], false),
    (&["in", "h", "u", "d"], true),
    (&["steps"], false),
    (&["repeat", "split"], true),
    (&["end"], false),
];

/// A decimal number without needless zeros.
fn number(word: &str) -> Option<u32> {
    crate::tables::canonical(word)
}

fn numbers<const N: usize>(words: &[&str]) -> Option<[u32; N]> {
    words.iter().map(|word| number(word)).collect::<Option<Vec<u32>>>()?.try_into().ok()
}

/// A name or place as a certificate writes it. Whether it is vector is for the checker to say.
pub fn lane(word: &str) -> Option<Lane> {
    let rest = word.get(1..)?;
    let parts: Vec<&str> = rest.split('.').collect();
    let two = |of: Of| numbers(&parts).map(|[a, b]| Lane::new(of, a, b, 0));
    let three = |of: Of| numbers(&parts).and_then(|[a, b, c]| Some(Lane::new(of, a, b, u16::try_from(c).ok()?)));
    match word.get(..1)? {
        "%" => two(Of::Virtual),
        "#" => two(Of::Slot),
        "$" => number(rest).map(Lane::unit),
        "^" => number(rest).map(Lane::entry),
        "@" => three(Of::Read),
        "!" => three(Of::Result),
        "&" => {
            let (base, cell) = rest.split_once(':')?;
            let (thread, half) = cell.strip_suffix(".1").map_or((cell, 0), |thread| (thread, 1));
            let register = lane(base).filter(|register| register.cell == 0)?;
            let even = if register.of == Of::Unit { register.a } else { register.b } % 2 == 0;
            register.cell_of(u8::try_from(number(thread)?).ok()?, half).filter(|_| even)
        }
        _ => None,
    }
}

struct Reader<'a> {
    context: &'a Context<'a>,
    blocks: Vec<BlockPart>,
    named: bool,
    /// Where in `ORDER` the last line stands.
    rank: usize,
    /// How many claims are left.
    budget: usize,
}

/// Read a certificate.
///
/// # Errors
/// `certificate`: a line that is not of the form that spec 15 gives, or not in order, or about another function.
pub fn read(text: &str, context: &Context<'_>) -> Done<Vec<BlockPart>> {
    let wrong = |what: &str, line: usize| {
        let shown: String = what.escape_debug().take(60).collect();
        Refused::new(
            "certificate",
            format!("`{shown}` does not belong here"),
            format!("certificate line {line}").as_str(),
        )
    };
    let body = text.strip_suffix('\n').filter(|_| text.is_ascii()).ok_or_else(|| wrong("no ASCII lines", 1))?;
    let mut reader = Reader { context, blocks: Vec::new(), named: false, rank: 0, budget: MOST_CLAIMS };
    for (at, line) in body.split('\n').enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let good = (at > 0 || line == "verilocc-certificate 1").then_some(()).and_then(|()| reader.line(&words, at));
        ensure!(reader.blocks.len() <= context.after.blocks.len(), "certificate", "", "it is about another function");
        good.ok_or_else(|| wrong(line, at + 1))?;
    }
    ensure!(reader.rank == ORDER.len() - 1, "certificate", "", "it has no end");
    ensure!(reader.blocks.len() == context.after.blocks.len(), "certificate", "", "it is about another function");
    Ok(reader.blocks)
}

impl Reader<'_> {
    /// Read a line; `None` if it does not belong here.
    fn line(&mut self, words: &[&str], at: usize) -> Option<()> {
        let (first, rest) = words.split_first()?;
        let rank = ORDER.iter().position(|(words, _)| words.contains(first))?;
        let begins = matches!(*first, "block" | "end");
        let in_order = if begins { self.named } else { rank > self.rank || rank == self.rank && ORDER[rank].1 };
        ((in_order || at == 0) && self.rank < ORDER.len() - 1).then_some(())?;
        self.rank = rank;
        if begins && !self.blocks.is_empty() {
            let block = self.blocks.last()?;
            (block.steps.is_some() || block.entry.is_none() && self.blocks.len() > 1).then_some(())?;
        }
        if *first == "function" {
            self.named = rest.join(" ") == self.context.after.name;
            return self.named.then_some(());
        }
        match (*first, rest) {
            ("block", [at]) => {
                (number(at)? as usize == self.blocks.len()).then(|| self.blocks.push(BlockPart::default()))
            }
            ("end", []) | ("verilocc-certificate", ["1"]) => Some(()),
            _ => self.line_of_block(first, rest),
        }
    }

    fn line_of_block(&mut self, first: &str, rest: &[&str]) -> Option<()> {
        let at = self.blocks.len();
        let block = self.blocks.last_mut()?;
        match (first, rest) {
            ("entry", []) => {
                let classes = vec![Part::default()];
                let entry = Claimed { classes, place: format!("entry of block {}", at - 1), ..Claimed::default() };
                (at > 1).then(|| block.entry = Some(entry))
            }
            ("steps", steps) => {
                block.entry.as_ref().is_none_or(|entry| entry.is_complete(self.context.exec.len())).then_some(())?;
                block.steps = Some(steps.iter().map(|word| step(word)).collect::<Option<_>>()?);
                Some(())
            }
            ("repeat", words) => {
                let [after, of_block, before] = numbers(words)?;
                block.repeats.insert(after, (of_block, before)).is_none().then_some(())
            }
            ("split", [one]) => block.splits.insert(number(one)?).then_some(()),
            _ => self.claim(first, rest),
        }
    }

    fn claim(&mut self, first: &str, rest: &[&str]) -> Option<()> {
        let mut spelled =
            |name: &str, is_place: bool, count: &str| spell(self.context, &mut self.budget, name, is_place, count);
        let entry = self.blocks.last_mut()?.entry.as_mut()?;
        match (first, rest) {
            ("class", [at, kind, active]) => {
                (number(at)? as usize + 1 == entry.classes.len() && entry.classes.len() <= MOST_CLASSES)
                    .then_some(())?;
                let kind = kind.parse().ok().filter(|kind| matches!(kind, 'T' | 'O' | 'P'))?;
                let active = *["off", "on"].iter().find(|word| *word == active)? == "on";
                entry.classes.push(Part { kind, active, ..Part::default() });
                (active || kind != 'P').then_some(())
            }
            ("mask", [mask, name, count]) => {
                let names = spelled(name, false, count)?;
                let scalar = names.iter().all(|name| !name.vector);
                scalar.then(|| entry.masks.entry(number(mask).unwrap_or(0)).or_default().extend(names))?;
                number(mask).map(|_| ())
            }
            ("member", [class, masks @ ..]) => {
                let class =
                    entry.classes.get_mut(number(class)? as usize + 1).filter(|class| class.masks.is_empty())?;
                for word in masks {
                    let inside = *["-", "+"].iter().find(|sign| word.starts_with(**sign))? == "+";
                    let mask = number(word.get(1..)?).filter(|mask| entry.masks.contains_key(mask))?;
                    class.masks.insert(mask, inside).is_none().then_some(())?;
                }
                Some(())
            }
            ("nonempty", masks) => {
                entry.nonempty = masks.iter().map(|mask| number(mask)).collect::<Option<_>>()?;
                entry.nonempty.iter().all(|mask| entry.masks.contains_key(mask)).then_some(())
            }
            ("some", []) => Some(entry.some = true),
            ("in", whom) => {
                let classes: Vec<usize> = match whom {
                    ["wave"] => vec![WAVE],
                    _ => whom.iter().map(|word| Some(number(word)? as usize + 1)).collect::<Option<_>>()?,
                };
                (!classes.is_empty()).then_some(())?;
                for number in &classes {
                    entry.classes.get_mut(*number)?.claims.push(entry.claims.len());
                }
                entry.claims.push(Claims { classes, ..Claims::default() });
                Some(())
            }
            ("h", [name, place, count]) => {
                let claims = entry.claims.last_mut()?;
                let (names, places) = (spelled(name, false, count)?, spelled(place, true, count)?);
                // Spec 4: what belongs to which part.
                let of_wave = claims.classes == [WAVE];
                let mut pairs = names.iter().zip(&places);
                pairs.all(|(name, place)| (name.vector || place.vector) != of_wave).then_some(())?;
                claims.holds.extend(names.into_iter().zip(places));
                Some(())
            }
            ("u" | "d", [name, count]) => {
                let claims = entry.claims.last_mut()?;
                let names = spelled(name, false, count)?;
                names.iter().all(|name| name.vector != (claims.classes == [WAVE])).then_some(())?;
                for class in &claims.classes {
                    entry.classes[*class].doubtful.extend(&names);
                }
                if first == "u" {
                    claims.undefined.extend(names)
                } else {
                    claims.doubtful.extend(names)
                }
                Some(())
            }
            _ => None,
        }
    }
}

/// The names or places of a range, written out.
fn spell(context: &Context<'_>, budget: &mut usize, first: &str, is_place: bool, count: &str) -> Option<Vec<Lane>> {
    let count = number(count).filter(|count| (1..=MOST_IN_A_RANGE).contains(count))?;
    *budget = budget.checked_sub(count as usize)?;
    let odd = |lane: &Lane| if is_place { matches!(lane.of, Of::Entry | Of::Read) } else { lane.of == Of::Result };
    let first = lane(first).filter(|lane| !odd(lane))?;
    (0..count).map(|n| context.resolve(first.advanced(n, context.coarse)?, is_place)).collect()
}

fn step(word: &str) -> Option<(u32, Take)> {
    let (count, sign) = word.split_at_checked(word.len().checked_sub(1)?)?;
    let take = match sign {
        "=" => Take::Pair,
        "-" => Take::Before,
        "+" => Take::After,
        _ => return None,
    };
    number(count).filter(|count| *count > 0).map(|count| (count, take))
}

/// Masks by number, each with the names that hold its parts.
pub type Masks = BTreeMap<u32, Vec<Lane>>;
