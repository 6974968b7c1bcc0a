//! Reads a text of machine IR as LLVM's MIRPrinter writes it (spec 2.1). What is not of the grammar is refused.

use std::collections::{BTreeMap, BTreeSet};

use crate::grammar::{is, parse, Tree};
use crate::model::{
    ensure, Block, Done, File, Function, Instruction, Kind, MemoryOperand, Operand, Refused, Row, Virtual, DEAD,
    DEBUG_USE, DEF, EARLY_CLOBBER, IMPLICIT, INTERNAL, KILLED, RENAMABLE, UNDEF,
};
use crate::tables::{tables, Register};

type Numbered<'a> = (usize, &'a str);

/// Reads a whole file.
///
/// # Errors
/// `text`: something stands in it that no rule reads. `well-formed`: LLVM has no such opcode, register or class.
pub fn read(text: &str) -> Done<File> {
    // Both end a line for LLVM.
    let text = &text.replace("\r\n", "\n");
    let control = text.chars().find(|c| c.is_control() && *c != '\n');
    ensure!(control.is_none(), "text", "", "a control character {:#x}", control.unwrap_or_default() as u32);
    let lines: Vec<Numbered> = text.split('\n').enumerate().map(|(k, line)| (k + 1, line)).collect();
    let mut file = File { module: String::new(), functions: Vec::new() };
    let mut rest = lines.iter().copied();
    let mut is_in_front = true;
    while let Some((number, line)) = rest.next() {
        // IREE writes comments of the IR's form in front of the module.
        if line.starts_with('#') || (is_in_front && line.starts_with(';')) || line.trim_matches(' ').is_empty() {
            continue;
        }
        let part: Vec<Numbered> = rest.by_ref().take_while(|(_, line)| *line != "...").collect();
        ensure!(lines.get(number + part.len()).is_some(), "text", number, "a part has no end `...`");
        if line == "--- |" && is_in_front {
            for (number, line) in part.iter().filter(|(_, line)| !line.is_empty()) {
                let text = line.strip_prefix("  ");
                ensure!(text.is_some(), "text", *number, "a line of the IR module is not indented");
                file.module += text.unwrap_or("");
                file.module.push('\n');
            }
        } else {
            ensure!(line == "---", "text", number, "expected `---`");
            let function = read_function(&part, number)?;
            let is_new = file.functions.iter().all(|other| other.name != function.name);
            ensure!(is_new, "text", number, "two functions have one name");
            file.functions.push(function);
        }
        is_in_front = false;
    }
    ensure!(!file.functions.is_empty(), "text", "", "there is no function");
    Ok(file)
}

fn read_function(lines: &[Numbered], line: usize) -> Done<Function> {
    let is_body = |line: &str| line.strip_prefix("body:").is_some_and(|rest| rest.trim_matches(' ') == "|");
    let body = lines.iter().position(|(_, line)| is_body(line));
    let body = body.ok_or_else(|| Refused::new("text", "a function has no body", line))?;
    let is_comment = |line: &str| line.trim_start_matches(' ').starts_with('#') || line.trim_matches(' ').is_empty();
    let head: Vec<Numbered> = lines.iter().take(body).copied().filter(|(_, line)| !is_comment(line)).collect();
    let mut function = Function { line, ..Function::default() };
    read_header(&mut function, &head)?;
    ensure!(!function.name.is_empty(), "text", line, "a function has no name");
    read_body(&mut function, lines.get(body + 1..).unwrap_or(&[]))?;
    Ok(function)
}

// The header: `fields.txt` says which fields there are, and the grammar what each may say.

/// A value without its quotes.
fn plain(text: &str) -> String {
    match text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        Some(text) => text.replace("''", "'"),
        None => text.trim_matches('"').to_string(),
    }
}

