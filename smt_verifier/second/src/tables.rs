//! What LLVM's tables say of the target (spec 2.2): `smt_verifier/checker/data/target.txt`, which its README describes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;

const TEXT: &str = include_str!("../../checker/data/target.txt");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processor {
    pub name: &'static str,
    /// Which of an operand row's classes hold.
    pub mode: usize,
    pub wave_size: u32,
    pub major: u32,
    pub unified_vgpr: bool,
    pub has_agprs: bool,
    pub addressable_vgprs: u32,
    pub addressable_agprs: u32,
    pub max_waves: u32,
    pub simds: u32,
    pub lds_bytes: u32,
    pub max_barriers: u32,
    /// None where there is no choice.
    pub cu_mode: Option<bool>,
    pub architected_flat_scratch: bool,
    pub xnack: bool,
}

/// Of the registers of a wave where so many share a SIMD: most SGPRs, most that can be named, fewest; most vectors,
/// fewest.
pub type Budget = [u32; 5];

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Register {
    pub name: String,
    /// `v`, `a`, `s`, `t`, or `x` for one that is in no numbered file.
    pub file: char,
    /// 16 bits each, lowest first. Empty without storage.
    pub units: Vec<u32>,
    pub marks: Vec<&'static str>,
}

impl Register {
    pub fn is_marked(&self, mark: &str) -> bool {
        self.marks.contains(&mark)
    }
}

/// Registers of a class that follow one another: of a file, each `step`th from `first` to `last`.
#[derive(Debug)]
struct Run {
    file: char,
    first: u32,
    last: u32,
    step: u32,
    /// Which units of a first register are members in a class of 16 bits: offset and how many.
    parts: Vec<(u32, u32)>,
}

#[derive(Debug)]
pub struct RegisterClass {
    pub name: &'static str,
    pub bits: u32,
    /// Its registers hold one value a thread.
    pub is_vector: bool,
    /// The class with VGPRs and AGPRs of the same form, or its own name.
    pub either: &'static str,
    runs: Vec<Run>,
    specials: Vec<&'static str>,
}

#[derive(Debug)]
pub struct OperandRow {
    pub kind: &'static str,
    pub tied_to: Option<usize>,
    pub early_clobber: bool,
    classes: Vec<&'static str>,
}

impl OperandRow {
    /// The class of a processor's mode; empty where none is prescribed, `-` where there is no such operand.
    pub fn class(&self, mode: usize) -> &'static str {
        self.classes.get(mode).or(self.classes.first()).copied().unwrap_or("")
    }
}

#[derive(Debug)]
pub struct Opcode {
    pub definitions: usize,
    /// Explicit operands, definitions first.
    pub operands: Vec<&'static OperandRow>,
    pub implicit_uses: Vec<&'static str>,
    pub implicit_definitions: Vec<&'static str>,
    pub traits: Vec<&'static str>,
    /// How many explicit operands a text may have.
    pub counts: Vec<usize>,
    /// Numbers of operands of which LLVM 24's form is not described.
    pub not_described: Vec<usize>,
}

impl Opcode {
    pub fn has(&self, word: &str) -> bool {
        self.traits.contains(&word)
    }

    /// What stands behind `=` of a trait, or `""`.
    pub fn value(&self, word: &str) -> &'static str {
        self.traits.iter().find_map(|t| t.strip_prefix(word)?.strip_prefix('=')).unwrap_or("")
    }

    /// The numbers in such a value.
    pub fn numbers(&self, word: &str) -> Vec<usize> {
        self.value(word).split(',').filter_map(|number| number.parse().ok()).collect()
    }

    /// The table's row of an explicit operand.
    pub fn row(&self, number: usize) -> Option<&'static OperandRow> {
        self.operands.get(number).copied()
    }
}

#[derive(Debug)]
struct NumberedFile {
    letter: char,
    base: u32,
    size: u32,
    /// Width in registers, and the multiple that the first one is.
    forms: Vec<(u32, u32)>,
    marks: Vec<&'static str>,
}

