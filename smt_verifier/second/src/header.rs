//! Headers of both texts: fields (spec 13.1), live-ins (13.2), stack objects (13.3).

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::Limits;
use crate::model::{Function, Instruction, Kind, Operand, Refused, Row};
use crate::tables::{tables, Opcode, Processor, Register};

/// What may stand in a field, and what LLVM takes where it is absent (MIRYamlMapping.h, SIMachineFunctionInfo.h).
#[derive(Clone, Copy)]
enum Form {
    Truth(bool),
    /// A truth that LLVM works out from the body where it is absent.
    WorkedOut,
    Number(i64),
    Text(&'static str),
    /// A field of another target or another phase: only an empty one is read.
    Empty,
}

use Form::{Empty, Number, Text, Truth, WorkedOut};

const FIELDS: [(&str, Form); 88] = [
    ("alignment", Number(1)),
    ("exposesReturnsTwice", Truth(false)),
    ("legalized", Truth(false)),
    ("regBankSelected", Truth(false)),
    ("selected", Truth(false)),
    ("failedISel", Truth(false)),
    ("tracksRegLiveness", Truth(false)),
    ("hasWinCFI", Truth(false)),
    ("noPhis", WorkedOut),
    ("isSSA", WorkedOut),
    ("noVRegs", WorkedOut),
    ("hasFakeUses", WorkedOut),
    ("callsEHReturn", Truth(false)),
    ("callsUnwindInit", Truth(false)),
    ("hasEHContTarget", Truth(false)),
    ("hasEHScopes", Truth(false)),
    ("hasEHFunclets", Truth(false)),
    ("isOutlined", Truth(false)),
    ("debugInstrRef", Truth(false)),
    ("failsVerification", Truth(false)),
    ("tracksDebugUserValues", Truth(false)),
    ("entry_values", Empty),
    ("callSites", Empty),
    ("debugValueSubstitutions", Text("")),
    ("constants", Empty),
    ("calledGlobals", Text("")),
    ("machineMetadataNodes", Text("")),
    ("frameInfo.isFrameAddressTaken", Truth(false)),
    ("frameInfo.isReturnAddressTaken", Truth(false)),
    ("frameInfo.hasStackMap", Truth(false)),
    ("frameInfo.hasPatchPoint", Truth(false)),
    ("frameInfo.stackSize", Number(0)),
    ("frameInfo.offsetAdjustment", Number(0)),
    ("frameInfo.maxAlignment", Number(1)),
    ("frameInfo.adjustsStack", Truth(false)),
    ("frameInfo.hasCalls", Truth(false)),
    ("frameInfo.stackProtector", Text("")),
    ("frameInfo.functionContext", Text("")),
    ("frameInfo.maxCallFrameSize", Number(4_294_967_295)),
    ("frameInfo.cvBytesOfCalleeSavedRegisters", Number(0)),
    ("frameInfo.hasOpaqueSPAdjustment", Truth(false)),
    ("frameInfo.hasVAStart", Truth(false)),
    ("frameInfo.hasMustTailInVarArgFunc", Truth(false)),
    ("frameInfo.hasTailCall", Truth(false)),
    ("frameInfo.isCalleeSavedInfoValid", Truth(false)),
    ("frameInfo.localFrameSize", Number(0)),
    ("frameInfo.savePoint", Empty),
    ("frameInfo.restorePoint", Empty),
    ("machineFunctionInfo.explicitKernArgSize", Number(0)),
    ("machineFunctionInfo.maxKernArgAlign", Number(1)),
    ("machineFunctionInfo.ldsSize", Number(0)),
    ("machineFunctionInfo.gdsSize", Number(0)),
    ("machineFunctionInfo.dynLDSAlign", Number(1)),
    ("machineFunctionInfo.isEntryFunction", Truth(false)),
    ("machineFunctionInfo.isChainFunction", Truth(false)),
    ("machineFunctionInfo.noSignedZerosFPMath", Truth(false)),
    ("machineFunctionInfo.memoryBound", Truth(false)),
    ("machineFunctionInfo.waveLimiter", Truth(false)),
    ("machineFunctionInfo.hasSpilledSGPRs", Truth(false)),
    ("machineFunctionInfo.hasSpilledVGPRs", Truth(false)),
    ("machineFunctionInfo.numWaveDispatchSGPRs", Number(0)),
    ("machineFunctionInfo.numWaveDispatchVGPRs", Number(0)),
    ("machineFunctionInfo.scratchRSrcReg", Text("$private_rsrc_reg")),
    ("machineFunctionInfo.frameOffsetReg", Text("$fp_reg")),
    ("machineFunctionInfo.stackPtrOffsetReg", Text("$sp_reg")),
    ("machineFunctionInfo.bytesInStackArgArea", Number(0)),
    ("machineFunctionInfo.returnsVoid", Truth(true)),
    ("machineFunctionInfo.psInputAddr", Number(0)),
    ("machineFunctionInfo.psInputEnable", Number(0)),
    ("machineFunctionInfo.maxMemoryClusterDWords", Number(8)),
    ("machineFunctionInfo.mode.ieee", Truth(true)),
    ("machineFunctionInfo.mode.dx10-clamp", Truth(true)),
    ("machineFunctionInfo.mode.fp32-input-denormals", Truth(true)),
    ("machineFunctionInfo.mode.fp32-output-denormals", Truth(true)),
    ("machineFunctionInfo.mode.fp64-fp16-input-denormals", Truth(true)),
    ("machineFunctionInfo.mode.fp64-fp16-output-denormals", Truth(true)),
    ("machineFunctionInfo.highBitsOf32BitAddress", Number(0)),
    ("machineFunctionInfo.occupancy", Number(0)),
    ("machineFunctionInfo.wwmReservedRegs", Text("")),
    ("machineFunctionInfo.spillPhysVGPRs", Text("")),
    ("machineFunctionInfo.vgprForAGPRCopy", Text("")),
    ("machineFunctionInfo.sgprForEXECCopy", Text("")),
    ("machineFunctionInfo.longBranchReservedReg", Text("")),
    ("machineFunctionInfo.hasInitWholeWave", Truth(false)),
    ("machineFunctionInfo.dynamicVGPRBlockSize", Number(0)),
    ("machineFunctionInfo.scratchReservedForDynamicVGPRs", Number(0)),
    ("machineFunctionInfo.numKernargPreloadSGPRs", Number(0)),
    ("machineFunctionInfo.isWholeWaveFunction", Truth(false)),
];

/// Arguments in `argumentInfo`, each with the SGPRs it takes (SIMachineFunctionInfo, parseMachineFunctionInfo).
pub const ARGUMENTS: [(&str, u32); 19] = [
    ("privateSegmentBuffer", 4),
    ("dispatchPtr", 2),
    ("queuePtr", 2),
    ("kernargSegmentPtr", 2),
    ("dispatchID", 2),
    ("flatScratchInit", 2),
    ("privateSegmentSize", 1),
    ("LDSKernelId", 1),
    ("firstKernArgPreloadReg", 0),
    ("workGroupIDX", 1),
    ("workGroupIDY", 1),
    ("workGroupIDZ", 1),
    ("workGroupInfo", 1),
    ("privateSegmentWaveByteOffset", 1),
    ("implicitArgPtr", 0),
    ("implicitBufferPtr", 2),
    ("workItemIDX", 0),
    ("workItemIDY", 0),
    ("workItemIDZ", 0),
];

fn form(path: &str) -> Option<Form> {
    if let Some((_, form)) = FIELDS.iter().find(|(field, _)| *field == path) {
        return Some(*form);
    }
    let (argument, part) = path.strip_prefix("machineFunctionInfo.argumentInfo.")?.split_once('.')?;
    ARGUMENTS.iter().find(|(name, _)| *name == argument)?;
    matches!(part, "reg" | "offset" | "mask").then_some(Text(""))
}

/// Whether LLVM has this header field, with this kind of value.
pub fn is_known(path: &str, text: &str) -> bool {
    match form(path) {
        Some(Truth(_) | WorkedOut) => matches!(text, "true" | "false"),
        Some(Number(_)) => text.parse::<i64>().is_ok_and(|number| number.to_string() == text),
        Some(Text(_)) => true,
        Some(Empty) => text.is_empty(),
        None => false,
    }
}

/// A field's value, that of LLVM where it is absent.
pub fn value(function: &Function, path: &str) -> String {
    if let Some(text) = function.fields.get(path) {
        return text.clone();
    }
    match form(path) {
        Some(Truth(default)) => default.to_string(),
        Some(Number(default)) => default.to_string(),
        Some(Text(default)) => default.to_string(),
        Some(WorkedOut) => worked_out(function, path).to_string(),
        _ => String::new(),
    }
}

/// A number field's value; None where it does not fit.
pub fn number(function: &Function, path: &str) -> Option<u64> {
    value(function, path).parse().ok()
}

pub fn is_true(function: &Function, path: &str) -> bool {
    value(function, path) == "true"
}

/// Registers that a field names, without `$`.
pub fn registers_in(function: &Function, path: &str) -> Vec<String> {
    let text = value(function, path);
    text.split(", ").filter_map(|name| name.strip_prefix('$')).map(String::from).collect()
}

/// MIRParserImpl::computeFunctionProperties.
fn worked_out(function: &Function, path: &str) -> bool {
    match path {
        "noPhis" => !instructions(function).any(|i| matches!(i.opcode.as_str(), "PHI" | "G_PHI")),
        "noVRegs" => !has_virtual(function),
        "hasFakeUses" => instructions(function).any(|i| i.opcode == "FAKE_USE"),
        _ => {
            let mut seen = BTreeSet::new();
            let mut definitions = operands(function).filter(|op| op.is_def());
            definitions.all(|op| op.sub.is_empty() && op.vreg.is_none_or(|vreg| seen.insert(vreg)))
        }
    }
}

fn instructions(function: &Function) -> impl Iterator<Item = &Instruction> {
    function.blocks.iter().flat_map(|block| &block.instructions)
}

fn operands(function: &Function) -> impl Iterator<Item = &Operand> {
    instructions(function).flat_map(|instruction| &instruction.operands)
}

pub fn has_virtual(function: &Function) -> bool {
    operands(function).any(|operand| operand.vreg.is_some())
}

/// Units of the physical registers that some instructions name.
fn named_units<'a>(operands: impl Iterator<Item = &'a Operand>) -> BTreeSet<u32> {
    let names: BTreeSet<&str> = operands.filter(|op| op.is_physical()).map(|op| op.register.as_str()).collect();
    names.into_iter().filter_map(|name| tables().register(name)).flat_map(|register| register.units).collect()
}

