//! Headers of both texts: fields (spec 13.1), live-ins (13.2), stack objects (13.3).

use std::collections::{BTreeMap, BTreeSet};

use crate::lanes::Set;
use crate::limits::Limits;
use crate::model::{ensure, need, Done, Function, Instruction, Kind, Row};
use crate::tables::{tables, Processor};

/// What a header says of the machine function, by the last part of its path.
pub fn info(function: &Function, key: &str) -> String {
    value(function, &format!("machineFunctionInfo.{key}"))
}

/// A field's value, that of LLVM where it is absent; empty where LLVM always prints it.
pub fn value(function: &Function, path: &str) -> String {
    let default = tables().fields.get(path).map_or("", |field| field.default);
    let default = match default {
        "[]" | "''" | "-" => "",
        default => default,
    };
    function.fields.get(path).map_or(default, String::as_str).to_string()
}

/// LLVM lays out the frame, of a called function for what it saves too, as the header says (SIMachineFunctionInfo's
/// constructor, AMDGPU::isEntryFunctionCC).
///
/// # Errors
/// `header`: it says something else than LLVM's would.
pub fn frame(p: &Function, q: &Function, convention: &str) -> Done {
    let stage = convention.strip_prefix("amdgpu_").unwrap_or("");
    let enters =
        convention == "spir_kernel" || matches!(stage, "kernel" | "cs" | "es" | "gs" | "hs" | "ls" | "ps" | "vs");
    let mut given = q.blocks.first().into_iter().flat_map(|block| &block.liveins);
    let overwritten = given.any(|(register, _)| register.name == "scc" || register.name.starts_with("m0"));
    ensure!(enters || !overwritten, "header", "", "the first block declares what LLVM's prologue may overwrite");
    ensure!((info(p, "isEntryFunction") == "true") == enters, "header", "", "{convention} against isEntryFunction");
    let more = q.stack.len() > p.stack.len();
    let calls = q.instructions().any(|i| i.has("call") && (more || !enters && !i.has("returns")));
    ensure!(!calls || value(q, "frameInfo.hasCalls") == "true", "header", "", "it calls, and hasCalls is not true");
    let frame = info(p, "frameOffsetReg");
    ensure!(matches!(&*frame, "" | "$sgpr33" | "$fp_reg"), "header", "", "the frame pointer is s33, not {frame}");
    Ok(())
}

/// The scratch of an entry function that has stack objects in Q is where the machine says: the wave's offset stands
/// behind all other SGPRs that the function is given (SIFrameLowering::emitEntryFunctionPrologue).
///
/// # Errors
/// `header`: the text says something else of it.
pub fn scratch(p: &Function, q: &Function, target: &Processor, strings: &BTreeMap<String, String>) -> Done {
    if target.architected_flat_scratch || info(p, "isEntryFunction") != "true" || !is_in_memory(q) {
        return Ok(());
    }
    let kept = registers_in(p, "scratchRSrcReg").iter().find_map(|name| tables().register(name));
    let given = q.blocks.first().into_iter().flat_map(|block| &block.liveins);
    let is_taken = |unit: &u32| given.clone().any(|(register, _)| register.units.contains(unit));
    let fits = kept.is_some_and(|kept| kept.file == 's' && !kept.units.iter().any(is_taken));
    ensure!(fits, "header", "", "no place is left for the scratch descriptor");
    let mut last = info(p, "numKernargPreloadSGPRs").parse().unwrap_or(0_u32);
    for argument in tables().arguments.values().filter(|argument| has_argument(p, argument.name)) {
        last += argument.sgprs;
        let name = argument.name;
        let is_one = match name.strip_prefix("workGroup") {
            Some(rest) => rest != "Info",
            None => name != "LDSKernelId",
        };
        ensure!(is_one, "header", "", "{name} is nothing that the machine gives");
    }
    let is_at = |name: &str, place: &str| {
        let at = p.fields.get(&format!("machineFunctionInfo.argumentInfo.{name}"));
        at.is_some_and(|at| *at == format!("{{ reg: '$sgpr{place}' }}"))
    };
    let offset = last.saturating_sub(1).to_string();
    let fits = is_at("privateSegmentBuffer", "0_sgpr1_sgpr2_sgpr3") && is_at("privateSegmentWaveByteOffset", &offset);
    ensure!(fits, "header", "", "the scratch descriptor, or s{offset} for the wave's offset, is not given");
    for axis in ["X", "Y", "Z"] {
        let is_left_out = strings.contains_key(&format!("amdgpu-no-workgroup-id-{}", axis.to_lowercase()));
        let is_asked = axis == "X" || !is_left_out;
        ensure!(
            has_argument(p, &format!("workGroupID{axis}")) == is_asked,
            "header",
            "",
            "the number {axis} of a group"
        );
    }
    Ok(())
}

