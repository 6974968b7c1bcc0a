//! Reads a text of machine IR as LLVM's MIRPrinter writes it (spec 2.1). Every character is read by a rule, or the
//! text is refused.

use std::collections::{BTreeMap, BTreeSet};

use crate::cursor::Cursor;
use crate::header;
use crate::model::{
    Block, File, Function, FunctionLiveIn, Instruction, Kind, LiveIn, Operand, Refused, Row, VirtualRegister,
};
use crate::operands::{attribute, block, memory, operand, register, starts_register, Names};
use crate::tables::{canonical, tables};
use crate::yaml::{Lines, Pairs, Value};

type Numbered<'a> = (usize, &'a str);

/// Reads a whole file.
///
/// # Errors
/// `text`: something stands in it that no rule reads.
pub fn read(text: &str) -> Result<File, Refused> {
    // Both end a line for LLVM.
    let text = &text.replace("\r\n", "\n");
    if let Some(bad) = text.chars().find(|c| c.is_control() && *c != '\n') {
        return Err(Refused::new("text", format!("a control character {:#x}", bad as u32), ""));
    }
    let lines: Vec<Numbered> = text.split('\n').enumerate().map(|(k, line)| (k + 1, line)).collect();
    let (mut module, mut functions) = (None, Vec::<Function>::new());
    let mut at = 0;
    while let Some(&(number, line)) = lines.get(at) {
        at += 1;
        // IREE writes comments of the IR's form in front of the module.
        let is_in_front = module.is_none() && functions.is_empty();
        if line.starts_with('#') || (is_in_front && line.starts_with(';')) || line.trim_matches(' ').is_empty() {
            continue;
        }
        let start = at;
        while lines.get(at).is_some_and(|(_, line)| *line != "...") {
            at += 1;
        }
        let Some(part) = lines.get(start..at).filter(|_| at < lines.len()) else {
            return Err(fail("a part has no end `...`", number));
        };
        at += 1;
        match line {
            "--- |" if is_in_front => module = Some(read_module(part)?),
            "---" => functions.push(read_function(part, number)?),
            _ => return Err(fail("expected `---`", number)),
        }
        if let [others @ .., last] = functions.as_slice() {
            if others.iter().any(|other| other.name == last.name) {
                return Err(fail("two functions have one name", last.line));
            }
        }
    }
    if functions.is_empty() {
        return Err(Refused::new("text", "there is no function", ""));
    }
    Ok(File { module: module.unwrap_or_default(), functions })
}

fn fail(message: impl Into<String>, line: usize) -> Refused {
    Refused::new("text", message, format!("line {line}"))
}

fn read_module(lines: &[Numbered]) -> Result<String, Refused> {
    let mut module = String::new();
    for (number, line) in lines.iter().filter(|(_, line)| !line.is_empty()) {
        let text = line.strip_prefix("  ").ok_or_else(|| fail("a line of the IR module is not indented", *number))?;
        module.push_str(text);
        module.push('\n');
    }
    Ok(module)
}

fn read_function(lines: &[Numbered], line: usize) -> Result<Function, Refused> {
    let is_body = |line: &str| line.strip_prefix("body:").is_some_and(|rest| rest.trim_matches(' ') == "|");
    let mut parts = lines.splitn(2, |(_, line)| is_body(line));
    let (Some(head), Some(body)) = (parts.next(), parts.next()) else {
        return Err(fail("a function has no body", line));
    };
    let is_comment = |line: &str| line.trim_start_matches(' ').starts_with('#') || line.trim_matches(' ').is_empty();
    let head: Vec<Numbered> = head.iter().copied().filter(|(_, line)| !is_comment(line)).collect();
    let mut function = header_of(Lines::new(&head).map(0)?, line)?;
    read_body(&mut function, body)?;
    Ok(function)
}

// The header.