fn opcode_of(instruction: &Instruction) -> Option<&'static Opcode> {
    tables().opcode(&instruction.opcode)
}

fn is_whole_wave_move(opcode: &Opcode) -> bool {
    opcode.has("wwm-copy") || opcode.value("spill").starts_with("WWM_")
}

fn refuse<T>(message: String) -> Result<T, Refused> {
    Err(Refused::new("header", message, ""))
}

/// Numbers of P for the stack objects of Q, by Q's numbers. Those that Q adds have numbers that P has not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Objects {
    pub stack: BTreeMap<u32, u32>,
    pub fixed: BTreeMap<u32, u32>,
}

/// Compares the headers (spec 13.1 to 13.3).
///
/// # Errors
/// `header`: a field, a live-in or an object is not as it must be.
pub fn compare(before: &Function, after: &Function, limits: &Limits, target: &Processor) -> Result<Objects, Refused> {
    if before.name != after.name {
        return refuse(format!("the functions are {} and {}", before.name, after.name));
    }
    let paths: BTreeSet<&str> = before.fields.keys().chain(after.fields.keys()).map(String::as_str).collect();
    for path in paths {
        let is_given = before.fields.contains_key(path) && after.fields.contains_key(path);
        if matches!(form(path), Some(WorkedOut)) && !is_given && path != "noVRegs" {
            // Where a text leaves it out, LLVM finds what the other says, or refuses the text.
            if path == "isSSA" || worked_out(before, path) == worked_out(after, path) {
                continue;
            }
        }
        let (old, new) = (value(before, path), value(after, path));
        if old != new && !may_change(path, before, after, limits, target) {
            return refuse(format!("the field {path} is `{old}` and becomes `{new}`"));
        }
    }
    if !is_true(after, "tracksRegLiveness") {
        return refuse("liveness is not tracked: LLVM's later passes would not heed live-ins".into());
    }
    let scalar_spills = |i: &Instruction| opcode_of(i).is_some_and(|opcode| opcode.value("spill").starts_with("S,"));
    if instructions(after).any(scalar_spills) && !is_true(after, "machineFunctionInfo.hasSpilledSGPRs") {
        return refuse("scalars are spilled, and hasSpilledSGPRs is false".into());
    }
    for (old, new) in before.blocks.iter().zip(&after.blocks) {
        if old.attributes != new.attributes {
            let message = format!("a block is `{}` and becomes `{}`", old.attributes, new.attributes);
            return Err(Refused::new("header", message, format!("bb.{}", new.number)));
        }
    }
    compare_liveins(before, after)?;
    check_cells(after)?;
    compare_objects(before, after)
}

