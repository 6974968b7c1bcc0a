//! Reads a text of machine IR as LLVM's MIRPrinter writes it (spec 2.1). What is not of the grammar is refused.

use std::collections::{BTreeMap, BTreeSet};

use crate::grammar::{is, parse, Tree};
use crate::model::*;
use crate::tables::{tables, Register};

type Numbered<'a> = (usize, &'a str);

/// Reads a whole file.
///
/// # Errors
/// `text`: something stands in it that no rule reads. `well-formed`: LLVM has no such opcode, register or class.
pub fn read(text: &str) -> Done<File> {
    // Both end a line for LLVM.
    let text = &text.replace("\r\n", "\n");
    let is_plain = |byte| matches!(byte, b' '..=b'~' | b'\n');
    let rest = text.bytes().position(|byte| !is_plain(byte)).and_then(|at| text.get(at..)).unwrap_or("");
    let control = rest.chars().find(|c| c.is_control() && *c != '\n');
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
    let body = need!(lines.iter().position(|(_, line)| is_body(line)), "text", line, "a function has no body");
    let is_comment = |line: &str| line.trim_start_matches(' ').starts_with('#') || line.trim_matches(' ').is_empty();
    let head: Vec<Numbered> = lines.iter().take(body).copied().filter(|(_, line)| !is_comment(line)).collect();
    let mut function = Function { line, ..Function::default() };
    read_header(&mut function, &head)?;
    ensure!(!function.name.is_empty(), "text", line, "a function has no name");
    let text: String = lines.iter().skip(body + 1).flat_map(|(_, line)| [line, "\n"]).collect();
    read_body(&mut function, &text, line + body + 2)?;
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
        let has_items = is_above && field.kind == "list";
        while let Some((number, line)) = lines.get(at).filter(|(_, line)| has_items && line.starts_with(&dash)) {
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
    let parsed = parse("Row", text, line)?;
    let (mut row, mut rest) = (Row::new(), entries.iter());
    for entry in parsed.tree().all("Item") {
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
    if list == "liveins" {
        let vreg = row.get("virtual-reg").and_then(|text| text.strip_prefix('%')?.parse().ok());
        let register = row.get("reg").map_or("", |register| register.trim_start_matches('$'));
        function.liveins.push((register.to_string(), vreg));
        return Ok(());
    }
    let number = need!(row.remove("id").and_then(|id| id.parse().ok()), "text", line, "too great a number");
    let in_order = if list == "registers" {
        let virtual_register = row_of(row.get("class").map_or("", String::as_str), line)?;
        let whole_wave = row.get("flags").is_some_and(|flags| flags.contains("WWM_REG"));
        function.registers.insert(number, Virtual { whole_wave, ..virtual_register }).is_none()
    } else {
        let objects = if list == "stack" { &mut function.stack } else { &mut function.fixed_stack };
        let is_next = objects.last_key_value().is_none_or(|(last, _)| *last < number);
        objects.insert(number, row);
        is_next
    };
    ensure!(in_order, "text", line, "a row of {list} stands twice, or behind a later one");
    Ok(())
}

fn row_of(class: &str, line: usize) -> Done<Virtual> {
    let class = need!(tables().class(class), "well-formed", line, "unknown class `{class}`");
    Ok(Virtual { class, whole_wave: false })
}

fn register(name: &str, line: usize) -> Done<&'static Register> {
    Ok(need!(tables().register(name), "well-formed", line, "unknown register `{name}`"))
}

// The body.

/// What the operands of a function may name, and where its lines begin.
struct Names<'a> {
    /// Position and IR name of each block, by number.
    blocks: BTreeMap<u32, (usize, &'a str)>,
    stack: &'a BTreeMap<u32, Row>,
    fixed_stack: &'a BTreeMap<u32, Row>,
    ends: Vec<usize>,
    first: usize,
}

impl Names<'_> {
    fn line(&self, tree: Tree<'_>) -> usize {
        self.first + self.ends.partition_point(|end| *end < tree.at)
    }

    /// Position of the block, or number of the object, that `Number ("." Name)?` names.
    fn resolved(&self, tree: Tree<'_>) -> Done<u32> {
        let number = tree.number().and_then(|number| u32::try_from(number).ok());
        let in_rows =
            |rows: &'_ BTreeMap<u32, Row>| rows.get(&number?).map(|row| row.get("name").cloned().unwrap_or_default());
        let found = match tree.rule {
            "Target" => number.and_then(|n| self.blocks.get(&n)).map(|(at, name)| (*at as u32, name.to_string())),
            "FrameIndex" => number.zip(in_rows(self.stack)),
            _ => number.zip(in_rows(self.fixed_stack)),
        };
        let found = found.filter(|(_, name)| tree.child("Name").is_none_or(|own| own.text == name));
        Ok(need!(found, "text", self.line(tree), "there is no {}", tree.text).0)
    }
}