fn header_of(pairs: Pairs, line: usize) -> Result<Function, Refused> {
    let mut function = Function { line, ..Function::default() };
    for (key, value) in pairs {
        match (key.as_str(), value) {
            ("name", Value::Scalar(name)) => function.name = name,
            ("registers", Value::List(rows)) => {
                rows.into_iter().try_for_each(|row| add_register(&mut function, row))?;
            }
            ("liveins", Value::List(rows)) => {
                function.liveins = rows.into_iter().map(|row| livein_of(row, line)).collect::<Result<_, _>>()?;
            }
            ("fixedStack", Value::List(rows)) => add_objects(&mut function.fixed_stack, rows, &FIXED_STACK_KEYS, line)?,
            ("stack", Value::List(rows)) => add_objects(&mut function.stack, rows, &STACK_KEYS, line)?,
            (_, value) => add_field(&mut function, &key, value)?,
        }
    }
    if function.name.is_empty() {
        return Err(fail("a function has no name", line));
    }
    Ok(function)
}

fn add_field(function: &mut Function, path: &str, value: Value) -> Result<(), Refused> {
    if let Value::Map(pairs) = value {
        let mut pairs = pairs.into_iter();
        return pairs.try_for_each(|(key, value)| add_field(function, &format!("{path}.{key}"), value));
    }
    let text = value.flat();
    if !header::is_known(path, &text) {
        return Err(fail(format!("the field {path} is not known, or not with this value"), function.line));
    }
    function.fields.insert(path.to_string(), text);
    Ok(())
}

/// A row's scalars by key; nested lists as text. Keys stand in this order.
fn row_of(value: Value, keys: &[&str], line: usize) -> Result<Row, Refused> {
    let Value::Map(pairs) = value else { return Err(fail("a row of the header has no keys", line)) };
    let mut row = Row::new();
    let mut rest = keys.iter();
    for (key, value) in pairs {
        if !rest.any(|known| *known == key) {
            return Err(fail(format!("the key {key} of a row is not known, or not at this place"), line));
        }
        row.insert(key, value.flat());
    }
    Ok(row)
}

fn number_in(text: Option<&str>, line: usize) -> Result<u32, Refused> {
    text.and_then(canonical).ok_or_else(|| fail("a row has no number where one must be", line))
}

fn add_register(function: &mut Function, value: Value) -> Result<(), Refused> {
    let row = row_of(value, &["id", "class", "preferred-register", "flags", "anti-hints"], function.line)?;
    let number = number_in(row.get("id").map(String::as_str), function.line)?;
    let text = |key: &str| row.get(key).cloned().unwrap_or_default();
    let mut flags: Vec<String> = text("flags").split(", ").filter(|f| !f.is_empty()).map(String::from).collect();
    flags.sort();
    if flags.iter().any(|flag| flag != "WWM_REG") || text("class").is_empty() {
        return Err(fail(format!("the row of virtual register {number} is not known"), function.line));
    }
    let register = VirtualRegister { class: text("class"), flags };
    if function.registers.insert(number, register).is_some() {
        return Err(fail(format!("virtual register {number} has two rows"), function.line));
    }
    Ok(())
}

fn livein_of(value: Value, line: usize) -> Result<FunctionLiveIn, Refused> {
    let row = row_of(value, &["reg", "virtual-reg"], line)?;
    let Some(register) = row.get("reg").and_then(|text| text.strip_prefix('$')) else {
        return Err(fail("a live-in row names no register", line));
    };
    let vreg = match row.get("virtual-reg").map_or("", String::as_str) {
        "" => None,
        text => Some(number_in(text.strip_prefix('%'), line)?),
    };
    Ok(FunctionLiveIn { register: register.to_string(), vreg })
}

const STACK_KEYS: [&str; 13] = [
    "id", "name", "type", "offset", "size", "alignment", "stack-id", "callee-saved-register", "callee-saved-restored",
    "local-offset", "debug-info-variable", "debug-info-expression", "debug-info-location",
];

const FIXED_STACK_KEYS: [&str; 13] = [
    "id", "type", "offset", "size", "alignment", "stack-id", "isImmutable", "isAliased", "callee-saved-register",
    "callee-saved-restored", "debug-info-variable", "debug-info-expression", "debug-info-location",
];