/// It has stack objects that do not become lanes.
pub fn is_in_memory(function: &Function) -> bool {
    function.stack.values().any(|row| object(row, "stack-id") != "sgpr-spill")
}

/// A called function that has a frame is given its stack and scratch descriptor where LLVM has them, and has objects
/// for all of its stack arguments, behind which LLVM begins that frame: it may pass them on.
///
/// # Errors
/// `header`: one is elsewhere.
pub fn given(p: &Function, convention: &str, target: &Processor) -> Done {
    let pointer = info(p, "stackPtrOffsetReg");
    ensure!(pointer == "$sgpr32", "header", "", "a called function is given its stack in s32, not {pointer}");
    let given = if convention.contains("chain") { "48_sgpr49_sgpr50_sgpr51" } else { "0_sgpr1_sgpr2_sgpr3" };
    let descriptor = info(p, "scratchRSrcReg");
    let is_none = target.architected_flat_scratch && matches!(&*descriptor, "" | "$private_rsrc_reg");
    let is_given = descriptor.strip_prefix("$sgpr").map_or(is_none, |own| own == given);
    ensure!(is_given, "header", "", "the scratch descriptor is not in s{given}, but in {descriptor}");
    let number = |row: &Row, key: &str| object(row, key).parse().unwrap_or(0_i64);
    let known = p.fixed_stack.values().map(|row| number(row, "offset") + number(row, "size")).max().unwrap_or(0);
    let asked = info(p, "bytesInStackArgArea");
    let fits = asked.is_empty() || asked.parse().is_ok_and(|asked: i64| asked <= known.max(0));
    ensure!(fits, "header", "", "stack arguments of {asked} bytes, of which objects have {known}");
    Ok(())
}

pub fn has_argument(function: &Function, name: &str) -> bool {
    function.fields.contains_key(&format!("machineFunctionInfo.argumentInfo.{name}"))
}

/// Registers that a field of `machineFunctionInfo` names, without `$`.
pub fn registers_in(function: &Function, key: &str) -> Vec<String> {
    info(function, key).split(", ").filter_map(|name| name.strip_prefix('$')).map(String::from).collect()
}

/// What MIRParserImpl::computeFunctionProperties finds where a text does not say it.
fn worked_out(function: &Function, path: &str) -> Option<bool> {
    Some(match path {
        "noPhis" => !function.instructions().any(|i| matches!(i.name.as_str(), "PHI" | "G_PHI")),
        "noVRegs" => !function.has_virtual(),
        "hasFakeUses" => function.instructions().any(|i| i.name == "FAKE_USE"),
        "isSSA" => {
            let mut seen = BTreeSet::new();
            let mut defined = function.operands().filter(|o| o.is_def());
            defined.all(|o| o.sub.is_empty() && o.vreg.is_none_or(|vreg| seen.insert(vreg)))
        }
        _ => return None,
    })
}

/// Compares the headers (spec 13.1 to 13.3). Stack objects that Q adds get numbers that P has not.
///
/// # Errors
/// `header`: a field or a live-in is not as it must be. `object`: a stack object is not.
pub fn compare(p: &Function, q: &Function, limits: &Limits, target: &Processor) -> Done<Objects> {
    ensure!(p.name == q.name, "header", "", "the functions are {} and {}", p.name, q.name);
    for text in [p, q] {
        let listed = ["wwmReservedRegs", "spillPhysVGPRs"].map(|key| registers_in(text, key));
        for names in listed.into_iter().chain([text.liveins.iter().map(|(name, _)| name.clone()).collect()]) {
            let once = names.iter().collect::<BTreeSet<_>>().len() == names.len();
            ensure!(once, "header", text.line, "a list of registers names one twice");
        }
    }
    let paths: BTreeSet<&String> = p.fields.keys().chain(q.fields.keys()).collect();
    for path in paths {
        let of = |function: &Function| match (function.fields.get(path), worked_out(function, path)) {
            (None, Some(found)) => found.to_string(),
            _ => value(function, path),
        };
        let is_given = p.fields.contains_key(path) && q.fields.contains_key(path);
        // Where a text leaves it out, LLVM finds what the other says, or refuses the text.
        let found = worked_out(p, path).is_some() && !is_given && path != "noVRegs";
        if found && (path == "isSSA" || worked_out(p, path) == worked_out(q, path)) {
            continue;
        }
        let (old, new) = (of(p), of(q));
        // Its number may mean another object in Q, and spill code does not know that others write there.
        let names_object = new.contains("%stack.") || new.contains("%fixed-stack.");
        ensure!(!names_object, "header", "", "the field {path} names a stack object");
        let fits = old == new || may_change(path, (p, &old), (q, &new), limits, target);
        ensure!(fits, "header", "", "the field {path} is `{old}` and becomes `{new}`");
    }
    let liveness = value(q, "tracksRegLiveness") == "true";
    ensure!(liveness, "header", "", "liveness is not tracked: LLVM's later passes would not heed live-ins");
    let spills = q.instructions().any(|i| i.spill().is_some_and(|(kind, ..)| kind == "S"));
    let known = !spills || info(q, "hasSpilledSGPRs") == "true";
    ensure!(known, "header", "", "scalars are spilled, and hasSpilledSGPRs is false");
    compare_liveins(p, q)?;
    check_cells(q)?;
    compare_objects(p, q)
}

