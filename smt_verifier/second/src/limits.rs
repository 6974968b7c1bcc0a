//! Which registers a function may use (spec 13.4), as SIRegisterInfo::getReservedRegs, GCNSubtarget, AMDGPUSubtarget
//! and AMDGPUBaseInfo (namespace IsaInfo) of LLVM compute them.

use std::collections::BTreeSet;

use crate::header::{has_argument, info, object, registers_in, value};
use crate::lanes::{FIRST_SCALAR, VCC};
use crate::model::{ensure, need, Done, Function};
use crate::module::{attributes, Attributes};
use crate::tables::{tables, Processor};

/// What an allocator may do in a function. Units are those of the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Units that may be allocated; VCC is among them.
    pub allocatable: BTreeSet<u32>,
    /// Reserved units that calls leave alone.
    pub kept: BTreeSet<u32>,
    /// Scalar units that must hold at a return what they held at entry (spec 12.3).
    pub saved: BTreeSet<u32>,
    /// Those that keep EXEC, which LLVM saves itself (SIFrameLowering, determinePrologEpilogSGPRSaves).
    pub of_exec: BTreeSet<u32>,
}

const WORK_GROUP: u64 = 1024;

/// Header fields that set registers aside; every callee leaves those of the first three as they were.
const SET_ASIDE: [&str; 7] = [
    "scratchRSrcReg", "stackPtrOffsetReg", "frameOffsetReg", "sgprForEXECCopy", "longBranchReservedReg",
    "wwmReservedRegs", "vgprForAGPRCopy",
];

/// An integer as StringRef::getAsInteger(0) reads it, at most 32 bits.
fn integer(text: &str) -> Done<u64> {
    let lower = text.to_ascii_lowercase();
    let (radix, from) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, 2),
        [b'0', b'b', ..] => (2, 2),
        [b'0', b'o', ..] if text.starts_with("0o") => (8, 2),
        [b'0', b'0'..=b'9', ..] => (8, 1),
        _ => (10, 0),
    };
    let digits = lower.get(from..).filter(|digits| !digits.starts_with(['+', '-'])).unwrap_or("");
    Ok(need!(u32::from_str_radix(digits, radix).ok(), "attribute", "", "`{text}` is no integer").into())
}

/// The attribute `a` or `a,b` (AMDGPU::getIntegerPairAttribute).
fn pair(attributes: &Attributes, key: &str) -> Done<Option<(u64, Option<u64>)>> {
    let Some(text) = attributes.strings.get(key) else { return Ok(None) };
    let (first, second) = text.split_once(',').unwrap_or((text, ""));
    let second = Some(second.trim()).filter(|second| !second.is_empty()).map(integer).transpose()?;
    Ok(Some((integer(first.trim())?, second)))
}

/// The processor as a function's features make it (GCNSubtarget::initializeSubtargetDependencies).
fn with_features(own: &Processor, attributes: &Attributes) -> Done<Processor> {
    let mut target = own.clone();
    let text = |key: &str| attributes.strings.get(key).map_or("", String::as_str);
    let cpu = text("target-cpu");
    ensure!(cpu.is_empty() || cpu == target.name, "processor", "", "the function is compiled for {cpu}");
    let dynamic = attributes.strings.get("amdgpu-dynamic-vgpr-block-size").map(|text| integer(text)).transpose()?;
    ensure!(dynamic.unwrap_or(0) == 0, "attribute", "", "VGPRs are allocated dynamically");
    let mut cu_mode = target.cu_mode;
    for feature in text("target-features").split(',').filter(|feature| !feature.is_empty()) {
        let is_on = feature.starts_with('+');
        let name = need!(feature.strip_prefix(['+', '-']), "attribute", "", "{feature} has no sign");
        let known = tables().may_ask_for(name, is_on, &target);
        ensure!(known, "attribute", "", "the feature {feature} is not one of {}", target.name);
        match name {
            "cumode" => cu_mode = cu_mode.map(|_| is_on),
            "xnack" => target.xnack = own.xnack && is_on,
            _ => {}
        }
    }
    match (target.cu_mode, cu_mode) {
        // The block that a work-group shares is one compute unit, not two.
        (Some(false), Some(true)) => {
            (target.lds_bytes, target.simds, target.max_barriers) = (target.lds_bytes / 2, 2, 16)
        }
        // gfx1250 has no other mode, but LLVM counts as if it had, with the SIMDs of one unit.
        (Some(true), Some(false)) => (target.lds_bytes, target.max_barriers) = (target.lds_bytes * 2, 32),
        _ => {}
    }
    Ok(target)
}

