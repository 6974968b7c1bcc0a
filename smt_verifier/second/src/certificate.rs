//! The strict reader of certificates (spec 15).

use crate::lanes::{Lane, Map, Of, Set};
use crate::model::Refused;

/// Which instructions a run of steps takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    Pair,
    Before,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
    /// `T`: active at function entry.
    Active,
    /// `O`: not active at function entry.
    Other,
    /// `P`: the path.
    Path,
}

/// COUNT names from one on, held by as many places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub name: Lane,
    /// Only for `h`.
    pub place: Option<Lane>,
    pub count: u32,
}

/// Claims about the scalar part or about classes.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// `None`: the scalar part.
    pub classes: Option<Vec<usize>>,
    pub holds: Vec<Range>,
    pub undefined: Vec<Range>,
    pub doubtful: Vec<Range>,
}

#[derive(Clone, Debug)]
pub struct ClaimedClass {
    pub kind: ThreadKind,
    pub active: bool,
    pub masks: Vec<(u32, bool)>,
}

#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub classes: Vec<ClaimedClass>,
    /// Mask, and the names that hold its parts.
    pub masks: Vec<(u32, Range)>,
    pub nonempty: Vec<u32>,
    pub some: bool,
    pub claims: Vec<Claims>,
}

#[derive(Clone, Debug, Default)]
pub struct BlockPart {
    pub entry: Option<Entry>,
    pub steps: Vec<(u32, Take)>,
    /// Instruction of this block of Q: block and instruction of P.
    pub repeats: Map<u32, (u32, u32)>,
    pub splits: Set<u32>,
}

#[derive(Clone, Debug)]
pub struct Certificate {
    pub function: String,
    pub blocks: Vec<BlockPart>,
}

fn wrong(message: &str, line: usize) -> Refused {
    Refused::new("certificate", message, format!("certificate line {line}"))
}

/// A decimal number without needless zeros.
fn number(word: &str) -> Option<u32> {
    let plain = !word.is_empty() && word.len() <= 10 && word.bytes().all(|b| b.is_ascii_digit());
    (plain && (word == "0" || !word.starts_with('0'))).then(|| word.parse().ok()).flatten()
}

fn numbers<const N: usize>(text: &str) -> Option<[u32; N]> {
    let mut all = [0; N];
    let mut words = text.split('.');
    for slot in &mut all {
        *slot = number(words.next()?)?;
    }
    words.next().is_none().then_some(all)
}

/// A name or place as a certificate writes it. Whether it is vector is for the checker to say.
pub fn lane(word: &str) -> Option<Lane> {
    let mut letters = word.chars();
    let first = letters.next()?;
    let rest = letters.as_str();
    match first {
        '%' => numbers(rest).map(|[a, b]| Lane::new(Of::Virtual, a, b, 0)),
        '#' => numbers(rest).map(|[a, b]| Lane::new(Of::Slot, a, b, 0)),
        '$' => number(rest).map(Lane::unit),
        '^' => number(rest).map(Lane::entry),
        '@' => numbers(rest).and_then(|[a, b, c]| Some(Lane::new(Of::Read, a, b, u16::try_from(c).ok()?))),
        '!' => numbers(rest).and_then(|[a, b, c]| Some(Lane::new(Of::Result, a, b, u16::try_from(c).ok()?))),
        '&' => {
            let (base, cell) = rest.split_once(':')?;
            let (thread, half) = cell.strip_suffix(".1").map_or((cell, 0), |thread| (thread, 1));
            let register = lane(base)?;
            let even = if register.of == Of::Unit { register.a } else { register.b } % 2 == 0;
            let cell = register.cell_of(u8::try_from(number(thread)?).ok()?, half)?;
            (even && register.cell == 0).then_some(cell)
        }
        _ => None,
    }
}

