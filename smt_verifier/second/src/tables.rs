//! What LLVM's tables say of the target (spec 2.2), and what headers may say (13.1): the files of
//! `smt_verifier/checker/data`, which the README there describes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, OnceLock, PoisonError};

type Text = &'static str;

const TARGET: Text = include_str!("../../checker/data/target.txt");
const FIELDS: Text = include_str!("../../checker/data/fields.txt");

/// What a column may hold.
trait Column: Sized {
    fn read(text: Text) -> Option<Self>;
}

macro_rules! columns {
    ($($kind:ty: |$text:ident| $value:expr;)+) => {
        $(impl Column for $kind {
            fn read($text: Text) -> Option<Self> {
                $value
            }
        })+
    };
}

columns! {
    Text: |text| Some(text);
    u32: |text| canonical(text);
    usize: |text| canonical(text).map(|number| number as usize);
    bool: |text| canonical(text).filter(|number| *number < 2).map(|number| number == 1);
    char: |text| text.chars().next().filter(|letter| text.len() == letter.len_utf8());
    Form: |text| text.split_once(':').and_then(|(width, align)| Some(Form(canonical(width)?, canonical(align)?)));
    Units: |text| {
        let numbers = |(first, last)| Some(canonical(first)?..=canonical(last)?);
        let range = |range: &'static str| range.split_once('-').and_then(numbers);
        let ranges = text.split(',').filter(|range| !range.is_empty()).map(range).collect::<Option<Vec<_>>>();
        ranges.map(|ranges| Units(ranges.into_iter().flatten().collect()))
    };
}

impl<T: Column> Column for Option<T> {
    fn read(text: Text) -> Option<Self> {
        if matches!(text, "-" | "-1") {
            Some(None)
        } else {
            T::read(text).map(Some)
        }
    }
}

/// A list.
impl<T: Column> Column for Vec<T> {
    fn read(text: Text) -> Option<Self> {
        text.split(' ').filter(|word| !word.is_empty()).map(T::read).collect()
    }
}

/// `first-last`, with commas between.
#[derive(Clone, Debug)]
pub struct Units(pub Vec<u32>);

/// `width:align`.
#[derive(Clone, Debug)]
pub struct Form(u32, u32);

/// Members of a class: a special register; or of a file each `step`th from `first` to `last`, and which part of it.
#[derive(Clone, Debug)]
pub enum Member {
    Special(Text),
    Run { file: char, first: u32, last: u32, step: u32, part: Text },
}

impl Column for Member {
    fn read(text: Text) -> Option<Self> {
        if let Some(special) = text.strip_prefix('=') {
            return Some(Member::Special(special));
        }
        let (run, step) = text.split_once('+')?;
        let (step, part) = step.split_once('.').unwrap_or((step, ""));
        let (first, last) = run.get(1..)?.split_once("..")?;
        let (file, step) = (char::read(run.get(..1)?)?, canonical(step).filter(|step| *step > 0)?);
        let run = Member::Run { file, first: canonical(first)?, last: canonical(last)?, step, part };
        ["", "lo", "hi", "lo.hi", "w"].contains(&part).then_some(run)
    }
}

/// A row of a section: columns in order.
trait Row: Sized {
    fn read(columns: &[Text]) -> Option<Self>;
}

macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident { $($(#[$note:meta])* $field:ident: $kind:ty),+ $(,)? })+) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name { $($(#[$note])* pub $field: $kind),+ }

        impl Row for $name {
            fn read(columns: &[Text]) -> Option<Self> {
                let [$($field),+] = columns else { return None };
                Some($name { $($field: Column::read($field)?),+ })
            }
        }
    )+ };
}