fn read_header(function: &mut Function, lines: &[Numbered]) -> Done {
    let (mut path, mut seen, mut at): (Vec<&str>, BTreeSet<String>, usize) = (Vec::new(), BTreeSet::new(), 0);
    let more = |at: &mut usize, mut text: String| {
        // LLVM breaks long lines and indents the rest deeper than anything else.
        while let Some((_, line)) = lines.get(*at).filter(|(_, line)| line.starts_with("     ")) {
            text = format!("{} {}", text.trim_end_matches(' '), line.trim_start_matches(' '));
            *at += 1;
        }
        text
    };
    while let Some((number, line)) = lines.get(at).copied() {
        at += 1;
        let text = line.trim_start_matches(' ');
        let (indent, key) = (line.len() - text.len(), text.split(':').next().unwrap_or(""));
        ensure!(indent % 2 == 0 && indent / 2 <= path.len(), "text", number, "a line that is indented too far");
        path.truncate(indent / 2);
        path.push(key);
        let name = path.join(".");
        let field = tables().fields.get(name.as_str());
        let value = text.get(key.len()..).and_then(|rest| rest.strip_prefix(':'));
        let (Some(field), Some(value)) = (field, value.filter(|v| v.is_empty() || v.starts_with(' '))) else {
            return Err(Refused::new("text", format!("the field {name} is not known"), number));
        };
        ensure!(seen.insert(name.clone()), "text", number, "the field {name} stands twice");
        let dash = format!("{}- ", " ".repeat(indent + 2));
        let value = value.trim_matches(' ');
        // A map, or a list, has its own lines; LLVM reads an empty list where there are none.
        let is_above = value.is_empty() && (field.kind == "list" || field.kind == "map");
        let value = if is_above { String::new() } else { more(&mut at, value.to_string()) };
        let kind = format!("is-{}", field.kind);
        ensure!(is_above || is(&kind, &value), "text", number, "`{value}` is no value of the field {name}");
        let mut items = Vec::new();
        while let Some((number, line)) = lines.get(at).filter(|(_, line)| is_above && line.starts_with(&dash)) {
            at += 1;
            items.push((*number, more(&mut at, line.trim_matches(' ').to_string())));
        }
        if let Some(entries) = tables().entries.get(name.as_str()) {
            for (number, item) in items {
                add_row(function, field.name, read_row(&item, entries, number)?, number)?;
            }
        } else if name == "name" {
            function.name = plain(&value);
        } else if field.kind != "map" {
            let listed = items.iter().all(|(_, item)| is("is-item", item));
            ensure!(listed, "text", number, "an item of {name} that is none");
            let items: Vec<String> = items.iter().map(|(_, item)| plain(item.trim_start_matches("- "))).collect();
            let value = if field.kind == "list" { items.join(", ") } else { plain(&value) };
            function.fields.insert(name, value);
        }
        if field.kind != "map" {
            path.pop();
        }
    }
    Ok(())
}

/// Entries of a row by key, in LLVM's order.
fn read_row(text: &str, entries: &[crate::tables::Field], line: usize) -> Done<Row> {
    let tree = parse("Row", text, line)?;
    let (mut row, mut rest) = (Row::new(), entries.iter());
    for entry in tree.all("Item") {
        let (key, value) = (entry.word("Key"), entry.word("Value").trim_end_matches(' '));
        let field = rest.find(|field| field.name == key).filter(|field| is(&format!("is-{}", field.kind), value));
        ensure!(field.is_some(), "text", line, "the entry {key} of a row is not known, or not there, or not so");
        row.insert(key.to_string(), plain(value));
    }
    let is_there = |field: &crate::tables::Field| field.default != "required" || row.contains_key(field.name);
    ensure!(entries.iter().all(is_there), "text", line, "a row lacks an entry");
    Ok(row)
}

fn add_row(function: &mut Function, list: &str, mut row: Row, line: usize) -> Done {
    let wrong = |what: &str| Refused::new("text", format!("a row of {list} {what}"), line);
    if list == "liveins" {
        let vreg = row.get("virtual-reg").and_then(|text| text.strip_prefix('%')?.parse().ok());
        let register = row.get("reg").map_or("", |register| register.trim_start_matches('$'));
        function.liveins.push((register.to_string(), vreg));
        return Ok(());
    }
    let number = row.remove("id").and_then(|id| id.parse().ok()).ok_or_else(|| wrong("has too great a number"))?;
    if list == "registers" {
        let virtual_register = row_of(row.get("class").map_or("", String::as_str), line)?;
        let whole_wave = row.get("flags").is_some_and(|flags| flags.contains("WWM_REG"));
        let old = function.registers.insert(number, Virtual { whole_wave, ..virtual_register });
        return if old.is_some() { Err(wrong("stands twice")) } else { Ok(()) };
    }
    let objects = if list == "stack" { &mut function.stack } else { &mut function.fixed_stack };
    let is_next = objects.last_key_value().is_none_or(|(last, _)| *last < number);
    objects.insert(number, row);
    if is_next {
        Ok(())
    } else {
        Err(wrong("stands behind a later one"))
    }
}