/// A calling convention.
#[derive(Debug)]
pub struct Convention {
    /// Masks of the registers that a function leaves as it found them, without AGPRs and with them; may be empty.
    pub saved: [&'static str; 2],
    /// A work-group has the size of a wave unless the function says otherwise.
    pub is_shader: bool,
}

#[derive(Debug, Default)]
pub struct Tables {
    processors: BTreeMap<&'static str, Processor>,
    budgets: BTreeMap<(&'static str, u32), Budget>,
    files: BTreeMap<&'static str, NumberedFile>,
    specials: BTreeMap<&'static str, Register>,
    classes: HashMap<&'static str, RegisterClass>,
    masks: BTreeMap<&'static str, BTreeSet<u32>>,
    /// Words of inline assembly that hint at other threads, and what they must not begin.
    assembly: Vec<(&'static str, &'static str)>,
    /// Processors for which a function may ask for a feature, and those for which it may ask to do without.
    features: BTreeMap<&'static str, [Vec<&'static str>; 2]>,
    conventions: BTreeMap<&'static str, Convention>,
    /// Arguments in a header's `argumentInfo`, each with the SGPRs it takes.
    pub arguments: BTreeMap<&'static str, u32>,
    shapes: Vec<Opcode>,
    opcodes: HashMap<&'static str, usize>,
}

/// The tables. Where the file is not as described they are empty, so that every text is refused.
pub fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| parse(TEXT).unwrap_or_default())
}

impl Tables {
    pub fn opcode(&self, name: &str) -> Option<&Opcode> {
        self.shapes.get(*self.opcodes.get(name)?)
    }

    pub fn processor(&self, name: &str) -> Option<&Processor> {
        self.processors.get(name)
    }

    pub fn budget(&self, processor: &Processor, waves: u32) -> Option<Budget> {
        self.budgets.get(&(processor.name, waves)).copied()
    }

    /// Whether a function may say `+name` or `-name`, and registers are still counted as here.
    pub fn may_ask_for(&self, name: &str, is_on: bool, processor: &Processor) -> bool {
        self.features
            .get(name)
            .is_some_and(|of| of.get(usize::from(!is_on)).is_some_and(|p| p.contains(&processor.name)))
    }

    pub fn convention(&self, name: &str) -> Option<&Convention> {
        self.conventions.get(name)
    }

    pub fn register_class(&self, name: &str) -> Option<&RegisterClass> {
        self.classes.get(name)
    }

    pub fn either_file(&self, class: &RegisterClass) -> Option<&RegisterClass> {
        self.classes.get(class.either)
    }

    /// All registers outside the numbered files.
    pub fn special_registers(&self) -> impl Iterator<Item = &Register> {
        self.specials.values()
    }

    /// First unit and number of registers of the file with this letter.
    pub fn file(&self, letter: char) -> Option<(u32, u32)> {
        self.files.values().find(|file| file.letter == letter).map(|file| (file.base, file.size))
    }