/// Least and most work-items of a work-group (AMDGPUSubtarget::getFlatWorkGroupSizes).
fn work_group(attributes: &Attributes, target: &Processor) -> Done<(u64, u64)> {
    let is_shader = tables().convention(&attributes.convention).is_some_and(|convention| convention.is_shader);
    let Some((low, high)) = pair(attributes, "amdgpu-flat-work-group-size")? else {
        return Ok((1, if is_shader { target.wave_size.into() } else { WORK_GROUP }));
    };
    let high = need!(high, "attribute", "", "amdgpu-flat-work-group-size is no pair");
    let fits = low <= high && low >= 1 && high <= WORK_GROUP;
    Ok(if fits { (low, high) } else { (1, if is_shader { target.wave_size.into() } else { WORK_GROUP }) })
}

/// Most waves of a SIMD over the sizes of a work-group (AMDGPUSubtarget::getOccupancyWithWorkGroupSizes).
fn occupancy(target: &Processor, lds: u64, (low, high): (u64, u64)) -> u64 {
    let [wave, simds, max_waves, lds_bytes, barriers] =
        [target.wave_size, target.simds, target.max_waves, target.lds_bytes, target.max_barriers].map(u64::from);
    let slots = max_waves * simds;
    let by_lds = lds_bytes / lds.max(1);
    if by_lds == 0 {
        return 1;
    }
    let groups = |waves: u64| if waves == 1 { slots } else { (slots / waves).min(barriers) }.min(by_lds);
    let (low_each, high_each) = (low.div_ceil(wave), high.div_ceil(wave));
    let (many, few) = (groups(low_each), groups(high_each));
    let (mut most, at_high) = (low_each * many, high_each * few);
    if at_high >= most {
        most = at_high;
    } else {
        // A size in between may fill the slots better.
        let spare = slots.saturating_sub(most) / many.max(1);
        most += many * spare.min(((high - 1) / wave + 1).saturating_sub(low_each));
    }
    most.div_ceil(simds).clamp(1, max_waves)
}

/// Least and most waves that LLVM compiles for (AMDGPUSubtarget::getWavesPerEU).
fn waves(attributes: &Attributes, target: &Processor) -> Done<(u64, u64)> {
    let sizes = work_group(attributes, target)?;
    let most = occupancy(target, pair(attributes, "amdgpu-lds-size")?.map_or(0, |(first, _)| first), sizes);
    let per_group = sizes.1.div_ceil(target.wave_size.into()).div_ceil(target.simds.into());
    let least = per_group.min(most);
    let Some((low, high)) = pair(attributes, "amdgpu-waves-per-eu")? else { return Ok((least, most)) };
    let high = high.unwrap_or(target.max_waves.into());
    let fits = low >= least && low <= most && low <= high && high <= target.max_waves.into();
    Ok(if fits { (low, high.min(most)) } else { (least, most) })
}