fn read_body(function: &mut Function, text: &str, first: usize) -> Done {
    let parsed = parse("Body", text, first)?;
    let tree = parsed.tree();
    let ends = text.match_indices('\n').map(|(at, _)| at).collect();
    let (stack, fixed_stack) = (&function.stack, &function.fixed_stack);
    let mut names = Names { blocks: BTreeMap::new(), stack, fixed_stack, ends, first };
    for (position, head) in tree.inner().filter_map(|block| block.child("Head")).enumerate() {
        let number = head.number().and_then(|number| u32::try_from(number).ok()).unwrap_or(u32::MAX);
        let is_new = names.blocks.insert(number, (position, head.word("Name"))).is_none();
        ensure!(is_new, "text", names.line(head), "block {number} stands twice");
    }
    let blocks = tree.inner().enumerate().map(|(position, tree)| read_block(tree, position, &names));
    function.blocks = blocks.collect::<Done<_>>()?;
    // Where the header has no row, definitions make it. Printed classes agree with the rows.
    let mut registers = function.registers.clone();
    for i in function.instructions() {
        for operand in i.operands.iter().filter(|operand| !operand.class.is_empty()) {
            let row = row_of(&operand.class, i.line)?;
            let known = registers.entry(operand.vreg.unwrap_or_default()).or_insert(row);
            ensure!(known.class.name == operand.class, "text", i.line, "`{}` has another class", operand.text);
        }
    }
    let unknown = function.operands().find(|o| o.vreg.is_some_and(|vreg| !registers.contains_key(&vreg)));
    ensure!(unknown.is_none(), "text", function.line, "`{}` has no class", unknown.map_or("", |o| &o.text));
    function.registers = registers;
    Ok(())
}

fn read_block(tree: Tree<'_>, position: usize, names: &Names) -> Done<Block> {
    let mut block = Block { line: names.line(tree), ..Block::default() };
    let resolved = |tree: Tree<'_>| names.resolved(tree).map(|block| block as usize);
    if let Some(head) = tree.child("Head") {
        block.number = head.number().unwrap_or(0) as u32;
        block.attributes = format!("{} ({})", head.word("Name"), head.word("Attributes"));
    }
    for livein in tree.child("Liveins").iter().flat_map(|liveins| liveins.all("Livein")) {
        let digits = livein.child("Hex").map(|hex| u64::from_str_radix(hex.text, 16)).transpose();
        let mask = digits.map_err(|_| Refused::new("text", "a mask of lanes is too large", block.line))?;
        // LLVM numbers the halves of a register by name: `hi16` is the lower bit.
        let halves = 0x5555_5555_5555_5555_u64;
        let mask = mask.map(|mask| (mask & halves) << 1 | (mask >> 1 & halves));
        block.liveins.push((register(livein.word("Word"), names.line(livein))?, mask));
    }
    let (mut targets, mut opens): (Vec<usize>, bool) = (Vec::new(), false);
    for tree in tree.inner().filter(|tree| matches!(tree.rule, "Instruction" | "Members")) {
        let is_bundle = tree.rule == "Members";
        let all = if is_bundle { tree.inner().collect() } else { vec![tree] };
        let all = all.into_iter().map(|tree| read_instruction(tree, names)).collect::<Done<Vec<_>>>()?;
        let blocks = all.iter().filter(|i| i.name != "PHI").flat_map(|i| &i.operands).filter(|o| o.kind == Kind::Block);
        targets.extend(blocks.map(|o| o.number as usize));
        if is_bundle {
            let head = block.instructions.last_mut().filter(|_| opens);
            need!(head, "text", block.line, "a bundle without a head").bundle[1] = true;
        }
        opens = all.last().is_some_and(|i| !i.has("debug"));
        block.instructions.extend(all.into_iter().filter(|i| !i.has("debug")));
        if is_bundle {
            let members = block.instructions.iter_mut().rev().take_while(|i| !i.bundle[1]);
            members.for_each(|i| i.bundle[0] = true);
            block.instructions.last_mut().into_iter().for_each(|last| last.bundle[2] = true);
        }
    }
    block.successors = match tree.child("Successors") {
        Some(successors) => successors.all("Target").map(resolved).collect::<Done<_>>()?,
        None => {
            // What MIParser takes where no line says it: the targets of branches, and the next block if none is a
            // barrier.
            let is_last = position + 1 == names.blocks.len();
            let goes_on = !is_last && !block.instructions.last().is_some_and(|last| last.has("barrier"));
            let mut seen = BTreeSet::new();
            targets.into_iter().chain(goes_on.then_some(position + 1)).filter(|target| seen.insert(*target)).collect()
        }
    };
    let once = block.successors.iter().collect::<BTreeSet<_>>().len() == block.successors.len();
    ensure!(once, "text", block.line, "a successor stands twice");
    Ok(block)
}