fn row_of(class: &str, line: usize) -> Done<Virtual> {
    let class =
        tables().class(class).ok_or_else(|| Refused::new("well-formed", format!("unknown class `{class}`"), line))?;
    Ok(Virtual { class, whole_wave: false })
}

fn register(name: &str, line: usize) -> Done<&'static Register> {
    tables().register(name).ok_or_else(|| Refused::new("well-formed", format!("unknown register `{name}`"), line))
}

// The body.

/// What the operands of a function may name.
struct Names<'a> {
    /// Position and IR name of each block, by number.
    blocks: BTreeMap<u32, (usize, String)>,
    stack: &'a BTreeMap<u32, Row>,
    fixed_stack: &'a BTreeMap<u32, Row>,
}

impl Names<'_> {
    /// Position of the block, or number of the object, that `Number ("." Name)?` names.
    fn resolved(&self, tree: &Tree, line: usize) -> Done<u32> {
        let number = tree.number().and_then(|number| u32::try_from(number).ok());
        let of_row = |rows: &BTreeMap<u32, Row>| {
            let row = rows.get(&number?)?;
            Some((number?, row.get("name").cloned().unwrap_or_default()))
        };
        let found = match tree.rule {
            "Block" => number.and_then(|n| self.blocks.get(&n)).map(|(at, name)| (*at as u32, name.clone())),
            "FrameIndex" => of_row(self.stack),
            _ => of_row(self.fixed_stack),
        };
        let found = found.filter(|(_, name)| tree.child("Name").is_none_or(|own| own.text == name));
        found.map(|(number, _)| number).ok_or_else(|| Refused::new("text", format!("there is no {}", tree.text), line))
    }
}

fn read_body(function: &mut Function, lines: &[Numbered]) -> Done {
    let is_head = |line: &str| line.starts_with(' ') && line.trim_start_matches(' ').starts_with("bb.");
    let mut blocks: Vec<(Block, Vec<Numbered>)> = Vec::new();
    let mut names = Names { blocks: BTreeMap::new(), stack: &function.stack, fixed_stack: &function.fixed_stack };
    for (line, text) in lines.iter().copied().filter(|(_, text)| !is("blank", text)) {
        if !is_head(text) {
            let block = blocks.last_mut().ok_or_else(|| Refused::new("text", "expected a block", line))?;
            block.1.push((line, text));
            continue;
        }
        let head = parse("BlockHead", text, line)?;
        let number = head.number().and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX);
        let (name, attributes) = (head.word("Name").to_string(), head.word("Attributes"));
        let is_new = names.blocks.insert(number, (blocks.len(), name.clone())).is_none();
        ensure!(is_new, "text", line, "block {number} stands twice");
        let attributes = format!("{name} ({attributes})");
        blocks.push((Block { number, attributes, line, ..Block::default() }, Vec::new()));
    }
    let count = blocks.len();
    let mut registers = function.registers.clone();
    let mut read = Vec::new();
    for (position, (mut block, lines)) in blocks.into_iter().enumerate() {
        read_block(&mut block, &lines, &names, position + 1 == count)?;
        read.push(block);
    }
    // Where the header has no row, definitions make it. Printed classes agree with the rows.
    let operands =
        || read.iter().flat_map(|b| &b.instructions).flat_map(|i| i.operands.iter().map(move |o| (i.line, o)));
    for (line, operand) in operands().filter(|(_, operand)| !operand.class.is_empty()) {
        let row = row_of(&operand.class, line)?;
        let known = registers.entry(operand.vreg.unwrap_or_default()).or_insert(row);
        ensure!(known.class.name == operand.class, "text", line, "`{}` has another class", operand.text);
    }
    for (line, operand) in operands().filter(|(_, o)| o.vreg.is_some_and(|vreg| !registers.contains_key(&vreg))) {
        return Err(Refused::new("text", format!("`{}` has no class", operand.text), line));
    }
    (function.blocks, function.registers) = (read, registers);
    Ok(())
}