rows! {
    Processor {
        name: Text,
        /// Which of an operand row's classes hold.
        mode: usize,
        wave_size: u32, major: u32, unified_vgpr: bool, has_agprs: bool, align2: bool,
        addressable_vgprs: u32, addressable_agprs: u32, addressable_sgprs: u32,
        max_waves: u32, simds: u32, lds_bytes: u32, max_barriers: u32,
        /// None where there is no choice.
        cu_mode: Option<bool>,
        architected_flat_scratch: bool, xnack: bool,
        /// A move of 16 bits leaves the other half of the register alone.
        half_moves: bool,
    }
    /// Of the registers of a wave where so many share a SIMD.
    Budget {
        processor: Text, waves: u32, max_sgprs: u32, max_addressable_sgprs: u32, min_sgprs: u32, max_vectors: u32,
        min_vectors: u32,
    }
    NumberedFile { letter: char, name: Text, base: u32, size: u32, forms: Vec<Form>, marks: Vec<Text> }
    Special { name: Text, units: Units, marks: Vec<Text> }
    RegisterClass {
        name: Text, bits: u32,
        /// Its registers hold one value a thread.
        is_vector: bool,
        /// The class with VGPRs and AGPRs of the same form, or its own name.
        either: Text,
        members: Vec<Member>,
    }
    Mask { name: Text, units: Units }
    /// A word of inline assembly that hints at other threads, and what it must not begin.
    Hint { word: Text, except: Text }
    /// Processors for which a function may ask for a feature, and those for which it may ask to do without.
    Feature { name: Text, on: Vec<Text>, off: Vec<Text> }
    /// Masks of the registers that a function leaves as it found them; whether work-groups have the size of a wave.
    Convention { name: Text, saved: Text, saved_with_agprs: Text, is_shader: bool }
    /// An argument in a header's `argumentInfo`, and the SGPRs it takes.
    Argument { name: Text, sgprs: u32 }
    OperandRow { kind: Text, tied_to: Option<usize>, early_clobber: bool, classes: Text }
    Opcode {
        definitions: usize,
        /// Rows of explicit operands, definitions first.
        operands: Vec<usize>,
        implicit_uses: Vec<Text>, implicit_definitions: Vec<Text>, traits: Vec<Text>,
        /// How many explicit operands a text may have.
        counts: Vec<usize>,
        /// Numbers of operands of which LLVM 24's form is not described.
        not_described: Vec<usize>,
    }
    /// A field of a header, or an entry of a row of a list there.
    Field { name: Text, kind: Text, default: Text }
}

/// A physical register. `file`: `v`, `a`, `s`, `t`, or `x` for one that is in no numbered file.
#[derive(Debug, PartialEq, Eq)]
pub struct Register {
    pub name: String,
    pub file: char,
    /// 16 bits each, lowest first. Empty without storage.
    pub units: Vec<u32>,
    pub marks: Vec<Text>,
}

impl Register {
    pub fn is_marked(&self, mark: &str) -> bool {
        self.marks.contains(&mark)
    }
}

impl OperandRow {
    /// The class of a processor's mode; empty where none is prescribed, `-` where there is no such operand.
    pub fn class(&self, processor: &Processor) -> Text {
        self.classes.split('/').nth(processor.mode).unwrap_or(self.classes.split('/').next().unwrap_or(""))
    }
}

impl Opcode {
    pub fn has(&self, word: &str) -> bool {
        self.traits.contains(&word)
    }

    /// What stands behind `=` of a trait, or `""`.
    pub fn value(&self, word: &str) -> Text {
        self.traits.iter().find_map(|t| t.strip_prefix(word)?.strip_prefix('=')).unwrap_or("")
    }

    /// The numbers in such a value.
    pub fn numbers(&self, word: &str) -> Vec<usize> {
        self.value(word).split(',').filter_map(|number| number.parse().ok()).collect()
    }

    /// The table's row of an explicit operand.
    pub fn row(&self, number: usize) -> Option<&'static OperandRow> {
        tables().operands.get(*self.operands.get(number)?)
    }
}

impl RegisterClass {
    /// The letters of the register files that its members come from, trap registers aside.
    pub fn files(&self) -> BTreeSet<char> {
        let file = |member: &Member| if let Member::Run { file, .. } = member { Some(*file) } else { None };
        self.members.iter().filter_map(file).filter(|file| *file != 't').collect()
    }

