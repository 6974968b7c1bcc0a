//! Operands and memory operands as LLVM's MachineOperand::print and MachineMemOperand::print write them (spec 2.1).

use std::collections::BTreeMap;

use crate::cursor::Cursor;
use crate::model::{Flags, Kind, MemoryOperand, Operand, Refused, Row};

/// What the operands of a function may name.
pub(crate) struct Names<'a> {
    /// Position and IR name of each block, by number.
    pub(crate) blocks: &'a BTreeMap<u32, (usize, String)>,
    pub(crate) stack: &'a BTreeMap<u32, Row>,
    pub(crate) fixed_stack: &'a BTreeMap<u32, Row>,
}

/// In the order in which LLVM prints them.
const FLAGS: [(&str, Flags); 10] = [
    ("implicit ", Flags::IMPLICIT),
    ("implicit-def ", Flags(Flags::IMPLICIT.0 | Flags::DEF.0)),
    ("def ", Flags::DEF),
    ("internal ", Flags::INTERNAL),
    ("dead ", Flags::DEAD),
    ("killed ", Flags::KILLED),
    ("undef ", Flags::UNDEF),
    ("early-clobber ", Flags::EARLY_CLOBBER),
    ("renamable ", Flags::RENAMABLE),
    ("debug-use ", Flags::DEBUG_USE),
];

/// Forms `word(text)` whose text is compared and not understood. Those of instructions before selection are not read.
const CALL_FORMS: [&str; 3] = ["dbg-instr-ref", "target-index", "lanemask"];

/// Words of inline assembly, as LLVM 24 prints them in place of numbers.
const ASM_WORDS: [&str; 16] = [
    "sideeffect", "mayload", "maystore", "isconvergent", "alignstack", "unwind", "attdialect", "inteldialect",
    "regdef-ec", "regdef", "reguse", "clobber", "imm", "mem", "func", "foldable",
];

const TYPES: [&str; 5] = ["float ", "double ", "half ", "bfloat ", "fp128 "];

/// Whether a register operand stands here.
pub(crate) fn starts_register(cursor: &Cursor) -> bool {
    let is_virtual = cursor.rest().strip_prefix('%').is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit()));
    is_virtual || cursor.looks_at("$") || FLAGS.iter().any(|(word, _)| cursor.looks_at(word))
}

/// A register operand. One `on_the_left` of `=` is an explicit definition.
pub(crate) fn register(cursor: &mut Cursor, on_the_left: bool) -> Result<Operand, Refused> {
    let mut operand = Operand { kind: Kind::Register, ..Operand::default() };
    let mut flags = Flags::default();
    for (word, flag) in FLAGS.iter().filter(|(word, _)| cursor.eat(word)) {
        if flags.0 & flag.0 != 0 {
            return Err(cursor.fail(&format!("`{word}` behind a flag that says so, read up to")));
        }
        flags = flags.with(*flag);
    }
    if on_the_left {
        if flags.0 & (Flags::IMPLICIT.0 | Flags::DEF.0) != 0 {
            return Err(cursor.fail("an implicit operand on the left"));
        }
        flags = flags.with(Flags::DEF);
    }
    let start = cursor.at();
    if cursor.eat("$") {
        operand.register = cursor.word()?.to_string();
    } else {
        cursor.expect("%")?;
        operand.vreg = Some(cursor.number()?);
        if cursor.eat(".") {
            operand.sub = cursor.word()?.to_string();
        }
        if cursor.eat(":") {
            operand.class = cursor.word()?.to_string();
        }
    }
    if cursor.looks_at("(") && !cursor.looks_at("(tied-def ") {
        cursor.expect("(")?;
        operand.llt = low_level_type(cursor)?;
        cursor.expect(")")?;
    }
    let is_def = flags.has(Flags::DEF);
    if cursor.eat("(tied-def ") {
        operand.tied = Some(cursor.number()?);
        cursor.expect(")")?;
    }
    // MachineOperand::CreateReg asserts these.
    let only_for_uses = Flags::KILLED.0 | Flags::DEBUG_USE.0;
    let only_for_definitions = Flags::DEAD.0 | Flags::EARLY_CLOBBER.0;
    let wrong = if is_def { only_for_uses } else { only_for_definitions };
    if flags.0 & wrong != 0 || (is_def && operand.tied.is_some()) {
        return Err(cursor.fail("a flag that does not fit the operand"));
    }
    if flags.has(Flags::RENAMABLE) && operand.vreg.is_some() {
        return Err(cursor.fail("a virtual register that is renamable"));
    }
    operand.flags = flags;
    operand.text = cursor.since(start).to_string();
    Ok(operand)
}