/// How many VGPRs, AGPRs and SGPRs, from number 0 on.
fn counts(function: &Function, attributes: &Attributes, target: &Processor) -> Done<[u64; 3]> {
    let (low, high) = waves(attributes, target)?;
    let budgets = tables().budget(target, low).zip(tables().budget(target, high));
    let (most, least) = need!(budgets, "attribute", "", "no budget is known for {low} to {high} waves");
    let requested = |key: &str| attributes.strings.get(key).map(|text| integer(text)).transpose();
    // VCC, XNACK_MASK and FLAT_SCRATCH follow the numbered SGPRs.
    let extra = match target.major {
        10.. => 2,
        _ if target.architected_flat_scratch || has_argument(function, "flatScratchInit") => 6,
        _ if target.xnack => 4,
        _ => 2,
    };
    let mut sgprs = u64::from(most.max_sgprs);
    if let Some(wanted) = requested("amdgpu-num-sgpr")?.filter(|wanted| *wanted > extra) {
        let arguments = tables().arguments.values().filter(|argument| has_argument(function, argument.name));
        let preloaded = info(function, "numKernargPreloadSGPRs").parse().unwrap_or(0_u32);
        let wanted = wanted.max(arguments.map(|a| u64::from(a.sgprs)).sum::<u64>() + u64::from(preloaded));
        if wanted <= sgprs && wanted >= least.min_sgprs.into() {
            sgprs = wanted;
        }
    }
    sgprs = sgprs.saturating_sub(extra).min(most.max_addressable_sgprs.into());
    let mut total = u64::from(most.max_vectors);
    if let Some(wanted) = requested("amdgpu-num-vgpr")?.filter(|wanted| *wanted != total) {
        let wanted = wanted * if target.unified_vgpr { 2 } else { 1 };
        ensure!(wanted <= u32::MAX.into(), "attribute", "", "amdgpu-num-vgpr does not fit");
        total = wanted.max(least.min_vectors.into()).min(total);
    }
    if !target.unified_vgpr {
        return Ok([total, 0, sgprs]);
    }
    let (v, a) = (u64::from(target.addressable_vgprs), u64::from(target.addressable_agprs));
    let (low, high) = match pair(attributes, "amdgpu-agpr-alloc")? {
        // Nothing is known of the AGPRs: each file gets its half.
        None => (total / 2, total / 2),
        Some((low, high)) => ((low.div_ceil(4) * 4).min(a), high.unwrap_or(u32::MAX.into())),
    };
    let high = high.max(low).min(total);
    let vgprs = total.saturating_sub(low.min(a).min(high)).min(v);
    Ok([vgprs, total.saturating_sub(vgprs).min(high), sgprs])
}

/// The stack is realigned in a called function (SIRegisterInfo::hasBasePointer, shouldRealignStack). Whether it is a chain
/// function, LLVM does not read off the header.
fn has_base_pointer(function: &Function, attributes: &Attributes) -> bool {
    let is_entry = info(function, "isEntryFunction") == "true";
    let rows = function.stack.values().chain(function.fixed_stack.values());
    let rows = rows.filter(|row| object(row, "stack-id") == "default");
    let own = value(function, "frameInfo.maxAlignment");
    let alignments = rows.map(|row| object(row, "alignment")).chain([own.as_str()]);
    let is_aligned = alignments.map(|text| text.parse().unwrap_or(u64::MAX)).any(|alignment| alignment > 16);
    let asks = is_aligned
        || attributes.strings.contains_key("stackrealign")
        || attributes.words.iter().any(|word| word.starts_with("alignstack"));
    asks && !is_entry && !attributes.strings.contains_key("no-realign-stack")
}

/// Units that a function of this convention leaves as it found them (SIRegisterInfo::getCalleeSavedRegs).
///
/// # Errors
/// `calling-convention`: it is not known.
pub fn preserved(convention: &str, target: &Processor) -> Done<BTreeSet<u32>> {
    let row = need!(tables().convention(convention), "calling-convention", "", "{convention} is not known");
    let mask = if target.has_agprs { row.saved_with_agprs } else { row.saved };
    let none = mask.is_empty().then(BTreeSet::new);
    Ok(need!(none.or_else(|| tables().mask(mask)), "attribute", "", "the mask {mask} is not known"))
}

/// Attributes without quotes of which LLVM makes nothing behind the phase but what is said here.
const WORDS: [&str; 45] = [
    "alignstack", "allockind", "allocsize", "alwaysinline", "builtin", "cold", "convergent", "denormal_fpenv",
    "disable_sanitizer_instrumentation", "flatten", "hot", "inlinehint", "memory", "minsize", "mustprogress",
    "nobuiltin", "nocallback", "nocf_check", "nocreateundeforpoison", "nodivergencesource", "noduplicate", "nofree",
    "noimplicitfloat", "noinline", "nomerge", "nonlazybind", "noprofile", "norecurse", "noredzone", "noreturn",
    "nosanitize_bounds", "nosanitize_coverage", "nosync", "nounwind", "null_pointer_is_valid", "optdebug",
    "optforfuzzing", "optnone", "optsize", "skipprofile", "speculatable", "strictfp", "uwtable", "vscale_range",
    "willreturn",
];