    /// The class with VGPRs and AGPRs of the same form, or this one.
    pub fn in_either_file(&'static self) -> &'static RegisterClass {
        tables().class(self.either).unwrap_or(self)
    }

    /// Whether a register is a member.
    pub fn contains(&self, register: &Register) -> bool {
        self.has(register, None)
    }

    /// Whether a register is made of these lanes of some member.
    pub fn contains_part(&self, register: &Register, lanes: &[u32]) -> bool {
        self.has(register, Some(lanes))
    }

    fn has(&self, register: &Register, lanes: Option<&[u32]>) -> bool {
        let all: Vec<u32> = (0..register.units.len() as u32).collect();
        let picked = lanes.unwrap_or(&all);
        // Whether the lanes of the units from `first` on, `count` in all, are the register's.
        let picks = |first: u32, count: u32| {
            let is_it = |(unit, lane): (&u32, &u32)| *lane < count && first.checked_add(*lane) == Some(*unit);
            let width = lanes.is_some() || all.len() == count as usize;
            width && all.len() == picked.len() && !all.is_empty() && register.units.iter().zip(picked).all(is_it)
        };
        self.members.iter().any(|member| match member {
            Member::Special(name) if lanes.is_none() => *name == register.name,
            Member::Special(name) => {
                let units = tables().specials.get(name).map_or(&[][..], |special| &special.units.0);
                register.file == 'x' && units.first().is_some_and(|first| picks(*first, units.len() as u32))
            }
            Member::Run { file, first, last, step, part } if *file == register.file => {
                let parts: &[(u32, u32)] = match *part {
                    "lo" => &[(0, 1)],
                    "hi" => &[(1, 1)],
                    "lo.hi" => &[(0, 1), (1, 1)],
                    "w" => &[(0, 2)],
                    _ => &[(0, self.bits / 16)],
                };
                let base = tables().file(*file).0;
                let first_lane = register.units.first().zip(picked.first());
                parts.iter().any(|(offset, count)| {
                    // Of the members only one may begin there.
                    let start = first_lane.and_then(|(unit, lane)| unit.checked_sub(base + offset + lane));
                    start.is_some_and(|start| {
                        let number = start / 2;
                        let is_member = start % 2 == 0 && (*first..=*last).contains(&number);
                        is_member && (number - first) % step == 0 && picks(base + start + offset, *count)
                    })
                })
            }
            Member::Run { .. } => false,
        })
    }
}

#[derive(Debug, Default)]
pub struct Tables {
    processors: HashMap<Text, Processor>,
    budgets: Vec<Budget>,
    files: Vec<NumberedFile>,
    specials: HashMap<Text, Special>,
    classes: HashMap<Text, RegisterClass>,
    masks: HashMap<Text, Mask>,
    hints: Vec<Hint>,
    features: HashMap<Text, Feature>,
    conventions: HashMap<Text, Convention>,
    pub arguments: HashMap<Text, Argument>,
    operands: Vec<OperandRow>,
    /// Read when they are asked for: few are.
    shapes: Vec<(Text, OnceLock<Option<Box<Opcode>>>)>,
    /// Lines sorted by name, a tab behind it, and the shape.
    opcodes: Text,
    /// Header fields by path, and the entries of the rows of each list in order.
    pub fields: BTreeMap<Text, Field>,
    pub entries: HashMap<Text, Vec<Field>>,
}

/// The tables. Where a file is not as described they are empty, so that every text is refused.
pub fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| parse(TARGET).unwrap_or_default())
}

/// The lines of a section, comments too.
fn section(text: Text, name: &str) -> Option<Text> {
    let is_first = |at: &usize| at.checked_sub(1).is_none_or(|before| text.as_bytes().get(before) == Some(&b'\n'));
    let mut heads = text.match_indices('[').map(|(at, _)| at).filter(is_first);
    let head = format!("[{name}]\n");
    let start = heads.find(|at| text.get(*at..).is_some_and(|rest| rest.starts_with(&head)))? + head.len();
    text.get(start..heads.next().unwrap_or(text.len()))
}