/// `s32`, `p1`, `<4 x s16>` and the like, without brackets.
fn low_level_type(cursor: &mut Cursor) -> Result<String, Refused> {
    let start = cursor.at();
    let is_vector = cursor.eat("<");
    if is_vector {
        cursor.number::<u32>()?;
        cursor.expect(" x ")?;
    }
    if !["s", "p", "i", "f"].iter().any(|letter| cursor.eat(letter)) {
        return Err(cursor.fail("expected a low-level type"));
    }
    cursor.number::<u32>()?;
    if is_vector {
        cursor.expect(">")?;
    }
    Ok(cursor.since(start).to_string())
}

/// Any operand right of the opcode.
pub(crate) fn operand(cursor: &mut Cursor, opcode: &str, names: &Names) -> Result<Operand, Refused> {
    if starts_register(cursor) {
        return register(cursor, false);
    }
    let start = cursor.at();
    let (kind, number) = other(cursor, opcode.starts_with("INLINEASM"), names)?;
    let text = cursor.since(start).to_string();
    if cursor.eat(" /*") {
        // A comment that LLVM prints behind a number of inline assembly.
        cursor.take_while(|c| c != '*' && c != ';');
        cursor.expect("*/")?;
    }
    Ok(Operand { kind, text, number, ..Operand::default() })
}

fn other(cursor: &mut Cursor, is_asm: bool, names: &Names) -> Result<(Kind, u32), Refused> {
    if cursor.eat("%bb.") {
        return Ok((Kind::Block, block(cursor, names)?));
    }
    if cursor.eat("%stack.") {
        return Ok((Kind::FrameIndex, frame_index(cursor, names.stack)?));
    }
    if cursor.eat("%fixed-stack.") {
        return Ok((Kind::FixedFrame, frame_index(cursor, names.fixed_stack)?));
    }
    if cursor.eat("%subreg.") {
        return cursor.word().map(|_| (Kind::Other, 0));
    }
    if cursor.eat("target-flags(") {
        cursor.name()?;
        cursor.expect(") ")?;
    }
    if cursor.eat("@") {
        cursor.quoted_or_name()?;
        return offset(cursor).map(|()| (Kind::Other, 0));
    }
    if cursor.eat("&") {
        let is_text = is_asm && cursor.looks_at("\"");
        cursor.quoted_or_name()?;
        offset(cursor)?;
        return Ok((if is_text { Kind::AsmString } else { Kind::External }, 0));
    }
    if cursor.eat("<mcsymbol ") {
        cursor.quoted_or_name()?;
        return cursor.expect(">").map(|()| (Kind::Other, 0));
    }
    if cursor.eat("!") {
        return metadata(cursor).map(|()| (Kind::Other, 0));
    }
    if cursor.eat("CustomRegMask(") {
        while !cursor.eat(")") {
            cursor.expect("$")?;
            cursor.word()?;
            if !cursor.eat(",") && !cursor.looks_at(")") {
                return Err(cursor.fail("expected `,` or `)`"));
            }
        }
        return Ok((Kind::RegMask, 0));
    }
    if TYPES.iter().any(|word| cursor.eat(word)) {
        let number = cursor.take_while(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        return if number.is_empty() { Err(cursor.fail("expected a number")) } else { Ok((Kind::Other, 0)) };
    }
    if cursor.rest().starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        cursor.eat("-");
        // An immediate has 64 bits; LLVM prints them with a sign.
        cursor.number::<u64>()?;
        let is_flag = is_asm && cursor.looks_at(" /*");
        return Ok((if is_flag { Kind::AsmFlag } else { Kind::Immediate }, 0));
    }
    words(cursor, is_asm)
}