fn read_instruction(tree: Tree<'_>, names: &Names) -> Done<Instruction> {
    let line = names.line(tree);
    let name = format!("{}{}", tree.word("AsmCode"), tree.word("Code"));
    let opcode = need!(tables().opcode(&name), "well-formed", line, "unknown opcode {name}");
    let mut flags: Vec<String> = tree.all("Flag").map(|flag| flag.text.to_string()).collect();
    let mut tail: Vec<String> = tree.all("Attribute").map(|attribute| attribute.text.to_string()).collect();
    let twice = |words: &[String]| {
        let first: BTreeSet<_> = words.iter().map(|word| word.split(' ').next()).collect();
        first.len() != words.len()
    };
    ensure!(!twice(&flags) && !twice(&tail), "text", line, "a flag or attribute stands twice");
    flags.sort();
    tail.retain(|attribute| !attribute.starts_with("debug-location "));
    // Room for no more of them than there are: operands are the most of a text.
    let own = || tree.inner().filter(|tree| matches!(tree.rule, "Def" | "Operand" | "AsmString" | "AsmFlag"));
    let mut operands = Vec::with_capacity(own().count());
    for tree in own() {
        operands.push(read_operand(tree, names, line)?);
    }
    // A tie names an explicit register definition in front of it, and no two uses are tied to one (MIParser).
    let mut seen = BTreeSet::new();
    for (k, tied) in operands.iter().enumerate().filter_map(|(k, o)| Some((k, o.tied?))) {
        let is_definition = tied < k && operands.get(tied).is_some_and(Operand::is_def);
        ensure!(is_definition && seen.insert(tied), "text", line, "a tie that is none");
    }
    let mut memory = Vec::with_capacity(tree.all("Memory").count());
    for tree in tree.all("Memory") {
        memory.push(read_memory(tree, names)?);
    }
    let definitions = tree.all("Def").count();
    if opcode.has("debug") {
        // What LLVM's passes do not skip: definitions, masks, symbols, and what is no value's.
        let skipped = |o: &Operand| o.kind != Kind::RegMask && o.flags & !(RENAMABLE | DEBUG_USE) == 0;
        let fits = !matches!(&*name, "DBG_PHI" | "DBG_INSTR_REF")
            && operands.iter().all(skipped)
            && tail.iter().all(|attribute| attribute.starts_with("debug-"));
        ensure!(fits, "well-formed", line, "a debug instruction that does more than read");
    }
    Ok(Instruction { name, opcode, operands, definitions, flags, memory, tail, bundle: [false; 3], line })
}

/// The words for the flags of a register operand, in the order of their bits.
const FLAGS: [&str; 9] =
    ["def", "implicit", "dead", "killed", "undef", "renamable", "early-clobber", "internal", "debug-use"];

fn flag(word: &str) -> u16 {
    let bit = FLAGS.iter().position(|flag| *flag == word).map_or(0, |bit| 1 << bit);
    if word == "implicit-def" {
        DEF | IMPLICIT
    } else {
        bit
    }
}

fn read_operand(tree: Tree<'_>, names: &Names, line: usize) -> Done<Operand> {
    let Some(own) = tree.child("Register") else { return read_other(tree, names) };
    let words = tree.word("Flags").split(' ');
    let flags = words.fold(if tree.rule == "Def" { DEF } else { 0 }, |all, word| all | flag(word));
    let number = |tree: Tree<'_>| tree.number().and_then(|number| u32::try_from(number).ok());
    let (vreg, tied) = (own.child("Number").map(number), tree.child("Tied").map(number));
    ensure!(vreg != Some(None) && tied != Some(None), "text", line, "too great a number in `{}`", tree.text);
    let (vreg, tied) = (vreg.flatten(), tied.flatten());
    let explicit = tree.rule != "Def" || !["implicit", "def"].iter().any(|word| tree.text.starts_with(word));
    ensure!(explicit, "text", line, "an implicit operand on the left");
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

fn read_other(tree: Tree<'_>, names: &Names) -> Done<Operand> {
    let text = tree.text.split(" /*").next().unwrap_or("").to_string();
    let kind = match tree.inner().next().map(|tree| tree.rule) {
        _ if tree.rule == "AsmString" => Kind::AsmString,
        _ if tree.rule == "AsmFlag" => Kind::AsmFlag,
        Some("Target") => Kind::Block,
        Some("FrameIndex") => Kind::FrameIndex,
        Some("FixedFrame") => Kind::FixedFrame,
        Some("RegMask") => Kind::RegMask,
        Some("Immediate") => Kind::Immediate,
        _ => Kind::Other,
    };
    let is_named = matches!(kind, Kind::Block | Kind::FrameIndex | Kind::FixedFrame);
    let number = match tree.inner().next().filter(|_| is_named) {
        Some(named) => names.resolved(named)?,
        None => 0,
    };
    Ok(Operand { kind, text, number, ..Operand::default() })
}

fn read_memory(tree: Tree<'_>, names: &Names) -> Done<MemoryOperand> {
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
            memory.object = Some((kind, names.resolved(object)?));
            memory.number_at = object.at + object.text.find('.').unwrap_or(0) + 1 - tree.at;
        }
    }
    Ok(memory)
}