fn lines(text: Text, name: &str) -> Option<impl Iterator<Item = Text>> {
    Some(section(text, name)?.lines().filter(|line| !line.starts_with('#')))
}

fn rows<T: Row>(text: Text, name: &str) -> Option<Vec<T>> {
    lines(text, name)?.map(row).collect()
}

fn row<T: Row>(line: Text) -> Option<T> {
    T::read(&line.split('\t').collect::<Vec<_>>())
}

/// The rows by their first column, each once.
fn keyed<T: Row, M: Default + Extend<(Text, T)>>(text: Text, name: &str) -> Option<M> {
    let rows =
        lines(text, name)?.map(|line| Some((line.split('\t').next()?, row(line)?))).collect::<Option<Vec<_>>>()?;
    let names: BTreeSet<Text> = rows.iter().map(|(name, _)| *name).collect();
    let mut map = M::default();
    (names.len() == rows.len()).then(|| map.extend(rows))?;
    Some(map)
}

fn parse(text: Text) -> Option<Tables> {
    let lists = ["registers", "liveins", "stack", "fixedStack"];
    Some(Tables {
        processors: keyed(text, "processors")?,
        budgets: rows(text, "budgets")?,
        files: rows(text, "files")?,
        specials: keyed(text, "specials")?,
        classes: keyed(text, "classes")?,
        masks: keyed(text, "masks")?,
        hints: rows(text, "assembly")?,
        features: keyed(text, "features")?,
        conventions: keyed(text, "conventions")?,
        arguments: keyed(text, "arguments")?,
        operands: rows(text, "operands")?,
        shapes: lines(text, "shapes")?.map(|line| (line, OnceLock::new())).collect(),
        opcodes: section(text, "opcodes")?,
        fields: keyed(FIELDS, "fields")?,
        entries: lists.iter().map(|list| Some((*list, rows(FIELDS, list)?))).collect::<Option<_>>()?,
    })
}

impl Tables {
    pub fn opcode(&self, name: &str) -> Option<&Opcode> {
        let mut lines = self.opcodes;
        let shape = loop {
            let start = lines.get(..lines.len() / 2)?.rfind('\n').map_or(0, |end| end + 1);
            let line = lines.get(start..)?.lines().next()?;
            match line.split('\t').next().cmp(&Some(name)) {
                Ordering::Less => lines = lines.get(start + line.len() + 1..)?,
                Ordering::Greater => lines = lines.get(..start)?,
                Ordering::Equal => break line.strip_prefix(name)?.strip_prefix('\t')?,
            }
        };
        let (line, opcode) = self.shapes.get(canonical(shape)? as usize)?;
        opcode.get_or_init(|| row(line).map(Box::new)).as_deref()
    }

    pub fn processor(&self, name: &str) -> Option<&Processor> {
        self.processors.get(name)
    }

    pub fn budget(&self, processor: &Processor, waves: u64) -> Option<&Budget> {
        self.budgets.iter().find(|b| b.processor == processor.name && u64::from(b.waves) == waves)
    }

    /// Whether a function may say `+name` or `-name`, and registers are still counted as here.
    pub fn may_ask_for(&self, name: &str, is_on: bool, processor: &Processor) -> bool {
        let Some(feature) = self.features.get(name) else { return false };
        if is_on { &feature.on } else { &feature.off }.contains(&processor.name)
    }

    pub fn convention(&self, name: &str) -> Option<&Convention> {
        self.conventions.get(name)
    }

    pub fn class(&self, name: &str) -> Option<&RegisterClass> {
        self.classes.get(name)
    }