fn read_block(block: &mut Block, lines: &[Numbered], names: &Names, is_last: bool) -> Done {
    let (mut successors, mut has_liveins, mut in_bundle) = (None, false, false);
    let mut targets: Vec<usize> = Vec::new();
    for (line, text) in lines.iter().copied() {
        let is_first = block.instructions.is_empty() && !has_liveins;
        let word = text.trim_start_matches(' ');
        if in_bundle && is("close", text) {
            let last = block.instructions.last_mut().filter(|last| last.bundle[0]);
            last.ok_or_else(|| Refused::new("text", "a bundle is empty", line))?.bundle[2] = true;
            in_bundle = false;
        } else if is_first && successors.is_none() && word.starts_with("successors:") {
            let tree = parse("Successors", text, line)?;
            let all = tree.all("Block").map(|block| names.resolved(block, line)).collect::<Done<Vec<u32>>>()?;
            ensure!(all.iter().collect::<BTreeSet<_>>().len() == all.len(), "text", line, "a successor stands twice");
            successors = Some(all.into_iter().map(|block| block as usize).collect());
        } else if is_first && word.starts_with("liveins: ") {
            has_liveins = true;
            for livein in parse("Liveins", text, line)?.all("Livein") {
                let digits = livein.child("Hex").map(|hex| u64::from_str_radix(hex.text, 16));
                let mask =
                    digits.transpose().map_err(|_| Refused::new("text", "a mask of lanes is too large", line))?;
                // LLVM numbers the halves of a register by name: `hi16` is the lower bit.
                let halves = 0x5555_5555_5555_5555_u64;
                let mask = mask.map(|mask| (mask & halves) << 1 | (mask >> 1 & halves));
                block.liveins.push((register(livein.word("Word"), line)?, mask));
            }
        } else {
            let mut instruction = read_instruction(&parse("Instruction", text, line)?, names, line)?;
            ensure!(!(in_bundle && instruction.bundle[1]), "text", line, "a bundle in a bundle");
            instruction.bundle[0] = in_bundle;
            in_bundle |= instruction.bundle[1];
            let blocks = instruction.operands.iter().filter(|o| o.kind == Kind::Block && instruction.name != "PHI");
            targets.extend(blocks.map(|o| o.number as usize));
            if !instruction.has("debug") {
                block.instructions.push(instruction);
            }
        }
    }
    ensure!(!in_bundle, "text", block.line, "a bundle is not closed");
    block.successors = successors.unwrap_or_else(|| {
        // What MIParser takes where no line says it: the targets of branches, and the next block if none is a barrier.
        let goes_on = !is_last && !block.instructions.last().is_some_and(|last| last.has("barrier"));
        let next = names.blocks.get(&block.number).map(|(position, _)| position + 1).filter(|_| goes_on);
        let mut seen = BTreeSet::new();
        targets.into_iter().chain(next).filter(|target| seen.insert(*target)).collect()
    });
    Ok(())
}

fn read_instruction(tree: &Tree, names: &Names, line: usize) -> Done<Instruction> {
    let name = format!("{}{}", tree.word("AsmCode"), tree.word("Code"));
    let unknown = || Refused::new("well-formed", format!("unknown opcode {name}"), line);
    let opcode = tables().opcode(&name).ok_or_else(unknown)?;
    let mut flags: Vec<String> = tree.all("Flag").map(|flag| flag.text.to_string()).collect();
    let mut tail: Vec<String> = tree.all("Attribute").map(|attribute| attribute.text.to_string()).collect();
    let twice = |words: &[String]| {
        let first: BTreeSet<_> = words.iter().map(|word| word.split(' ').next()).collect();
        first.len() != words.len()
    };
    ensure!(!twice(&flags) && !twice(&tail), "text", line, "a flag or attribute stands twice");
    flags.sort();
    tail.retain(|attribute| !attribute.starts_with("debug-location "));
    let own = tree.inner.iter().filter(|tree| matches!(tree.rule, "Def" | "Operand" | "AsmString" | "AsmFlag"));
    let operands = own.map(|tree| read_operand(tree, names, line)).collect::<Done<Vec<Operand>>>()?;
    // A tie names an explicit register definition in front of it, and no two uses are tied to one (MIParser).
    let mut seen = BTreeSet::new();
    for (k, tied) in operands.iter().enumerate().filter_map(|(k, o)| Some((k, o.tied?))) {
        let is_definition = tied < k && operands.get(tied).is_some_and(Operand::is_def);
        ensure!(is_definition && seen.insert(tied), "text", line, "a tie that is none");
    }
    let memory = tree.all("Memory").map(|tree| read_memory(tree, names, line)).collect::<Done<_>>()?;
    let (definitions, opens) = (tree.all("Def").count(), tree.child("Opens").is_some());
    Ok(Instruction { name, opcode, operands, definitions, flags, memory, tail, bundle: [false, opens, false], line })
}