fn add_objects(objects: &mut BTreeMap<u32, Row>, rows: Vec<Value>, keys: &[&str], line: usize) -> Result<(), Refused> {
    for row in rows {
        let mut row = row_of(row, keys, line)?;
        let number = number_in(row.remove("id").as_deref(), line)?;
        if objects.last_key_value().is_some_and(|(last, _)| *last >= number) {
            return Err(fail(format!("stack object {number} stands behind a later one"), line));
        }
        objects.insert(number, row);
    }
    Ok(())
}

// The body.

fn read_body(function: &mut Function, lines: &[Numbered]) -> Result<(), Refused> {
    let is_block = |line: &str| line.trim_start_matches(' ').starts_with("bb.") && line.starts_with(' ');
    let mut names = BTreeMap::new();
    let mut blocks: Vec<(Block, &[Numbered])> = Vec::new();
    let mut at = 0;
    while let Some((number, line)) = lines.get(at) {
        at += 1;
        if !is_block(line) {
            if Cursor::new(line, *number).end().is_err() {
                return Err(fail("expected a block", *number));
            }
            continue;
        }
        let start = at;
        while lines.get(at).is_some_and(|(_, line)| !is_block(line)) {
            at += 1;
        }
        let (block, name) = block_header(&mut Cursor::new(line, *number))?;
        if names.insert(block.number, (blocks.len(), name)).is_some() {
            return Err(fail(format!("block {} stands twice", block.number), *number));
        }
        blocks.push((block, lines.get(start..at).unwrap_or(&[])));
    }
    let names = Names { blocks: &names, stack: &function.stack, fixed_stack: &function.fixed_stack };
    let count = blocks.len();
    let mut done = Vec::new();
    for (position, (mut block, lines)) in blocks.into_iter().enumerate() {
        read_block(&mut block, lines, &names, position, count)?;
        done.push(block);
    }
    classes_of(&mut function.registers, &done)?;
    function.blocks = done;
    Ok(())
}

/// `bb.N.name (attributes):`.
fn block_header(cursor: &mut Cursor) -> Result<(Block, String), Refused> {
    cursor.take_while(|c| c == ' ');
    cursor.expect("bb.")?;
    let number = cursor.number()?;
    let name = if cursor.eat(".") { cursor.name()?.to_string() } else { String::new() };
    let mut attributes = name.clone();
    if cursor.eat(" (") {
        let start = cursor.at();
        loop {
            block_attribute(cursor)?;
            if cursor.looks_at(")") {
                break;
            }
            cursor.expect(", ")?;
        }
        attributes = format!("{name} ({})", cursor.since(start));
        cursor.expect(")")?;
    }
    cursor.expect(":")?;
    let line = cursor.line();
    cursor.end()?;
    Ok((Block { number, attributes, line, ..Block::default() }, name))
}

fn block_attribute(cursor: &mut Cursor) -> Result<(), Refused> {
    if cursor.eat("ir-block-address-taken %ir-block.") || cursor.eat("%ir-block.") {
        return cursor.quoted_or_name().map(|_| ());
    }
    if cursor.eat("align ") {
        return cursor.number::<u32>().map(|_| ());
    }
    if cursor.eat("machine-block-address-taken") {
        return Ok(());
    }
    cursor.expect("inlineasm-br-indirect-target")
}