    /// The units of all registers outside the numbered files that have a mark.
    pub fn marked(&self, mark: &'static str) -> impl Iterator<Item = u32> + '_ {
        let marked = self.specials.values().filter(move |special| special.marks.contains(&mark));
        marked.flat_map(|special| special.units.0.iter().copied())
    }

    /// First unit of the file with this letter, and the one behind its last.
    pub fn file(&self, letter: char) -> (u32, u32) {
        self.files.iter().find(|f| f.letter == letter).map_or((0, 0), |f| (f.base, f.base + 2 * f.size))
    }

    /// A register by its name in MIR, without `$`.
    pub fn register(&self, name: &str) -> Option<&'static Register> {
        static KNOWN: Mutex<BTreeMap<String, &'static Register>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(register) = known.get(name) {
            return Some(register);
        }
        // There are no more than the tables have: they live as long as the program.
        let register: &'static Register = Box::leak(Box::new(self.made(name)?));
        known.insert(name.to_string(), register);
        Some(register)
    }

    pub fn classes(&self) -> impl Iterator<Item = &RegisterClass> {
        self.classes.values()
    }

    /// A register by its units.
    pub fn named(&self, units: &[u32]) -> Option<&'static Register> {
        let first = *units.first()?;
        let numbered = self.files.iter().find(|file| (file.base..file.base + 2 * file.size).contains(&first));
        let name = match numbered {
            Some(file) => {
                let number = (first - file.base) / 2;
                let half = if first % 2 == 0 { "_lo16" } else { "_hi16" };
                let whole =
                    |count: u32| (number..number + count).map(|n| format!("{}{n}", file.name)).collect::<Vec<_>>();
                if units.len() == 1 {
                    format!("{}{half}", whole(1).join("_"))
                } else {
                    whole(units.len() as u32 / 2).join("_")
                }
            }
            None => {
                let mut specials = self.specials.values();
                specials.find(|special| special.units.0 == units && !special.marks.contains(&"wide"))?.name.to_string()
            }
        };
        self.register(&name).filter(|register| register.units == units)
    }

    fn made(&self, name: &str) -> Option<Register> {
        if let Some(special) = self.specials.get(name) {
            let (units, marks) = (special.units.0.clone(), special.marks.clone());
            return Some(Register { name: name.to_string(), file: 'x', units, marks });
        }
        let whole = name.strip_suffix("_lo16").or(name.strip_suffix("_hi16"));
        let parts: Vec<&str> = whole.unwrap_or(name).split('_').collect();
        let file = self.files.iter().find(|file| name.starts_with(file.name))?;
        let number = |part: &&str| canonical(part.strip_prefix(file.name)?).filter(|number| *number < file.size);
        let numbers: Vec<u32> = parts.iter().map(number).collect::<Option<_>>()?;
        let (first, width) = (*numbers.first()?, numbers.len() as u32);
        let is_form = |form: &Form| form.0 == width && form.1 > 0 && first % form.1 == 0;
        if !numbers.iter().copied().eq(first..first + width) || !file.forms.iter().any(is_form) {
            return None;
        }
        let start = file.base + 2 * first;
        let units = match whole {
            Some(_) if width > 1 => return None,
            Some(_) => vec![start + u32::from(name.ends_with("_hi16"))],
            None => (start..start + 2 * width).collect(),
        };
        Some(Register { name: name.to_string(), file: file.letter, units, marks: file.marks.clone() })
    }

    /// Lanes of 16 bits of a subregister index, ascending.
    pub fn lanes(&self, index: &str) -> Option<Vec<u32>> {
        let mut lanes: Vec<u32> = Vec::new();
        let mut parts = index.split('_').peekable();
        while let Some(part) = parts.next() {
            let (number, half) = match part.strip_prefix("sub") {
                Some(digits) => (canonical(digits)?, parts.next_if(|next| matches!(*next, "lo16" | "hi16"))),
                None => (0, Some(part)),
            };
            let low = number.checked_mul(2).filter(|low| *low < 64)?;
            match half {
                None => lanes.extend([low, low + 1]),
                Some("lo16") => lanes.push(low),
                Some("hi16") => lanes.push(low + 1),
                Some(_) => return None,
            }
        }
        lanes.is_sorted_by(|a, b| a < b).then_some(lanes)
    }

    /// Whether a text of inline assembly hints at other threads than the active ones.
    pub fn hints_at_threads(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        self.hints.iter().any(|hint| {
            let begins =
                |at: usize| !hint.except.is_empty() && text.get(at..).is_some_and(|t| t.starts_with(hint.except));
            text.match_indices(hint.word).any(|(at, _)| !begins(at))
        })
    }

    /// Units that a register mask preserves; None for a mask that is not known.
    pub fn mask(&self, text: &str) -> Option<BTreeSet<u32>> {
        let Some(listed) = text.strip_prefix("CustomRegMask(") else {
            return self.masks.get(text).map(|mask| mask.units.0.iter().copied().collect());
        };
        let names = listed.strip_suffix(')')?.split(',').filter(|name| !name.is_empty());
        let all = names.map(|name| self.register(name.strip_prefix('$')?)).collect::<Option<Vec<_>>>()?;
        // A tuple does not speak for its parts.
        Some(all.into_iter().filter(|r| r.units.len() <= 2).flat_map(|r| &r.units).copied().collect())
    }
}