/// Whether a field's change is one that spec 13.1 allows.
fn may_change(
    path: &str, (p, old): (&Function, &str), (q, new): (&Function, &str), limits: &Limits, target: &Processor,
) -> bool {
    let rises = (old, new) == ("false", "true");
    match path.trim_start_matches("machineFunctionInfo.") {
        "noVRegs" | "frameInfo.isCalleeSavedInfoValid" => rises && !q.has_virtual(),
        "isSSA" => old == "true",
        "tracksDebugUserValues" | "hasSpilledSGPRs" | "hasSpilledVGPRs" => rises,
        "frameInfo.maxAlignment" => {
            let rows = p.stack.values().chain(p.fixed_stack.values());
            let own = rows.filter_map(|row| row.get("alignment")?.parse::<u64>().ok()).max().unwrap_or(1);
            let (old, new) = (old.parse().unwrap_or(u64::MAX), new.parse().unwrap_or(0));
            new >= old && new <= old.max(own).max(4)
        }
        "sgprForEXECCopy" if new.is_empty() => !q.has_virtual() && !q.instructions().any(Instruction::is_whole_wave),
        "sgprForEXECCopy" => {
            let register = new.strip_prefix('$').and_then(|name| tables().register(name));
            let named = q.units();
            !old.is_empty()
                && register.is_some_and(|register| {
                    register.file == 's'
                        && register.units.len() as u32 == target.wave_size / 16
                        && register.units.iter().all(|unit| limits.allocatable.contains(unit) && !named.contains(unit))
                })
        }
        "wwmReservedRegs" => grows(old, new, limits, &p.units()),
        "spillPhysVGPRs" => {
            let may_name =
                |i: &&Instruction| i.has("lane-save") || i.has("lane-restore") || i.has("no-code") || i.is_whole_wave();
            let others = q.instructions().filter(|i| !may_name(i)).flat_map(|i| &i.operands);
            let mut named = p.units();
            named.extend(others.filter_map(|operand| operand.register).flat_map(|register| &register.units));
            grows(old, new, limits, &named)
        }
        _ => false,
    }
}

/// Whether a list of VGPRs keeps its registers, and gets more that may be allocated and are not among `named`.
fn grows(old: &str, new: &str, limits: &Limits, named: &Set<u32>) -> bool {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split(", ").collect(), new.split(", ").collect());
    let is_allowed = |name: &&str| {
        let register = name.strip_prefix('$').and_then(|name| tables().register(name));
        let is_free = |unit: &u32| limits.allocatable.contains(unit) && !named.contains(unit);
        old.contains(name)
            || register.is_some_and(|r| r.file == 'v' && r.units.len() == 2 && r.units.iter().all(is_free))
    };
    old.iter().all(|name| name.is_empty() || new.contains(name)) && new.iter().all(is_allowed)
}

fn compare_liveins(p: &Function, q: &Function) -> Done {
    ensure!(p.liveins.len() == q.liveins.len(), "header", "", "the functions have different live-ins");
    let occurring: BTreeSet<u32> = q.operands().filter_map(|operand| operand.vreg).collect();
    for ((old, of), (new, to)) in p.liveins.iter().zip(&q.liveins) {
        let class = |function: &Function, vreg: u32| function.registers.get(&vreg).map(|row| row.class.name);
        let same = |vreg| of.is_some_and(|own| class(p, own).is_some() && class(p, own) == class(q, vreg));
        let fits = old == new && to.is_none_or(|vreg| same(vreg) || !occurring.contains(&vreg));
        ensure!(fits, "header", "", "the live-in ${old} becomes ${new}");
    }
    Ok(())
}