    /// A register by its name in MIR, without `$`.
    pub fn register(&self, name: &str) -> Option<Register> {
        if let Some(register) = self.specials.get(name) {
            return Some(register.clone());
        }
        let whole = name.strip_suffix("_lo16").or(name.strip_suffix("_hi16"));
        let mut numbers: Vec<u32> = Vec::new();
        let mut found: Option<(&'static str, &NumberedFile)> = None;
        for part in whole.unwrap_or(name).split('_') {
            let (prefix, file) = self.files.iter().find(|(prefix, _)| part.starts_with(**prefix))?;
            let digits = part.strip_prefix(prefix)?;
            let number = canonical(digits)?;
            let is_next = numbers.last().is_none_or(|last| last.checked_add(1) == Some(number));
            if !is_next || number >= file.size || found.is_some_and(|(other, _)| other != *prefix) {
                return None;
            }
            numbers.push(number);
            found = Some((prefix, file));
        }
        let (file, first) = (found?.1, *numbers.first()?);
        let width = u32::try_from(numbers.len()).ok()?;
        let start = file.base.checked_add(first.checked_mul(2)?)?;
        let units = match whole {
            Some(_) if width > 1 => return None,
            Some(_) => vec![start + u32::from(name.ends_with("_hi16"))],
            None => (start..start.checked_add(2 * width)?).collect(),
        };
        file.forms.iter().find(|(w, align)| *w == width && first % align == 0)?;
        Some(Register { name: name.to_string(), file: file.letter, units, marks: file.marks.clone() })
    }

    /// Lanes of 16 bits of a subregister index, ascending; all `bits` for an empty one.
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

    /// Whether a register is a member of the class.
    pub fn contains(&self, class: &RegisterClass, register: &Register) -> bool {
        if class.specials.contains(&register.name.as_str()) {
            return true;
        }
        let width = register.units.len() as u32;
        let fits = width == class.bits / 16 || class.runs.iter().any(|run| run.parts.iter().any(|p| p.1 == width));
        register.file != 'x' && fits && self.contains_part(class, register, &(0..width).collect::<Vec<_>>())
    }

    /// Whether a register is made of these lanes of some member of the class.
    pub fn contains_part(&self, class: &RegisterClass, register: &Register, lanes: &[u32]) -> bool {
        let (Some(unit), Some(lane)) = (register.units.first(), lanes.first()) else { return false };
        let is_part_of = |whole: &[u32]| {
            register.units.len() == lanes.len()
                && register.units.iter().zip(lanes).all(|(unit, lane)| whole.get(*lane as usize) == Some(unit))
        };
        let special = |name: &&str| self.specials.get(*name).is_some_and(|member| is_part_of(&member.units));
        if register.file == 'x' {
            return class.specials.iter().any(special);
        }
        let Some((base, _)) = self.file(register.file) else { return false };
        class.runs.iter().filter(|run| run.file == register.file).any(|run| {
            run.parts.iter().any(|(offset, count)| {
                // The member whose lane `lane` is `unit`.
                let Some(start) = unit.checked_sub(*lane).and_then(|s| s.checked_sub(base + offset)) else {
                    return false;
                };
                let number = start / 2;
                let is_member =
                    start % 2 == 0 && number >= run.first && number <= run.last && (number - run.first) % run.step == 0;
                let first = base + offset + start;
                is_member && is_part_of(&(first..first + count).collect::<Vec<_>>())
            })
        })
    }

    /// Whether a text of inline assembly hints at other threads than the active ones.
    pub fn hints_at_threads(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        self.assembly.iter().any(|(word, except)| {
            let is_hint = |(at, _): (usize, &str)| {
                except.is_empty() || !text.get(at..).is_some_and(|rest| rest.starts_with(except))
            };
            text.match_indices(word).any(is_hint)
        })
    }

    /// Units that a register mask preserves; None for a mask that is not known.
    pub fn mask(&self, text: &str) -> Option<BTreeSet<u32>> {
        let Some(listed) = text.strip_prefix("CustomRegMask(") else { return self.masks.get(text).cloned() };
        let mut units = BTreeSet::new();
        for name in listed.strip_suffix(')')?.split(',').filter(|name| !name.is_empty()) {
            let register = self.register(name.strip_prefix('$')?)?;
            // A tuple does not speak for its parts.
            if register.units.len() <= 2 {
                units.extend(register.units);
            }
        }
        Some(units)
    }
}

/// Decimal digits without a leading zero.
pub fn canonical(digits: &str) -> Option<u32> {
    let is_canonical = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| is_canonical)
}

// The reader of the file.

type Columns = [&'static str];

fn parse(text: &'static str) -> Option<Tables> {
    let mut tables = Tables::default();
    let mut operands: Vec<&'static OperandRow> = Vec::new();
    let mut section = "";
    for line in text.strip_suffix('\n')?.split('\n').filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.strip_suffix(']')?;
            continue;
        }
        let row: Vec<&'static str> = line.split('\t').collect();
        match section {
            "processors" => tables.add_processor(&row)?,
            "budgets" => tables.add_budget(&row)?,
            "files" => tables.add_file(&row)?,
            "specials" => tables.add_special(&row)?,
            "classes" => tables.add_class(&row)?,
            "masks" => tables.add_mask(&row)?,
            "assembly" => {
                let [word, except] = *<&[_; 2]>::try_from(row.as_slice()).ok()?;
                tables.assembly.push((word, except));
            }
            "features" => {
                let [name, on, off] = *<&[_; 3]>::try_from(row.as_slice()).ok()?;
                is_new(tables.features.insert(name, [words(on), words(off)]))?;
            }
            "conventions" => {
                let [name, saved, with_agprs, shader] = *<&[_; 4]>::try_from(row.as_slice()).ok()?;
                let row = Convention { saved: [saved, with_agprs], is_shader: truth(shader)? };
                is_new(tables.conventions.insert(name, row))?;
            }
            "arguments" => {
                let [name, sgprs] = *<&[_; 2]>::try_from(row.as_slice()).ok()?;
                is_new(tables.arguments.insert(name, canonical(sgprs)?))?;
            }
            // The rows live as long as the program: there is one table.
            "operands" => operands.push(Box::leak(Box::new(operand_row(&row)?))),
            "shapes" => tables.shapes.push(shape(&row, &operands)?),
            "opcodes" => {
                let [name, shape] = *<&[_; 2]>::try_from(row.as_slice()).ok()?;
                let shape = number(shape)?;
                tables.shapes.get(shape)?;
                is_new(tables.opcodes.insert(name, shape))?;
            }
            _ => return None,
        }
    }
    (!tables.opcodes.is_empty()).then_some(tables)
}