/// Forms that begin with a word: masks, typed integers, words of inline assembly, and those of `CALL_FORMS`.
fn words(cursor: &mut Cursor, is_asm: bool) -> Result<(Kind, u32), Refused> {
    if is_asm && ASM_WORDS.iter().any(|word| cursor.looks_at(word)) {
        loop {
            let Some(word) = ASM_WORDS.iter().find(|word| cursor.looks_at(word)) else {
                return Err(cursor.fail("expected a word of inline assembly"));
            };
            cursor.eat(word);
            if cursor.eat(":") {
                cursor.word()?;
            }
            if cursor.eat(" tiedto:$") {
                cursor.number::<u32>()?;
            }
            if !cursor.eat(" ") {
                return Ok((Kind::AsmFlag, 0));
            }
        }
    }
    if cursor.rest().strip_prefix('i').is_some_and(|bits| bits.starts_with(|c: char| c.is_ascii_digit())) {
        low_level_type(cursor)?;
        cursor.expect(" ")?;
        if !cursor.eat("true") && !cursor.eat("false") {
            cursor.eat("-");
            cursor.number::<u64>()?;
        }
        return Ok((Kind::Other, 0));
    }
    let word = cursor.name()?;
    if word.starts_with("csr_") || word.starts_with("amdgpu_all") {
        return Ok((Kind::RegMask, 0));
    }
    if CALL_FORMS.contains(&word) && cursor.looks_at("(") {
        balanced(cursor)?;
        offset(cursor)?;
        return Ok((Kind::Other, 0));
    }
    Err(cursor.fail(&format!("no operand has the form `{word}`, read up to")))
}

/// Text in brackets that close, texts in quotes read as such.
fn balanced(cursor: &mut Cursor) -> Result<(), Refused> {
    let mut open = 0u32;
    loop {
        cursor.take_while(|c| !"()\"".contains(c) && c != ';');
        if cursor.looks_at("\"") {
            cursor.quoted()?;
        } else if cursor.eat("(") {
            open = open.saturating_add(1);
        } else if cursor.eat(")") {
            open = open.saturating_sub(1);
            if open == 0 {
                return Ok(());
            }
        } else {
            return Err(cursor.fail("a bracket that is not closed"));
        }
    }
}

/// `7`, `DILocation(…)` or `DIExpression(…)`, behind `!`.
fn metadata(cursor: &mut Cursor) -> Result<(), Refused> {
    if cursor.eat("DI") {
        cursor.word()?;
        return balanced(cursor);
    }
    cursor.number::<u32>().map(|_| ())
}

/// ` + 4`, ` - 4` or nothing.
fn offset(cursor: &mut Cursor) -> Result<(), Refused> {
    if cursor.eat(" + ") || cursor.eat(" - ") {
        cursor.number::<i64>()?;
    }
    Ok(())
}

/// N or N.name behind `%bb.`, as the block's position.
pub(crate) fn block(cursor: &mut Cursor, names: &Names) -> Result<u32, Refused> {
    let number: u32 = cursor.number()?;
    let Some((position, name)) = names.blocks.get(&number) else {
        return Err(cursor.fail(&format!("there is no block {number}, named")));
    };
    if cursor.eat(".") && cursor.name()? != name {
        return Err(cursor.fail(&format!("block {number} has another name, named")));
    }
    u32::try_from(*position).map_err(|_| cursor.fail("too many blocks"))
}

/// N or N.name behind `%stack.` and the like.
fn frame_index(cursor: &mut Cursor, objects: &BTreeMap<u32, Row>) -> Result<u32, Refused> {
    let number: u32 = cursor.number()?;
    let Some(row) = objects.get(&number) else {
        return Err(cursor.fail(&format!("there is no stack object {number}, named")));
    };
    if cursor.eat(".") && row.get("name").map(String::as_str) != Some(cursor.name()?) {
        return Err(cursor.fail(&format!("stack object {number} has another name, named")));
    }
    Ok(number)
}

/// An attribute behind the operands, if one stands here.
pub(crate) fn attribute(cursor: &mut Cursor) -> Result<Option<String>, Refused> {
    let start = cursor.at();
    if cursor.eat("debug-location !") || cursor.eat("mmra !") || cursor.eat("pcsections !") {
        metadata(cursor)?;
    } else if cursor.eat("heap-alloc-marker !") || cursor.eat("debug-instr-number ") || cursor.eat("cfi-type ") {
        cursor.number::<u32>()?;
    } else if cursor.eat("pre-instr-symbol <mcsymbol ") || cursor.eat("post-instr-symbol <mcsymbol ") {
        cursor.quoted_or_name()?;
        cursor.expect(">")?;
    } else {
        return Ok(None);
    }
    Ok(Some(cursor.since(start).to_string()))
}

