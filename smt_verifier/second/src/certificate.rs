//! The strict reader of certificates (spec 15). All that it reads is about lanes that the texts have.

use crate::context::Context;
use crate::entry::{Claimed, Claims, Part};
use crate::grammar::{parse, Tree};
use crate::lanes::{Lane, Map, Of, Set};
use crate::model::{ensure, need, Done, Refused};
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
    pub steps: Vec<(u32, Take)>,
    /// Instruction of this block of Q: block and instruction of P.
    pub repeats: Map<u32, (u32, u32)>,
    pub splits: Set<u32>,
}

/// No certificate of a function that is followed claims more than this at a block's entry, and of all blocks.
const MOST_CLAIMS: usize = 2_000_000;
const MOST_CLAIMS_OF_ALL: usize = 24_000_000;

/// Lanes of a register or slot.
const MOST_IN_A_RANGE: u32 = 128;

/// Read a certificate.
///
/// # Errors
/// `certificate`: a line that is not of the form that spec 15 gives, or not in order, or about another function.
pub fn read(text: &str, context: &Context<'_>) -> Done<Vec<BlockPart>> {
    let head = format!("verilocc-certificate 2\nfunction {}\n", context.after.name);
    let body = text.strip_prefix(&head);
    let body = need!(body, "certificate", "", "it is of another version, or about another function");
    let body = need!(body.strip_suffix("end\n"), "certificate", "", "it has no end");
    let (mut parts, mut rest, mut line, mut budget) = (Vec::new(), body, 3, MOST_CLAIMS_OF_ALL);
    while !rest.is_empty() {
        let end = rest.find("\nblock ").map_or(rest.len(), |end| end + 1);
        let (part, others) = rest.split_at(end);
        let parsed = parse("Part", part, line).map_err(|error| Refused { rule: "certificate", ..error })?;
        let place = format!("block {}", parts.len());
        let most = budget.min(MOST_CLAIMS);
        let mut left = most;
        let read = block(parsed.tree(), parts.len(), context, &mut left);
        budget -= most - left;
        parts.push(need!(read, "certificate", place.as_str(), "numbers, names or lines that do not fit"));
        line += part.matches('\n').count();
        rest = others;
    }
    ensure!(parts.len() == context.after.blocks.len(), "certificate", "", "it is about another function");
    Ok(parts)
}

fn block(tree: Tree<'_>, number: usize, context: &Context<'_>, budget: &mut usize) -> Option<BlockPart> {
    let (claims, steps) = (tree.child("Entry"), tree.child("Steps"));
    // The first block has no claims. One that is reached has steps.
    let fits = tree.number() == Some(number as u64) && (number > 0 || claims.is_none());
    (fits && (steps.is_some() || number > 0 && claims.is_none())).then_some(())?;
    let entry = claims.map(|claims| entry(claims, number, context, budget).ok_or(())).transpose().ok()?;
    let mut part = BlockPart { entry, ..BlockPart::default() };
    for run in steps.iter().flat_map(|steps| steps.all("Run")) {
        let take = match run.text.bytes().last()? {
            b'=' => Take::Pair,
            b'-' => Take::Before,
            _ => Take::After,
        };
        part.steps.push((*run.numbers()?.first().filter(|count| **count > 0)?, take));
    }
    for repeat in tree.all("Repeat") {
        let [after, of_block, before] = repeat.numbers()?[..] else { return None };
        part.repeats.insert(after, (of_block, before)).is_none().then_some(())?;
    }
    let mut splits = tree.all("Split");
    splits.all(|split| split.numbers().is_some_and(|one| part.splits.insert(one[0]))).then_some(part)
}