/// Whether a field's change is one that spec 13.1 allows.
fn may_change(path: &str, before: &Function, after: &Function, limits: &Limits, target: &Processor) -> bool {
    let rises = !is_true(before, path) && is_true(after, path);
    match path {
        "noVRegs" | "frameInfo.isCalleeSavedInfoValid" => rises && !has_virtual(after),
        "isSSA" => is_true(before, path),
        "tracksDebugUserValues" | "machineFunctionInfo.hasSpilledSGPRs" | "machineFunctionInfo.hasSpilledVGPRs" => {
            rises
        }
        "frameInfo.maxAlignment" => {
            let objects = before.stack.values().chain(before.fixed_stack.values());
            let own = objects.filter_map(|row| row.get("alignment")?.parse::<u64>().ok()).max().unwrap_or(1);
            let old = number(before, path).unwrap_or(u64::MAX);
            number(after, path).is_some_and(|new| new >= old && new <= old.max(own).max(4))
        }
        "machineFunctionInfo.sgprForEXECCopy" => {
            let is_allowed = |register: &Register| {
                let named = named_units(operands(after));
                register.file == 's'
                    && register.units.len() as u32 == target.wave_size / 16
                    && register.units.iter().all(|unit| limits.allocatable.contains(unit) && !named.contains(unit))
            };
            let new = value(after, path);
            if new.is_empty() {
                let moves = |i: &Instruction| opcode_of(i).is_none_or(is_whole_wave_move);
                return !has_virtual(after) && !instructions(after).any(moves);
            }
            let register = new.strip_prefix('$').and_then(|name| tables().register(name));
            !value(before, path).is_empty() && register.is_some_and(|register| is_allowed(&register))
        }
        "machineFunctionInfo.wwmReservedRegs" => grows(path, before, after, limits, &named_units(operands(before))),
        "machineFunctionInfo.spillPhysVGPRs" => {
            let is_free = |i: &&Instruction| {
                let is_one = |o: &Opcode| {
                    o.has("lane-save") || o.has("lane-restore") || o.has("no-code") || is_whole_wave_move(o)
                };
                !opcode_of(i).is_some_and(is_one)
            };
            let mut named = named_units(operands(before));
            named.extend(named_units(instructions(after).filter(is_free).flat_map(|i| &i.operands)));
            grows(path, before, after, limits, &named)
        }
        _ => false,
    }
}