const ORDERINGS: [&str; 6] = ["unordered ", "monotonic ", "acquire ", "release ", "acq_rel ", "seq_cst "];

const TARGET_FLAGS: [&str; 4] =
    ["\"amdgpu-noclobber\" ", "\"amdgpu-last-use\" ", "\"amdgpu-cooperative\" ", "\"amdgpu-thread-private\" "];

/// One memory operand with its brackets.
pub(crate) fn memory(cursor: &mut Cursor, names: &Names) -> Result<MemoryOperand, Refused> {
    let start = cursor.at();
    cursor.expect("(")?;
    let mut memory = MemoryOperand { volatile: cursor.eat("volatile "), ..MemoryOperand::default() };
    cursor.eat("non-temporal ");
    memory.dereferenceable = cursor.eat("dereferenceable ");
    memory.invariant = cursor.eat("invariant ");
    for word in TARGET_FLAGS {
        cursor.eat(word);
    }
    let loads = cursor.eat("load ");
    let stores = cursor.eat("store ");
    if !loads && !stores {
        return Err(cursor.fail("expected `load` or `store`"));
    }
    if cursor.eat("syncscope(") {
        cursor.quoted()?;
        cursor.expect(") ")?;
    }
    // An atomic operation has an ordering, a compare-and-swap a second one.
    for _ in 0..2 {
        memory.atomic |= ORDERINGS.iter().any(|word| cursor.eat(word));
    }
    if !cursor.eat("unknown-size") {
        cursor.expect("(")?;
        low_level_type(cursor)?;
        cursor.expect(")")?;
    }
    let preposition = match (loads, stores) {
        (true, true) => " on ",
        (true, false) => " from ",
        _ => " into ",
    };
    if cursor.eat(preposition) {
        pointer(cursor, &mut memory, start, names)?;
        offset(cursor)?;
    }
    annotations(cursor, &mut memory)?;
    cursor.expect(")")?;
    memory.text = cursor.since(start).to_string();
    Ok(memory)
}

fn pointer(cursor: &mut Cursor, memory: &mut MemoryOperand, start: usize, names: &Names) -> Result<(), Refused> {
    if cursor.eat("%fixed-stack.") {
        return frame_index(cursor, names.fixed_stack).map(|_| ());
    }
    if cursor.eat("%stack.") {
        let first = cursor.at().saturating_sub(start);
        let number = frame_index(cursor, names.stack)?;
        memory.number_at = (first, first.saturating_add(number.to_string().len()));
        memory.stack = Some(number);
        return Ok(());
    }
    if ["unknown-address", "stack", "got", "jump-table", "constant-pool"].iter().any(|word| cursor.eat(word)) {
        return Ok(());
    }
    if cursor.eat("custom ") {
        return cursor.quoted().map(|_| ());
    }
    if cursor.eat("`") {
        cursor.take_while(|c| c != '`');
        return cursor.expect("`");
    }
    cursor.eat("call-entry ");
    if cursor.eat("%ir.") || cursor.eat("@") || cursor.eat("&") {
        return cursor.quoted_or_name().map(|_| ());
    }
    Err(cursor.fail("expected what the memory operand points to"))
}

/// What stands behind the pointer, each at most once and in LLVM's order.
fn annotations(cursor: &mut Cursor, memory: &mut MemoryOperand) -> Result<(), Refused> {
    if cursor.eat(", align ") {
        memory.align = Some(cursor.number()?);
    }
    if cursor.eat(", basealign ") {
        memory.base_align = Some(cursor.number()?);
    }
    let metadata = [", !tbaa !", ", !alias.scope !", ", !noalias !", ", !noalias.addrspace !", ", !range !"];
    for word in metadata {
        if cursor.eat(word) {
            cursor.number::<u32>()?;
        }
    }
    if cursor.eat(", addrspace ") {
        memory.address_space = cursor.number()?;
    }
    Ok(())
}