fn entry(tree: Tree<'_>, number: usize, context: &Context<'_>, budget: &mut usize) -> Option<Claimed> {
    let classes = vec![Part::default()];
    let mut entry = Claimed { classes, place: format!("entry of block {number}"), ..Claimed::default() };
    for class in tree.all("Threads") {
        (class.numbers()? == [entry.classes.len() as u32 - 1] && entry.classes.len() <= MOST_CLASSES).then_some(())?;
        let (kind, active) = (class.text.split(' ').nth(2)?.parse().ok()?, class.text.ends_with("on\n"));
        entry.classes.push(Part { kind, active, ..Part::default() });
    }
    for mask in tree.all("Mask") {
        let names = spell(mask.child("Range")?, None, context, 1, budget)?;
        entry.masks.entry(mask.numbers()?[0]).or_default().extend(names.into_iter().map(|(name, _)| name));
    }
    for member in tree.all("Member") {
        let number = *member.numbers()?.first()? as usize + 1;
        let class = entry.classes.get_mut(number).filter(|class| class.masks.is_empty() && class.kind != 'P')?;
        for signed in member.all("Signed") {
            for mask in span(signed.child("Span")?)? {
                *budget = budget.checked_sub(1)?;
                let is_new =
                    entry.masks.contains_key(&mask) && class.masks.insert(mask, signed.text.starts_with('+')).is_none();
                is_new.then_some(())?;
            }
        }
    }
    entry.nonempty = tree.child("Nonempty").map_or(Some(Vec::new()), Tree::numbers)?;
    entry.beside = tree.child("Beside").map_or(Some(Vec::new()), Tree::numbers)?;
    entry.some = tree.child("Some").is_some();
    for claimed in tree.all("In") {
        let of_wave = claimed.text.starts_with("in wave");
        let mut numbers = if of_wave { vec![WAVE] } else { Vec::new() };
        for number in claimed.all("Span").map(span) {
            let known = number?.map(|number| Some(number as usize + 1).filter(|number| *number < entry.classes.len()));
            for number in known {
                numbers.push(number?);
            }
        }
        let mut claims = Claims::default();
        for claim in claimed.inner() {
            let range = claim.child("Range");
            match claim.rule {
                "Holds" => claims.holds.extend(spell(range?, claim.child("Lane"), context, numbers.len(), budget)?),
                "Undefined" => claims
                    .undefined
                    .extend(spell(range?, None, context, numbers.len(), budget)?.iter().map(|(name, _)| *name)),
                "Doubtful" => claims
                    .doubtful
                    .extend(spell(range?, None, context, numbers.len(), budget)?.iter().map(|(name, _)| *name)),
                _ => {}
            }
        }
        // Spec 4: what belongs to which part.
        let mut names = claims.undefined.iter().chain(&claims.doubtful);
        let fits = names.all(|name| name.vector != of_wave);
        (fits && claims.holds.iter().all(|(name, place)| (name.vector || place.vector) != of_wave)).then_some(())?;
        for number in numbers {
            let class = entry.classes.get_mut(number)?;
            class.claims.push(entry.claims.len());
            class.doubtful.extend(claims.undefined.iter().chain(&claims.doubtful));
        }
        entry.claims.push(claims);
    }
    entry.is_complete(context.exec.len()).then_some(entry)
}

/// The number, or the numbers from one to a greater one.
fn span(tree: Tree<'_>) -> Option<std::ops::RangeInclusive<u32>> {
    match tree.numbers()?[..] {
        [one] => Some(one..=one),
        [first, last] => Some(first..=last).filter(|_| first < last),
        _ => None,
    }
}

/// The names of a range, each with its place, written out: `h NAME PLACE COUNT`, or `NAME COUNT` for both alike.
/// `parts`: how many parts claim it.
fn spell(
    range: Tree<'_>, name: Option<Tree<'_>>, context: &Context<'_>, parts: usize, budget: &mut usize,
) -> Option<Vec<(Lane, Lane)>> {
    let count = *range.numbers()?.first().filter(|count| (1..=MOST_IN_A_RANGE).contains(*count))?;
    *budget = budget.checked_sub(count as usize * parts)?;
    let second = lane(range.child("Lane")?)?;
    let first = name.map_or(Some(second), lane).filter(|lane| lane.of != Of::Result)?;
    (name.is_none() || !matches!(second.of, Of::Entry | Of::Read)).then_some(())?;
    let at = |lane: Lane, n: u32, is_place: bool| context.resolve(lane.advanced(n, context.coarse)?, is_place);
    (0..count).map(|n| Some((at(first, n, false)?, at(second, n, name.is_some())?))).collect()
}

/// A name or place as a certificate writes it. Whether it is vector is for the checker to say.
fn lane(tree: Tree<'_>) -> Option<Lane> {
    let numbers = tree.numbers()?;
    match (tree.text.get(..1)?, numbers.as_slice()) {
        ("$", [unit]) => Some(Lane::unit(*unit)),
        ("^", [unit]) => Some(Lane::entry(*unit)),
        ("%", [a, b]) => Some(Lane::new(Of::Virtual, *a, *b, 0)),
        ("#", [a, b]) => Some(Lane::new(Of::Slot, *a, *b, 0)),
        ("@", [a, b, c]) => Some(Lane::new(Of::Read, *a, *b, u16::try_from(*c).ok()?)),
        ("!", [a, b, c]) => Some(Lane::new(Of::Result, *a, *b, u16::try_from(*c).ok()?)),
        (_, [thread]) => {
            let register = lane(tree.child("Lane")?).filter(|register| register.cell == 0)?;
            let even = if register.of == Of::Unit { register.a } else { register.b } % 2 == 0;
            register.cell_of(u8::try_from(*thread).ok()?, tree.text.ends_with(".1").into()).filter(|_| even)
        }
        _ => None,
    }
}