fn range(name: &str, place: Option<&str>, count: &str) -> Option<Range> {
    let place = match place {
        Some(word) => Some(lane(word).filter(|l| !matches!(l.of, Of::Entry | Of::Read))?),
        None => None,
    };
    let name = lane(name).filter(|l| l.of != Of::Result)?;
    let count = number(count).filter(|count| (1..=MOST_IN_A_RANGE).contains(count))?;
    Some(Range { name, place, count })
}

/// A slot of 128 KiB; no register has as many lanes.
const MOST_IN_A_RANGE: u32 = 65_536;

struct Reader<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> &'a str {
        self.lines.get(self.at).copied().unwrap_or("")
    }

    fn error(&self, message: &str) -> Refused {
        wrong(message, self.at + 1)
    }

    /// The words of the next line if its first one is this.
    fn take(&mut self, first: &str) -> Option<Vec<&'a str>> {
        let mut words = self.peek().split(' ');
        if words.next() != Some(first) {
            return None;
        }
        self.at += 1;
        Some(words.collect())
    }

    fn block(&mut self, number_of_block: usize) -> Result<BlockPart, Refused> {
        let mut block = BlockPart::default();
        if let Some(words) = self.take("entry") {
            if !words.is_empty() || number_of_block == 0 {
                return Err(self.error("an `entry` that does not belong here"));
            }
            block.entry = Some(self.entry()?);
        }
        if let Some(words) = self.take("steps") {
            for word in words {
                block.steps.push(step(word).ok_or_else(|| self.error("a step that is none"))?);
            }
        } else if block.entry.is_some() || number_of_block == 0 {
            return Err(self.error("a block that is reached has no `steps`"));
        }
        loop {
            if let Some(words) = self.take("repeat") {
                let all: Option<Vec<u32>> = words.into_iter().map(number).collect();
                let Some([after, of_block, before]) = all.as_deref().and_then(|all| <[u32; 3]>::try_from(all).ok())
                else {
                    return Err(self.error("a `repeat` that is none"));
                };
                if block.repeats.insert(after, (of_block, before)).is_some() {
                    return Err(self.error("an instruction repeats two"));
                }
            } else if let Some(words) = self.take("split") {
                let one = if let [word] = words.as_slice() { number(word) } else { None };
                let Some(one) = one else { return Err(self.error("a `split` that is none")) };
                block.splits.insert(one);
            } else {
                return Ok(block);
            }
        }
    }

    fn entry(&mut self) -> Result<Entry, Refused> {
        let mut entry = Entry::default();
        while let Some(words) = self.take("class") {
            let class = class(&words, entry.classes.len()).ok_or_else(|| self.error("a class that is none"))?;
            entry.classes.push(class);
        }
        while let Some(words) = self.take("mask") {
            let mask = match words.as_slice() {
                [mask, name, count] => number(mask).zip(range(name, None, count)),
                _ => None,
            };
            entry.masks.push(mask.ok_or_else(|| self.error("a mask that is none"))?);
        }
        while let Some(words) = self.take("member") {
            let members = member(&words).ok_or_else(|| self.error("a member that is none"))?;
            let class = entry.classes.get_mut(members.0);
            let class = class.filter(|class| class.masks.is_empty());
            class.ok_or_else(|| self.error("a class that the entry does not name, or named before"))?.masks = members.1;
        }
        if let Some(words) = self.take("nonempty") {
            let all: Option<Vec<u32>> = words.into_iter().map(number).collect();
            entry.nonempty = all.ok_or_else(|| self.error("a mask that is none"))?;
        }
        if let Some(words) = self.take("some") {
            entry.some = words.is_empty();
            if !entry.some {
                return Err(self.error("words behind `some`"));
            }
        }
        while let Some(words) = self.take("in") {
            let claims = self.claims(&words, entry.classes.len())?;
            entry.claims.push(claims);
        }
        Ok(entry)
    }

    fn claims(&mut self, about: &[&str], classes: usize) -> Result<Claims, Refused> {
        let mut claims = Claims::default();
        if about != ["wave"] {
            let all: Option<Vec<usize>> =
                about.iter().map(|word| number(word).and_then(|n| usize::try_from(n).ok())).collect();
            let all = all.filter(|all| !all.is_empty() && all.iter().all(|n| *n < classes));
            claims.classes = Some(all.ok_or_else(|| self.error("classes that the entry does not name"))?);
        }
        loop {
            if let Some(words) = self.take("h") {
                let claim =
                    if let [name, place, count] = words.as_slice() { range(name, Some(place), count) } else { None };
                claims.holds.push(claim.ok_or_else(|| self.error("a claim that is none"))?);
            } else if let Some(words) = self.take("u") {
                claims.undefined.push(self.names(&words)?);
            } else if let Some(words) = self.take("d") {
                claims.doubtful.push(self.names(&words)?);
            } else {
                return Ok(claims);
            }
        }
    }

    fn names(&self, words: &[&str]) -> Result<Range, Refused> {
        let claim = if let [name, count] = words { range(name, None, count) } else { None };
        claim.ok_or_else(|| self.error("a claim that is none"))
    }
}

