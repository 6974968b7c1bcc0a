//! Headers of both texts: fields (spec 13.1), live-ins (13.2), stack objects (13.3).

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::Limits;
use crate::model::{Function, Instruction, Kind, Operand, Refused, Row};
use crate::tables::{tables, Opcode, Processor, Register};

/// Header fields by section, each with what LLVM takes where it is absent (MIRYamlMapping.h, SIMachineFunctionInfo.h).
/// `?`: it works out a truth from the body. `!`: a field of another target or phase, of which only an empty one is read.
const FIELDS: [(&str, &str); 3] = [
    (
        "",
        "alignment=1 exposesReturnsTwice=false legalized=false regBankSelected=false selected=false failedISel=false \
         tracksRegLiveness=false hasWinCFI=false noPhis=? isSSA=? noVRegs=? hasFakeUses=? callsEHReturn=false \
         callsUnwindInit=false hasEHContTarget=false hasEHScopes=false hasEHFunclets=false isOutlined=false \
         debugInstrRef=false failsVerification=false tracksDebugUserValues=false entry_values=! callSites=! \
         debugValueSubstitutions= constants=! calledGlobals= machineMetadataNodes=",
    ),
    (
        "frameInfo.",
        "isFrameAddressTaken=false isReturnAddressTaken=false hasStackMap=false hasPatchPoint=false stackSize=0 \
         offsetAdjustment=0 maxAlignment=1 adjustsStack=false hasCalls=false stackProtector= functionContext= \
         maxCallFrameSize=4294967295 cvBytesOfCalleeSavedRegisters=0 hasOpaqueSPAdjustment=false hasVAStart=false \
         hasMustTailInVarArgFunc=false hasTailCall=false isCalleeSavedInfoValid=false localFrameSize=0 \
         framePointerPolicy= savePoint=! restorePoint=!",
    ),
    (
        "machineFunctionInfo.",
        "explicitKernArgSize=0 maxKernArgAlign=1 ldsSize=0 gdsSize=0 dynLDSAlign=1 isEntryFunction=false \
         isChainFunction=false noSignedZerosFPMath=false memoryBound=false waveLimiter=false hasSpilledSGPRs=false \
         hasSpilledVGPRs=false numWaveDispatchSGPRs=0 numWaveDispatchVGPRs=0 scratchRSrcReg=$private_rsrc_reg \
         frameOffsetReg=$fp_reg stackPtrOffsetReg=$sp_reg bytesInStackArgArea=0 returnsVoid=true psInputAddr=0 \
         psInputEnable=0 maxMemoryClusterDWords=8 mode.ieee=true mode.dx10-clamp=true mode.fp32-input-denormals=true \
         mode.fp32-output-denormals=true mode.fp64-fp16-input-denormals=true mode.fp64-fp16-output-denormals=true \
         highBitsOf32BitAddress=0 occupancy=0 wwmReservedRegs= spillPhysVGPRs= vgprForAGPRCopy= sgprForEXECCopy= \
         longBranchReservedReg= hasInitWholeWave=false dynamicVGPRBlockSize=0 scratchReservedForDynamicVGPRs=0 \
         numKernargPreloadSGPRs=0 isWholeWaveFunction=false minNumAGPRs= hasNoWWMPoolSGPRSpillFallback=false",
    ),
];

/// Rows of `stack:` and `fixedStack:`, and what LLVM takes where a key is absent.
const OBJECT: &str = "name= type=default offset=0 size=0 alignment=1 stack-id=default callee-saved-register= \
    callee-saved-restored=true local-offset= debug-info-variable= debug-info-expression= debug-info-location= \
    isImmutable=false isAliased=false";

fn pairs(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split(' ').filter_map(|word| word.split_once('='))
}