fn read_block(
    block: &mut Block, lines: &[Numbered], names: &Names, position: usize, count: usize,
) -> Result<(), Refused> {
    let (mut successors, mut has_liveins, mut in_bundle) = (None, false, false);
    for (number, line) in lines {
        let mut cursor = Cursor::new(line, *number);
        // Indentation says nothing, but that a line belongs to the body.
        let is_indented = !cursor.take_while(|c| c == ' ').is_empty();
        if cursor.clone().end().is_ok() {
            continue;
        }
        let is_first = block.instructions.is_empty();
        if !is_indented {
            return Err(cursor.fail("a line of the body is not indented"));
        } else if in_bundle && cursor.eat("}") {
            let Some(last) = block.instructions.last_mut().filter(|last| last.in_bundle) else {
                return Err(cursor.fail("a bundle is empty"));
            };
            last.closes_bundle = true;
            in_bundle = false;
            cursor.end()?;
        } else if is_first && !has_liveins && successors.is_none() && cursor.eat("successors:") {
            successors = Some(read_successors(&mut cursor, names)?);
        } else if is_first && !has_liveins && cursor.eat("liveins: ") {
            has_liveins = true;
            block.liveins = read_liveins(&mut cursor)?;
        } else {
            let mut instruction = read_instruction(&mut cursor, names)?;
            instruction.in_bundle = in_bundle;
            if in_bundle && instruction.opens_bundle {
                return Err(fail("a bundle in a bundle", *number));
            }
            in_bundle |= instruction.opens_bundle;
            block.instructions.push(instruction);
        }
    }
    if in_bundle {
        return Err(fail("a bundle is not closed", block.line));
    }
    block.successors = successors.unwrap_or_else(|| guessed_successors(block, position, count));
    Ok(())
}

/// What LLVM's MIParser takes where no line says it: the targets of branches, and the next block if none is a barrier.
fn guessed_successors(block: &Block, position: usize, count: usize) -> Vec<usize> {
    let is_debug = |opcode: &str| tables().opcode(opcode).is_some_and(|opcode| opcode.has("debug"));
    let is_barrier = |opcode: &str| tables().opcode(opcode).is_some_and(|opcode| opcode.has("barrier"));
    let mut found: Vec<usize> = Vec::new();
    let targets = block.instructions.iter().filter(|i| i.opcode != "PHI").flat_map(|i| &i.operands);
    for target in targets.filter(|target| target.kind == Kind::Block).map(|target| target.number as usize) {
        if !found.contains(&target) {
            found.push(target);
        }
    }
    let last = block.instructions.iter().rev().find(|instruction| !is_debug(&instruction.opcode));
    let next = position + 1;
    if !last.is_some_and(|last| is_barrier(&last.opcode)) && next < count && !found.contains(&next) {
        found.push(next);
    }
    found
}

fn hexadecimal<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Refused> {
    let start = cursor.at();
    cursor.expect("0x")?;
    if cursor.take_while(|c| c.is_ascii_hexdigit()).is_empty() {
        return Err(cursor.fail("expected a hexadecimal number"));
    }
    Ok(cursor.since(start))
}

fn read_successors(cursor: &mut Cursor, names: &Names) -> Result<Vec<usize>, Refused> {
    let mut successors: Vec<usize> = Vec::new();
    if cursor.clone().end().is_ok() {
        return Ok(successors);
    }
    loop {
        cursor.expect(if successors.is_empty() { " %bb." } else { ", %bb." })?;
        let block = block(cursor, names)? as usize;
        if cursor.eat("(") {
            hexadecimal(cursor)?;
            cursor.expect(")")?;
        }
        if successors.contains(&block) {
            return Err(cursor.fail("a successor stands twice"));
        }
        successors.push(block);
        if cursor.clone().end().is_ok() {
            return Ok(successors);
        }
    }
}

fn read_liveins(cursor: &mut Cursor) -> Result<Vec<LiveIn>, Refused> {
    let mut liveins: Vec<LiveIn> = Vec::new();
    loop {
        cursor.expect(if liveins.is_empty() { "$" } else { ", $" })?;
        let register = cursor.word()?.to_string();
        let mut mask = None;
        if cursor.eat(":") {
            let digits = hexadecimal(cursor)?;
            let value = u64::from_str_radix(digits.trim_start_matches("0x"), 16);
            let value = value.map_err(|_| cursor.fail("a mask of lanes that is too large"))?;
            // LLVM numbers the halves of a register by name: `hi16` is the lower bit.
            let halves = 0x5555_5555_5555_5555u64;
            mask = Some((value & halves) << 1 | (value >> 1 & halves));
        }
        liveins.push(LiveIn { register, mask });
        if cursor.clone().end().is_ok() {
            return Ok(liveins);
        }
    }
}