/// Flags by the words that say them.
const FLAGS: [(&str, u16); 10] = [
    ("implicit-def", IMPLICIT | DEF),
    ("implicit", IMPLICIT),
    ("def", DEF),
    ("internal", INTERNAL),
    ("dead", DEAD),
    ("killed", KILLED),
    ("undef", UNDEF),
    ("early-clobber", EARLY_CLOBBER),
    ("renamable", RENAMABLE),
    ("debug-use", DEBUG_USE),
];

fn read_operand(tree: &Tree, names: &Names, line: usize) -> Done<Operand> {
    let Some(own) = tree.child("Register") else { return read_other(tree, names, line) };
    let words = tree.word("Flags").split(' ');
    let mut flags =
        words.filter_map(|word| FLAGS.iter().find(|(name, _)| *name == word)).fold(0, |all, (_, flag)| all | flag);
    let number = |tree: Option<&Tree>| {
        let fits = |tree: &Tree| tree.number().and_then(|number| u32::try_from(number).ok());
        tree.map(|tree| fits(tree).ok_or_else(|| Refused::new("text", "too great a number", line))).transpose()
    };
    ensure!(tree.rule != "Def" || flags & (DEF | IMPLICIT) == 0, "text", line, "an implicit operand on the left");
    flags |= if tree.rule == "Def" { DEF } else { 0 };
    let (vreg, tied) = (number(own.child("Number"))?, number(tree.child("Tied"))?);
    let physical = own.child("Word").map(|word| register(word.text, line)).transpose()?;
    let is_def = flags & DEF != 0;
    // MachineOperand::CreateReg asserts these.
    let wrong = if is_def { KILLED | DEBUG_USE } else { DEAD | EARLY_CLOBBER };
    let fits = flags & wrong == 0 && !(is_def && tied.is_some()) && !(flags & RENAMABLE != 0 && vreg.is_some());
    ensure!(fits, "text", line, "a flag that does not fit `{}`", own.text);
    let flagged = tree.word("Flags").len();
    let [sub, class, llt] = [own.word("Sub"), own.word("Class"), tree.word("Type")].map(String::from);
    let text = tree.text.get(flagged..).unwrap_or("").to_string();
    let tied = tied.map(|tied| tied as usize);
    Ok(Operand {
        kind: Kind::Register,
        text,
        register: physical,
        vreg,
        sub,
        class,
        llt,
        tied,
        flags,
        ..Operand::default()
    })
}

fn read_other(tree: &Tree, names: &Names, line: usize) -> Done<Operand> {
    let text = tree.text.split(" /*").next().unwrap_or("").to_string();
    let kind = match tree.inner.first().map(|tree| tree.rule) {
        _ if tree.rule == "AsmString" => Kind::AsmString,
        _ if tree.rule == "AsmFlag" => Kind::AsmFlag,
        Some("Block") => Kind::Block,
        Some("FrameIndex") => Kind::FrameIndex,
        Some("FixedFrame") => Kind::FixedFrame,
        Some("RegMask") => Kind::RegMask,
        Some("Immediate") => Kind::Immediate,
        _ => Kind::Other,
    };
    let is_named = matches!(kind, Kind::Block | Kind::FrameIndex | Kind::FixedFrame);
    let number = match tree.inner.first().filter(|_| is_named) {
        Some(named) => names.resolved(named, line)?,
        None => 0,
    };
    Ok(Operand { kind, text, number, ..Operand::default() })
}

fn read_memory(tree: &Tree, names: &Names, line: usize) -> Done<MemoryOperand> {
    let marked = |word: &str| tree.word("Marks").split(' ').any(|own| own == word);
    let number = |rule: &str| tree.child(rule).and_then(Tree::number);
    let mut memory = MemoryOperand {
        text: tree.text.to_string(),
        volatile: marked("volatile"),
        atomic: tree.child("Ordering").is_some(),
        invariant: marked("invariant"),
        dereferenceable: marked("dereferenceable"),
        address_space: number("Space").unwrap_or(0),
        align: number("Align"),
        base_align: number("Base"),
        ..MemoryOperand::default()
    };
    for (rule, kind) in [("FrameIndex", Kind::FrameIndex), ("FixedFrame", Kind::FixedFrame)] {
        if let Some(object) = tree.child(rule) {
            memory.object = Some((kind, names.resolved(object, line)?));
            memory.number_at = object.at + object.text.find('.').unwrap_or(0) + 1 - tree.at;
        }
    }
    Ok(memory)
}