/// Whether a list of VGPRs keeps its registers, and gets more that may be allocated and are not among `named`.
fn grows(path: &str, before: &Function, after: &Function, limits: &Limits, named: &BTreeSet<u32>) -> bool {
    let (old, new) = (registers_in(before, path), registers_in(after, path));
    let is_allowed = |name: &String| {
        old.contains(name)
            || tables().register(name).is_some_and(|register| {
                let is_free = |unit: &u32| limits.allocatable.contains(unit) && !named.contains(unit);
                register.file == 'v' && register.units.len() == 2 && register.units.iter().all(is_free)
            })
    };
    let is_complete = new.len() == value(after, path).split(", ").count();
    is_complete && old.iter().all(|name| new.contains(name)) && new.iter().all(is_allowed)
}

fn compare_liveins(before: &Function, after: &Function) -> Result<(), Refused> {
    if before.liveins.len() != after.liveins.len() {
        return refuse("the functions have different live-ins".into());
    }
    let occurring: BTreeSet<u32> = operands(after).filter_map(|operand| operand.vreg).collect();
    for (old, new) in before.liveins.iter().zip(&after.liveins) {
        let is_allowed = new.vreg.is_none_or(|vreg| old.vreg == Some(vreg) || !occurring.contains(&vreg));
        if old.register != new.register || !is_allowed {
            return refuse(format!("the live-in ${} becomes ${}", old.register, new.register));
        }
    }
    Ok(())
}