/// Decimal digits without a leading zero.
pub fn canonical(digits: &str) -> Option<u32> {
    let is_canonical = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| is_canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_as_described() {
        assert!(parse(TARGET).is_some());
        assert!(tables().opcode("V_ADD_U32_e64").is_some_and(|opcode| opcode.has("vector")));
        assert!(tables().opcode("NO_SUCH").is_none());
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for (from, to) in [("gfx942\t0", "gfx942\t00"), ("[masks]", "[mask]"), ("vcc_lo\t", "vcc_lo\t\t")] {
            assert!(parse(String::leak(TARGET.replacen(from, to, 1))).is_none(), "{from}");
        }
    }

    #[test]
    fn registers_have_units() {
        let units = |name: &str| tables().register(name).map(|register| register.units.clone());
        assert_eq!(units("vgpr4_vgpr5"), Some(vec![8, 9, 10, 11]));
        assert_eq!(units("agpr1_hi16"), Some(vec![4099]));
        assert_eq!(units("sgpr_null"), Some(vec![]));
        for name in ["vgpr4_vgpr6", "vgpr04", "sgpr1_sgpr2", "vgpr1024", "sgpr106", "vgpr0_sgpr1", "", "vgpr", "_"] {
            assert_eq!(units(name), None, "{name}");
        }
    }

    #[test]
    fn classes_have_members_and_parts() {
        let part = |class: &str, name: &str, index: &str| {
            let class = tables().class(class).unwrap();
            class.contains_part(tables().register(name).unwrap(), &tables().lanes(index).unwrap())
        };
        assert!(part("vreg_64_align2", "vgpr4", "sub0") && !part("vreg_64_align2", "vgpr5", "sub0"));
        assert!(part("vreg_64_align2", "vgpr5_hi16", "sub1_hi16") && !part("vreg_64_align2", "agpr5", "sub1"));
        assert!(part("sreg_64", "vcc_hi", "sub1") && !part("sreg_64", "vcc_hi", "sub0"));
        let has = |class: &str, name: &str| tables().class(class).unwrap().contains(tables().register(name).unwrap());
        assert!(has("sreg_64", "vcc") && has("sreg_64", "sgpr_null64") && !has("sreg_64", "vcc_lo"));
        assert!(has("vgpr_16", "vgpr3_lo16") && !has("vgpr_16", "vgpr3") && has("vgpr_32", "vgpr3"));
        assert_eq!(tables().lanes("sub1_hi16_sub2"), Some(vec![3, 4, 5]));
        for index in ["", "sub", "sub2_sub1", "sub1_lo8", "sub99", "hi16_lo16", "sub01"] {
            assert_eq!(tables().lanes(index), None, "{index}");
        }
    }
}