fn find(text: &'static str, key: &str) -> Option<&'static str> {
    pairs(text).find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn default(path: &str) -> Option<&'static str> {
    if let Some((argument, part)) =
        path.strip_prefix("machineFunctionInfo.argumentInfo.").and_then(|p| p.split_once('.'))
    {
        let is_known = tables().arguments.contains_key(argument) && matches!(part, "reg" | "offset" | "mask");
        return is_known.then_some("");
    }
    FIELDS.iter().rev().find_map(|(section, fields)| find(fields, path.strip_prefix(section)?))
}

/// Whether LLVM has this header field, with this kind of value.
pub fn is_known(path: &str, text: &str) -> bool {
    match default(path) {
        Some("true" | "false" | "?") => matches!(text, "true" | "false"),
        Some("!") => text.is_empty(),
        Some(default) if default.parse::<u64>().is_ok() => text.parse::<i64>().is_ok_and(|n| n.to_string() == text),
        default => default.is_some(),
    }
}

/// A field's value, that of LLVM where it is absent.
pub fn value(function: &Function, path: &str) -> String {
    match (function.fields.get(path), default(path)) {
        (Some(text), _) => text.clone(),
        (None, Some("?")) => worked_out(function, path).to_string(),
        (None, default) => default.unwrap_or("").trim_matches('!').to_string(),
    }
}

/// SGPRs that the arguments of a function take.
pub fn argument_sgprs(function: &Function) -> u64 {
    tables().arguments.iter().filter(|(name, _)| has_argument(function, name)).map(|(_, count)| u64::from(*count)).sum()
}

pub fn has_argument(function: &Function, name: &str) -> bool {
    let path = |part: &str| format!("machineFunctionInfo.argumentInfo.{name}.{part}");
    ["reg", "offset"].iter().any(|part| function.fields.contains_key(&path(part)))
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

fn refuse_object<T>(message: String) -> Result<T, Refused> {
    Err(Refused::new("object", message, ""))
}

/// Numbers of P for the stack objects of Q, by Q's numbers. Those that Q adds have numbers that P has not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Objects {
    pub stack: BTreeMap<u32, u32>,
}

/// Compares the headers (spec 13.1 to 13.3).
///
/// # Errors
/// `header`: a field or a live-in is not as it must be. `object`: a stack object is not.
pub fn compare(before: &Function, after: &Function, limits: &Limits, target: &Processor) -> Result<Objects, Refused> {
    if before.name != after.name {
        return refuse(format!("the functions are {} and {}", before.name, after.name));
    }
    let paths: BTreeSet<&str> = before.fields.keys().chain(after.fields.keys()).map(String::as_str).collect();
    for path in paths {
        let is_given = before.fields.contains_key(path) && after.fields.contains_key(path);
        if default(path) == Some("?") && !is_given && path != "noVRegs" {
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

/// A key's value in the row of an object, LLVM's where it is absent.
pub fn object<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).map_or(find(OBJECT, key).unwrap_or(""), String::as_str)
}

fn are_equal(one: &Row, other: &Row) -> bool {
    pairs(OBJECT).all(|(key, _)| object(one, key) == object(other, key))
}

/// As MachineFrameInfo::CreateSpillStackObject makes it.
fn is_spill_slot(row: &Row) -> bool {
    let is_positive = |key: &str| object(row, key).parse::<u64>().is_ok_and(|number| number > 0);
    let may_differ = ["type", "size", "alignment", "stack-id"];
    object(row, "type") == "spill-slot"
        && is_positive("size")
        && object(row, "alignment").parse().is_ok_and(u64::is_power_of_two)
        && matches!(object(row, "stack-id"), "default" | "sgpr-spill")
        && pairs(OBJECT).all(|(key, default)| may_differ.contains(&key) || object(row, key) == default)
}

fn compare_objects(before: &Function, after: &Function) -> Result<Objects, Refused> {
    let mut objects = Objects::default();
    let (fixed, other) = (&before.fixed_stack, &after.fixed_stack);
    if !fixed.keys().eq(other.keys()) || !fixed.values().zip(other.values()).all(|(old, new)| are_equal(old, new)) {
        return refuse_object("the functions have different fixed stack objects".into());
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
            return refuse_object(format!("stack object {old} is gone, or another"));
        }
        // A slot for scalars that is gone has no number in Q, so that nothing there names it.
    }
    let mut fresh = before.stack.keys().next_back().map_or(Some(0), |last| last.checked_add(1));
    for (new, row) in rest {
        let Some(number) = fresh.filter(|_| is_spill_slot(row)) else {
            return refuse_object(format!("stack object {new} is added, and is no spill slot"));
        };
        objects.stack.insert(*new, number);
        fresh = number.checked_add(1);
    }
    if let Some(unknown) = named.iter().find(|number| !objects.stack.contains_key(number)) {
        return refuse_object(format!("stack object {unknown} has no counterpart"));
    }
    Ok(objects)
}