/// What an allocator may do in a function of this file.
///
/// # Errors
/// `attribute`, `processor`, `calling-convention` or `module`: the function's header or attributes say something that
/// is not known.
pub fn limits(function: &Function, module: &str, target: &Processor) -> Done<Limits> {
    let attributes = attributes(module, &function.name)?;
    for word in &attributes.words {
        let name = word.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        ensure!(WORDS.contains(&name), "attribute", "", "the attribute {name} is not followed");
    }
    let is_dynamic = !matches!(info(function, "dynamicVGPRBlockSize").as_str(), "" | "0");
    ensure!(!is_dynamic, "attribute", "", "VGPRs are allocated dynamically");
    let target = with_features(target, &attributes)?;
    let mut limits = Limits::default();
    for (file, count) in ['v', 'a', 's'].into_iter().zip(counts(function, &attributes, &target)?) {
        let (first, end) = tables().file(file);
        let count = u32::try_from(count).unwrap_or(u32::MAX).min((end - first) / 2);
        limits.allocatable.extend(first..first + 2 * count);
    }
    limits.allocatable.extend(VCC);
    limits.kept.extend(tables().marked("kept"));
    let (first, end) = tables().file('t');
    limits.kept.extend(first..end);
    let fields = SET_ASIDE.iter().enumerate();
    let listed = fields.flat_map(|(k, key)| registers_in(function, key).into_iter().map(move |name| (name, k < 3)));
    let base_pointer = has_base_pointer(function, &attributes).then(|| ("sgpr34".to_string(), true));
    for (name, is_kept) in listed.chain(base_pointer) {
        let register = need!(tables().register(&name), "attribute", "", "${name} is not known");
        limits.allocatable.retain(|unit| !register.units.contains(unit));
        limits.kept.extend(register.units.iter().filter(|_| is_kept));
    }
    let names = registers_in(function, "sgprForEXECCopy");
    let registers = names.iter().filter_map(|name| tables().register(name));
    limits.of_exec = registers.flat_map(|register| &register.units).copied().collect();
    limits.saved = preserved(&attributes.convention, &target)?.split_off(&FIRST_SCALAR);
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_llvm_reads_them() {
        for (text, number) in
            [("0", 0), ("16", 16), ("0x10", 16), ("0B11", 3), ("020", 16), ("0o20", 16), ("4294967295", u32::MAX)]
        {
            assert_eq!(integer(text), Ok(u64::from(number)), "{text}");
        }
        for text in ["", "-1", "+1", "0x", "08", "1 ", "4294967296", "0x+1", "ten", "0O17"] {
            assert!(integer(text).is_err(), "{text}");
        }
    }

    fn counted(attributes: &str) -> Option<[usize; 3]> {
        let target = tables().processor("gfx942")?;
        let module = format!("define amdgpu_kernel void @f() {attributes} {{\n}}\n");
        let function = Function { name: "f".into(), ..Function::default() };
        let limits = limits(&function, &module, target).ok()?;
        let count = |file| limits.allocatable.range(tables().file(file).0..tables().file(file).1).count() / 2;
        Some([count('v'), count('a'), count('s')])
    }

    #[test]
    fn attributes_set_the_limits() {
        assert_eq!(counted(""), Some([64, 64, 102]));
        assert_eq!(counted("nounwind memory(none) uwtable(sync)"), counted(""));
        assert_eq!(counted("\"amdgpu-agpr-alloc\"=\"0\""), Some([128, 0, 102]));
        assert_eq!(
            counted("\"amdgpu-num-vgpr\"=\"0x20\" \"amdgpu-num-sgpr\"=\"062\""),
            counted("\"amdgpu-num-vgpr\"=\"32\" \"amdgpu-num-sgpr\"=\"50\"")
        );
        for wrong in [
            "\"amdgpu-num-vgpr\"=\"many\"",
            "\"amdgpu-waves-per-eu\"=\"1,x\"",
            "\"amdgpu-flat-work-group-size\"=\"64\"",
            "\"target-cpu\"=\"gfx950\"",
            "\"target-features\"=\"+sgpr-init-bug\"",
            "\"target-features\"=\"cumode\"",
            "\"target-features\"=\"+no-such\"",
            "\"amdgpu-dynamic-vgpr-block-size\"=\"16\"",
            "naked nounwind",
        ] {
            assert_eq!(counted(wrong), None, "{wrong}");
        }
    }
}