fn step(word: &str) -> Option<(u32, Take)> {
    let (count, take) = if let Some(count) = word.strip_suffix('=') {
        (count, Take::Pair)
    } else if let Some(count) = word.strip_suffix('-') {
        (count, Take::Before)
    } else {
        (word.strip_suffix('+')?, Take::After)
    };
    number(count).filter(|count| *count > 0).map(|count| (count, take))
}

fn class(words: &[&str], expected: usize) -> Option<ClaimedClass> {
    let [at, kind, active] = <[&str; 3]>::try_from(words).ok()?;
    if usize::try_from(number(at)?).ok()? != expected {
        return None;
    }
    let kind = match kind {
        "T" => ThreadKind::Active,
        "O" => ThreadKind::Other,
        "P" if active == "on" => ThreadKind::Path,
        _ => return None,
    };
    let active = match active {
        "on" => true,
        "off" => false,
        _ => return None,
    };
    Some(ClaimedClass { kind, active, masks: Vec::new() })
}

/// A class, and the masks that it is in or out of.
fn member(words: &[&str]) -> Option<(usize, Vec<(u32, bool)>)> {
    let (class, masks) = words.split_first()?;
    let mask = |word: &&str| {
        let (sign, mask) = word.split_at_checked(1)?;
        let inside = match sign {
            "+" => true,
            "-" => false,
            _ => return None,
        };
        Some((number(mask)?, inside))
    };
    let masks = masks.iter().map(mask).collect::<Option<Vec<_>>>()?;
    let once: Set<u32> = masks.iter().map(|(mask, _)| *mask).collect();
    Some((usize::try_from(number(class)?).ok()?, masks)).filter(|(_, masks)| once.len() == masks.len())
}

/// Read a certificate; every line is of the form that spec 15 gives.
pub fn read(text: &str) -> Result<Certificate, Refused> {
    let Some(body) = text.strip_suffix('\n').filter(|_| text.is_ascii()) else {
        return Err(wrong("not ASCII lines that end with a line feed", 1));
    };
    let mut reader = Reader { lines: body.split('\n').collect(), at: 0 };
    if reader.take("verilocc-certificate") != Some(vec!["1"]) {
        return Err(reader.error("not a certificate of version 1"));
    }
    let function = match reader.take("function").as_deref() {
        Some([name]) if !name.is_empty() => (*name).to_string(),
        _ => return Err(reader.error("no function is named")),
    };
    let mut blocks = Vec::new();
    while let Some(words) = reader.take("block") {
        let one = if let [word] = words.as_slice() { number(word) } else { None };
        if one.and_then(|n| usize::try_from(n).ok()) != Some(blocks.len()) {
            return Err(reader.error("blocks are not in order"));
        }
        blocks.push(reader.block(blocks.len())?);
    }
    if reader.take("end") != Some(Vec::new()) || reader.at != reader.lines.len() {
        return Err(reader.error("a line that has no meaning here"));
    }
    Ok(Certificate { function, blocks })
}