/// Registers that hold scalars in their lanes are known to LLVM as such (spec 13.2).
fn check_cells(after: &Function) -> Result<(), Refused> {
    let must_be_listed = !has_virtual(after) && !is_true(after, "machineFunctionInfo.isEntryFunction");
    let listed = registers_in(after, "machineFunctionInfo.wwmReservedRegs");
    for instruction in instructions(after).filter(|i| opcode_of(i).is_some_and(|opcode| opcode.has("lane-save"))) {
        let Some(register) = instruction.operands.first() else { continue };
        let is_marked = match register.vreg {
            Some(vreg) => after.registers.get(&vreg).is_some_and(|row| row.flags.iter().any(|flag| flag == "WWM_REG")),
            None => !must_be_listed || listed.contains(&register.register),
        };
        if !is_marked {
            let message = format!("{} holds scalars and is no whole-wave register", register.text);
            return Err(Refused::new("header", message, format!("line {}", instruction.line)));
        }
    }
    Ok(())
}

const ROW_DEFAULTS: [(&str, &str); 14] = [
    ("name", ""),
    ("type", "default"),
    ("offset", "0"),
    ("size", "0"),
    ("alignment", "1"),
    ("stack-id", "default"),
    ("callee-saved-register", ""),
    ("callee-saved-restored", "true"),
    ("local-offset", ""),
    ("debug-info-variable", ""),
    ("debug-info-expression", ""),
    ("debug-info-location", ""),
    ("isImmutable", "false"),
    ("isAliased", "false"),
];

/// A key's value in the row of an object, LLVM's where it is absent.
pub fn object<'a>(row: &'a Row, key: &str) -> &'a str {
    let default = ROW_DEFAULTS.iter().find(|(name, _)| *name == key).map_or("", |(_, default)| default);
    row.get(key).map_or(default, String::as_str)
}

fn are_equal(one: &Row, other: &Row) -> bool {
    ROW_DEFAULTS.iter().all(|(key, _)| object(one, key) == object(other, key))
}

/// As MachineFrameInfo::CreateSpillStackObject makes it.
fn is_spill_slot(row: &Row) -> bool {
    let is_positive = |key: &str| object(row, key).parse::<u64>().is_ok_and(|number| number > 0);
    let may_differ = ["type", "size", "alignment", "stack-id"];
    object(row, "type") == "spill-slot"
        && is_positive("size")
        && object(row, "alignment").parse().is_ok_and(u64::is_power_of_two)
        && matches!(object(row, "stack-id"), "default" | "sgpr-spill")
        && ROW_DEFAULTS.iter().all(|(key, default)| may_differ.contains(key) || object(row, key) == *default)
}

fn compare_objects(before: &Function, after: &Function) -> Result<Objects, Refused> {
    let mut objects = Objects::default();
    if before.fixed_stack.len() != after.fixed_stack.len() {
        return refuse("the functions have different fixed stack objects".into());
    }
    for ((old, old_row), (new, new_row)) in before.fixed_stack.iter().zip(&after.fixed_stack) {
        if !are_equal(old_row, new_row) {
            return refuse(format!("fixed stack object {old} is another than object {new}"));
        }
        objects.fixed.insert(*new, *old);
    }
    let named: BTreeSet<u32> = instructions(after)
        .flat_map(|i| {
            let operands = i.operands.iter().filter(|op| op.kind == Kind::FrameIndex).map(|op| op.number);
            operands.chain(i.memory.iter().filter_map(|memory| memory.stack))
        })
        .collect();
    let mut rest = after.stack.iter().peekable();
    for (old, row) in &before.stack {
        if let Some((new, _)) = rest.next_if(|(_, other)| are_equal(row, other)) {
            objects.stack.insert(*new, *old);
        } else if object(row, "stack-id") != "sgpr-spill" || object(row, "type") != "spill-slot" {
            return refuse(format!("stack object {old} is gone, or another"));
        }
        // A slot for scalars that is gone has no number in Q, so that nothing there names it.
    }
    let mut fresh = before.stack.keys().next_back().map_or(Some(0), |last| last.checked_add(1));
    for (new, row) in rest {
        let Some(number) = fresh.filter(|_| is_spill_slot(row)) else {
            return refuse(format!("stack object {new} is added, and is no spill slot"));
        };
        objects.stack.insert(*new, number);
        fresh = number.checked_add(1);
    }
    if let Some(unknown) = named.iter().find(|number| !objects.stack.contains_key(number)) {
        return refuse(format!("stack object {unknown} has no counterpart"));
    }
    Ok(objects)
}