/// Registers that hold scalars in their lanes are known to LLVM as such (spec 13.2).
fn check_cells(q: &Function) -> Done {
    let must_be_listed = !q.has_virtual() && info(q, "isEntryFunction") != "true";
    let listed = registers_in(q, "wwmReservedRegs");
    for i in q.instructions().filter(|i| i.has("lane-save")) {
        let Some(holder) = i.operands.first() else { continue };
        let is_marked = match holder.vreg {
            Some(vreg) => q.registers.get(&vreg).is_some_and(|row| row.whole_wave),
            None => !must_be_listed || listed.iter().any(|name| holder.names(name)),
        };
        ensure!(is_marked, "header", i, "{} holds scalars and is no whole-wave register", holder.text);
    }
    Ok(())
}

/// What LLVM takes where an entry of an object is absent.
fn default(key: &str) -> &'static str {
    let mut entries = ["stack", "fixedStack"].iter().filter_map(|list| tables().entries.get(list)).flatten();
    entries.find(|entry| entry.name == key).map_or("", |entry| entry.default.trim_matches(['-', '\'']))
}

/// An entry in the row of an object, LLVM's where it is absent.
pub fn object<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).map_or(default(key), String::as_str)
}

fn are_equal(one: &Row, other: &Row) -> bool {
    one.keys().chain(other.keys()).all(|key| object(one, key) == object(other, key))
}

/// As MachineFrameInfo::CreateSpillStackObject makes it.
fn is_spill_slot(row: &Row) -> bool {
    let number = |key: &str| object(row, key).parse::<u64>().unwrap_or(0);
    let may_differ = ["type", "size", "alignment", "stack-id"];
    object(row, "type") == "spill-slot"
        && matches!(number("alignment"), 2 | 4)
        && (1..=128).contains(&number("size"))
        && number("size") % number("alignment") == 0
        && matches!(object(row, "stack-id"), "default" | "sgpr-spill")
        && row.iter().all(|(key, value)| may_differ.contains(&key.as_str()) || value == default(key))
}

/// Numbers of P for the objects of Q, by Q's numbers: of the stack, and fixed ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Objects {
    pub stack: BTreeMap<u32, u32>,
    pub fixed: BTreeMap<u32, u32>,
}

fn compare_objects(p: &Function, q: &Function) -> Done<Objects> {
    let mut objects = Objects::default();
    for (old, row) in &p.fixed_stack {
        let same = q.fixed_stack.iter().find(|(new, other)| !objects.fixed.contains_key(new) && are_equal(row, other));
        objects.fixed.extend(same.map(|(new, _)| (*new, *old)));
    }
    let fixed = objects.fixed.len() == p.fixed_stack.len() && p.fixed_stack.len() == q.fixed_stack.len();
    ensure!(fixed, "object", "", "the functions have different fixed stack objects");
    let mut rest = q.stack.iter().peekable();
    for (old, row) in &p.stack {
        if let Some((new, _)) = rest.next_if(|(_, other)| are_equal(row, other)) {
            objects.stack.insert(*new, *old);
        } else {
            // A slot for scalars that is gone has no number in Q, so that nothing there names it.
            let may_go = object(row, "stack-id") == "sgpr-spill" && object(row, "type") == "spill-slot";
            ensure!(may_go, "object", "", "stack object {old} is gone, or another");
        }
    }
    let mut fresh = p.stack.keys().next_back().map_or(Some(0), |last| last.checked_add(1));
    for (new, row) in rest {
        let number = need!(fresh.filter(|_| is_spill_slot(row)), "object", "", "stack object {new} is no spill slot");
        objects.stack.insert(*new, number);
        fresh = number.checked_add(1);
    }
    for i in q.instructions() {
        let operands = i.operands.iter().filter(|o| o.kind == Kind::FrameIndex).map(|o| o.number);
        let in_memory = i.memory.iter().filter_map(|m| m.object).filter(|object| object.0 == Kind::FrameIndex);
        let unknown = operands.chain(in_memory.map(|object| object.1)).find(|n| !objects.stack.contains_key(n));
        ensure!(unknown.is_none(), "object", i, "stack object {} has no counterpart", unknown.unwrap_or_default());
    }
    Ok(objects)
}

impl Objects {
    /// The numbers of a function's own objects.
    pub fn of(function: &Function) -> Objects {
        let own = |rows: &BTreeMap<u32, Row>| rows.keys().map(|number| (*number, *number)).collect();
        Objects { stack: own(&function.stack), fixed: own(&function.fixed_stack) }
    }

    /// P's number of an object of Q.
    pub fn number(&self, kind: Kind, number: u32) -> u32 {
        let numbers = if kind == Kind::FixedFrame { &self.fixed } else { &self.stack };
        numbers.get(&number).copied().unwrap_or(number)
    }
}