const INSTRUCTION_FLAGS: [&str; 23] = [
    "frame-setup", "frame-destroy", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "nuw", "nsw", "exact",
    "nofpexcept", "nomerge", "unpredictable", "noconvergent", "nneg", "disjoint", "nusw", "samesign", "inbounds",
    "lr-split", "bb-prolog",
];

fn read_instruction(cursor: &mut Cursor, names: &Names) -> Result<Instruction, Refused> {
    let mut instruction = Instruction { line: cursor.line(), ..Instruction::default() };
    if starts_register(cursor) {
        instruction.operands.push(register(cursor, true)?);
        while cursor.eat(", ") {
            instruction.operands.push(register(cursor, true)?);
        }
        cursor.expect(" = ")?;
    }
    instruction.definitions = instruction.operands.len();
    loop {
        let mut ahead = cursor.clone();
        let word = ahead.take_while(|c| c.is_ascii_lowercase() || c == '-');
        if !INSTRUCTION_FLAGS.contains(&word) || !ahead.eat(" ") {
            break;
        }
        if !instruction.flags.insert(word.to_string()) {
            return Err(cursor.fail("a flag stands twice"));
        }
        *cursor = ahead;
    }
    instruction.opcode = cursor.word()?.to_string();
    if !instruction.opcode.starts_with(|c: char| c.is_ascii_uppercase()) {
        return Err(cursor.fail("expected an opcode, read up to"));
    }
    let has_more = |cursor: &Cursor| !cursor.looks_at(" ::") && !cursor.looks_at(" {") && cursor.clone().end().is_err();
    let mut separator = " ";
    while has_more(cursor) {
        cursor.expect(separator)?;
        separator = ", ";
        if let Some(text) = attribute(cursor)? {
            if instruction.tail.iter().any(|other| other.split(' ').next() == text.split(' ').next()) {
                return Err(cursor.fail("an attribute stands twice"));
            }
            instruction.tail.push(text);
        } else if instruction.tail.is_empty() {
            instruction.operands.push(operand(cursor, &instruction.opcode, names)?);
        } else {
            return Err(cursor.fail("an operand behind attributes"));
        }
    }
    if cursor.eat(" :: ") {
        instruction.memory.push(memory(cursor, names)?);
        while cursor.eat(", ") {
            instruction.memory.push(memory(cursor, names)?);
        }
    }
    instruction.opens_bundle = cursor.eat(" {");
    cursor.end()?;
    check_ties(&instruction)?;
    Ok(instruction)
}

/// A tie names an explicit register definition in front of it, and no two uses are tied to one (MIParser).
fn check_ties(instruction: &Instruction) -> Result<(), Refused> {
    let mut seen = BTreeSet::new();
    for (k, tied) in instruction.operands.iter().enumerate().filter_map(|(k, op)| Some((k, op.tied?))) {
        let is_definition = instruction.operands.get(tied).is_some_and(Operand::is_def);
        if tied >= k || !is_definition || !seen.insert(tied) {
            return Err(fail("a tie that is none", instruction.line));
        }
    }
    Ok(())
}

/// Checks printed classes against the rows of `registers:`; where there is no such row, definitions make it.
fn classes_of(registers: &mut BTreeMap<u32, VirtualRegister>, blocks: &[Block]) -> Result<(), Refused> {
    let operands = blocks.iter().flat_map(|b| &b.instructions).flat_map(|i| i.operands.iter().map(|op| (op, i.line)));
    for (operand, _) in operands.clone().filter(|(operand, _)| !operand.class.is_empty()) {
        let row = VirtualRegister { class: operand.class.clone(), ..VirtualRegister::default() };
        registers.entry(operand.vreg.unwrap_or_default()).or_insert(row);
    }
    for (operand, line) in operands {
        let Some(number) = operand.vreg else { continue };
        let class = registers.get(&number).map(|row| row.class.as_str());
        if class.is_none() || !operand.class.is_empty() && class != Some(&operand.class) {
            return Err(fail(format!("virtual register {number} has no class, or another"), line));
        }
    }
    Ok(())
}