fn is_new<T>(old: Option<T>) -> Option<()> {
    old.is_none().then_some(())
}

fn number(text: &str) -> Option<usize> {
    canonical(text).map(|number| number as usize)
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn words(text: &'static str) -> Vec<&'static str> {
    text.split(' ').filter(|word| !word.is_empty()).collect()
}

fn range(text: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let (first, last) = text.split_once('-')?;
    Some(canonical(first)?..=canonical(last)?)
}

fn letter(text: &str) -> Option<char> {
    let mut letters = text.chars();
    letters.next().filter(|_| letters.next().is_none())
}

impl Tables {
    fn add_processor(&mut self, row: &Columns) -> Option<()> {
        let (name, rest) = row.split_first()?;
        let numbers = rest.iter().map(|text| if *text == "-" { Some(2) } else { canonical(text) });
        let numbers = numbers.collect::<Option<Vec<u32>>>()?;
        let [mode, wave_size, major, unified, agprs, _, v, a, _, max_waves, simds, lds_bytes, max_barriers, cu, flat, xnack] =
            *<&[u32; 16]>::try_from(numbers.as_slice()).ok()?;
        let processor = Processor {
            name,
            mode: mode as usize,
            wave_size,
            major,
            unified_vgpr: unified == 1,
            has_agprs: agprs == 1,
            addressable_vgprs: v,
            addressable_agprs: a,
            max_waves,
            simds,
            lds_bytes,
            max_barriers,
            cu_mode: (cu != 2).then_some(cu == 1),
            architected_flat_scratch: flat == 1,
            xnack: xnack == 1,
        };
        is_new(self.processors.insert(name, processor))
    }

    fn add_budget(&mut self, row: &Columns) -> Option<()> {
        let (name, numbers) = row.split_first()?;
        let numbers = numbers.iter().map(|text| canonical(text)).collect::<Option<Vec<u32>>>()?;
        let (waves, budget) = numbers.split_first()?;
        is_new(self.budgets.insert((name, *waves), budget.try_into().ok()?))
    }

    fn add_file(&mut self, row: &Columns) -> Option<()> {
        let [file, name, base, size, forms, marks] = *<&[&'static str; 6]>::try_from(row).ok()?;
        let form = |text: &str| {
            let (width, align) = text.split_once(':')?;
            Some((canonical(width)?, canonical(align).filter(|align| *align > 0)?))
        };
        let forms = words(forms).into_iter().map(form).collect::<Option<Vec<_>>>()?;
        let (base, size) = (canonical(base)?, canonical(size)?);
        is_new(self.files.insert(name, NumberedFile { letter: letter(file)?, base, size, forms, marks: words(marks) }))
    }

    fn add_special(&mut self, row: &Columns) -> Option<()> {
        let [name, units, marks] = *<&[&'static str; 3]>::try_from(row).ok()?;
        let units = if units.is_empty() { Vec::new() } else { range(units)?.collect() };
        let register = Register { name: name.to_string(), file: 'x', units, marks: words(marks) };
        is_new(self.specials.insert(name, register))
    }

    fn add_class(&mut self, row: &Columns) -> Option<()> {
        let [name, bits, vector, either, members] = *<&[&'static str; 5]>::try_from(row).ok()?;
        let bits = canonical(bits)?;
        let mut class =
            RegisterClass { name, bits, is_vector: truth(vector)?, either, runs: Vec::new(), specials: Vec::new() };
        for member in words(members) {
            if let Some(special) = member.strip_prefix('=') {
                class.specials.push(special);
                continue;
            }
            let (run, part) = member.split_once('+')?;
            let (step, part) = part.split_once('.').unwrap_or((part, ""));
            let (first, last) = run.get(1..)?.split_once("..")?;
            let parts = match part {
                "" => vec![(0, bits / 16)],
                "lo" => vec![(0, 1)],
                "hi" => vec![(1, 1)],
                "lo.hi" => vec![(0, 1), (1, 1)],
                "w" => vec![(0, 2)],
                _ => return None,
            };
            let step = canonical(step).filter(|step| *step > 0)?;
            let file = letter(run.get(..1)?)?;
            class.runs.push(Run { file, first: canonical(first)?, last: canonical(last)?, step, parts });
        }
        is_new(self.classes.insert(name, class))
    }

    fn add_mask(&mut self, row: &Columns) -> Option<()> {
        let [name, ranges] = *<&[&'static str; 2]>::try_from(row).ok()?;
        let mut units = BTreeSet::new();
        for text in ranges.split(',').filter(|text| !text.is_empty()) {
            units.extend(range(text)?);
        }
        is_new(self.masks.insert(name, units))
    }
}

fn operand_row(row: &Columns) -> Option<OperandRow> {
    let [kind, tied_to, early_clobber, classes] = *<&[&'static str; 4]>::try_from(row).ok()?;
    let tied_to = if tied_to == "-1" { None } else { Some(number(tied_to)?) };
    Some(OperandRow { kind, tied_to, early_clobber: truth(early_clobber)?, classes: classes.split('/').collect() })
}

fn shape(row: &Columns, operands: &[&'static OperandRow]) -> Option<Opcode> {
    let [definitions, rows, uses, implicit_definitions, traits, counts, not_described] =
        *<&[&'static str; 7]>::try_from(row).ok()?;
    let row_of = |text: &str| operands.get(number(text)?).copied();
    Some(Opcode {
        definitions: number(definitions)?,
        operands: words(rows).into_iter().map(row_of).collect::<Option<_>>()?,
        implicit_uses: words(uses),
        implicit_definitions: words(implicit_definitions),
        traits: words(traits),
        counts: words(counts).into_iter().map(number).collect::<Option<_>>()?,
        not_described: words(not_described).into_iter().map(number).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_as_described() {
        assert!(parse(TEXT).is_some());
        assert!(tables().opcode("V_ADD_U32_e64").is_some_and(|opcode| opcode.has("vector")));
        assert!(tables().opcode("NO_SUCH").is_none());
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for (from, to) in [("gfx942\t0", "gfx942\t00"), ("[masks]", "[mask]"), ("vcc_lo\t", "vcc_lo\t\t")] {
            assert!(parse(String::leak(TEXT.replacen(from, to, 1))).is_none(), "{from}");
        }
    }

    #[test]
    fn registers_have_units() {
        let units = |name: &str| tables().register(name).map(|register| register.units);
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
            let class = tables().register_class(class).unwrap();
            tables().contains_part(class, &tables().register(name).unwrap(), &tables().lanes(index).unwrap())
        };
        assert!(part("vreg_64_align2", "vgpr4", "sub0") && !part("vreg_64_align2", "vgpr5", "sub0"));
        assert!(part("vreg_64_align2", "vgpr5_hi16", "sub1_hi16") && !part("vreg_64_align2", "agpr5", "sub1"));
        assert!(part("sreg_64", "vcc_hi", "sub1") && !part("sreg_64", "vcc_hi", "sub0"));
        let has = |class: &str, name: &str| {
            tables().contains(tables().register_class(class).unwrap(), &tables().register(name).unwrap())
        };
        assert!(has("sreg_64", "vcc") && has("sreg_64", "sgpr_null64") && !has("sreg_64", "vcc_lo"));
        assert!(has("vgpr_16", "vgpr3_lo16") && !has("vgpr_16", "vgpr3") && has("vgpr_32", "vgpr3"));
        assert_eq!(tables().lanes("sub1_hi16_sub2"), Some(vec![3, 4, 5]));
        for index in ["", "sub", "sub2_sub1", "sub1_lo8", "sub99", "hi16_lo16", "sub01"] {
            assert_eq!(tables().lanes(index), None, "{index}");
        }
    }
}
