//! Which registers a function may use (spec 13.4), as SIRegisterInfo::getReservedRegs, GCNSubtarget, AMDGPUSubtarget
//! and AMDGPUBaseInfo (namespace IsaInfo) of LLVM compute them.

use std::collections::BTreeSet;

use crate::header::{argument_sgprs, has_argument, is_true, number, object, registers_in};
use crate::model::{Function, Refused};
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
}

const WORK_GROUP: u64 = 1024;

/// Header fields that set registers aside; every callee leaves those of the first three as they were.
const SET_ASIDE: [&str; 7] = [
    "scratchRSrcReg", "stackPtrOffsetReg", "frameOffsetReg", "sgprForEXECCopy", "longBranchReservedReg",
    "wwmReservedRegs", "vgprForAGPRCopy",
];

fn refuse<T>(message: String) -> Result<T, Refused> {
    Err(Refused::new("attribute", message, ""))
}

/// An integer as StringRef::getAsInteger(0) reads it, at most 32 bits.
fn integer(text: &str) -> Result<u64, Refused> {
    let lower = text.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)),
        [b'0', b'b', ..] => (2, lower.get(2..)),
        [b'0', b'o', ..] if text.starts_with("0o") => (8, lower.get(2..)),
        [b'0', b'0'..=b'9', ..] => (8, lower.get(1..)),
        _ => (10, Some(lower.as_str())),
    };
    let digits = digits.filter(|digits| !digits.starts_with(['+', '-'])).unwrap_or("");
    u32::from_str_radix(digits, radix).map(u64::from).or_else(|_| refuse(format!("`{text}` is no integer")))
}

/// The attribute `a` or `a,b` (AMDGPU::getIntegerPairAttribute).
fn pair(attributes: &Attributes, key: &str) -> Result<Option<(u64, Option<u64>)>, Refused> {
    let Some(text) = attributes.strings.get(key) else { return Ok(None) };
    let (first, second) = text.split_once(',').unwrap_or((text, ""));
    let second = if second.trim().is_empty() { None } else { Some(integer(second.trim())?) };
    Ok(Some((integer(first.trim())?, second)))
}

/// The processor as a function's features make it (GCNSubtarget::initializeSubtargetDependencies).
fn with_features(target: &Processor, attributes: &Attributes) -> Result<Processor, Refused> {
    let mut target = target.clone();
    let cpu = attributes.strings.get("target-cpu").map_or("", String::as_str);
    if !cpu.is_empty() && cpu != target.name {
        return Err(Refused::new("processor", format!("the function is compiled for {cpu}"), ""));
    }
    let dynamic = attributes.strings.get("amdgpu-dynamic-vgpr-block-size").map_or(Ok(0), |text| integer(text))?;
    if dynamic != 0 {
        return refuse("VGPRs are allocated dynamically".into());
    }
    let (mut cu_mode, mut xnack) = (target.cu_mode, target.xnack);
    let features = attributes.strings.get("target-features").map_or("", String::as_str);
    for feature in features.split(',').filter(|feature| !feature.is_empty()) {
        let Some(name) = feature.strip_prefix('+').or(feature.strip_prefix('-')) else {
            return refuse(format!("the feature {feature} has no sign"));
        };
        let is_on = feature.starts_with('+');
        if !tables().may_ask_for(name, is_on, &target) {
            return refuse(format!("the feature {feature} is not one of {}", target.name));
        }
        match name {
            "cumode" => cu_mode = cu_mode.map(|_| is_on),
            "xnack" => xnack = target.xnack && is_on,
            _ => {}
        }
    }
    match (target.cu_mode, cu_mode) {
        // The block that a work-group shares is one compute unit, not two.
        (Some(false), Some(true)) => {
            target.lds_bytes /= 2;
            target.simds = 2;
            target.max_barriers = 16;
        }
        // gfx1250 has no other mode, but LLVM counts as if it had, with the SIMDs of one unit.
        (Some(true), Some(false)) => {
            target.lds_bytes = target.lds_bytes.saturating_mul(2);
            target.max_barriers = 32;
        }
        _ => {}
    }
    (target.cu_mode, target.xnack) = (cu_mode, xnack);
    Ok(target)
}

/// Least and most work-items of a work-group (AMDGPUSubtarget::getFlatWorkGroupSizes).
fn work_group(attributes: &Attributes, target: &Processor) -> Result<(u64, u64), Refused> {
    let is_shader = tables().convention(&attributes.convention).is_some_and(|convention| convention.is_shader);
    let default = (1, if is_shader { u64::from(target.wave_size) } else { WORK_GROUP });
    match pair(attributes, "amdgpu-flat-work-group-size")? {
        None => Ok(default),
        Some((_, None)) => refuse("amdgpu-flat-work-group-size is no pair".into()),
        Some((low, Some(high))) if low > high || low < 1 || high > WORK_GROUP => Ok(default),
        Some((low, Some(high))) => Ok((low, high)),
    }
}

/// Least and most waves of a SIMD over the sizes of a work-group (AMDGPUSubtarget::getOccupancyWithWorkGroupSizes).
fn occupancy(target: &Processor, lds: u64, (low, high): (u64, u64)) -> Option<(u64, u64)> {
    let (wave, simds, max_waves) = (u64::from(target.wave_size), u64::from(target.simds), u64::from(target.max_waves));
    let slots = max_waves.checked_mul(simds)?;
    let by_lds = u64::from(target.lds_bytes) / lds.max(1);
    if by_lds == 0 {
        return Some((1, 1));
    }
    let groups =
        |waves: u64| if waves == 1 { slots } else { (slots / waves.max(1)).min(u64::from(target.max_barriers)) };
    let (low_each, high_each) = (low.div_ceil(wave), high.div_ceil(wave));
    let (many, few) = (groups(low_each).min(by_lds), groups(high_each).min(by_lds));
    let (mut most, mut least) = (low_each.checked_mul(many)?, high_each.checked_mul(few)?);
    if least >= most {
        std::mem::swap(&mut most, &mut least);
    } else {
        // A size in between may fill the slots better, or worse.
        let packed = slots.div_ceil(few.checked_add(1)?).checked_mul(few)?;
        if least > packed {
            let fewer = ((least - packed).checked_div(few)?).min(high_each.checked_sub(low_each)?);
            least = least.checked_sub(few.checked_mul(fewer)?)?;
        }
        let spare = slots.checked_sub(many.checked_mul(low_each)?)?.checked_div(many)?;
        let more = spare.min((high.checked_sub(1)? / wave).checked_add(1)?.checked_sub(low_each)?);
        most = most.checked_add(many.checked_mul(more)?)?;
    }
    Some(((least / simds).clamp(1, max_waves), most.div_ceil(simds).clamp(1, max_waves)))
}

/// Least and most waves that LLVM compiles for (AMDGPUSubtarget::getWavesPerEU).
fn waves(attributes: &Attributes, target: &Processor) -> Result<(u64, u64), Refused> {
    let sizes = work_group(attributes, target)?;
    let lds = pair(attributes, "amdgpu-lds-size")?.map_or(0, |(first, _)| first);
    let Some((_, most)) = occupancy(target, lds, sizes) else { return refuse("no work-group fits".into()) };
    let per_group = sizes.1.div_ceil(u64::from(target.wave_size)).div_ceil(u64::from(target.simds));
    let default = (per_group.min(most), most);
    let Some((low, high)) = pair(attributes, "amdgpu-waves-per-eu")? else { return Ok(default) };
    let high = high.unwrap_or(u64::from(target.max_waves));
    if low < default.0 || low > default.1 || low > high || high > u64::from(target.max_waves) {
        return Ok(default);
    }
    Ok((low, high.min(default.1)))
}

/// How many VGPRs, AGPRs and SGPRs, from number 0 on.
fn counts(function: &Function, attributes: &Attributes, target: &Processor) -> Result<[u64; 3], Refused> {
    let (low, high) = waves(attributes, target)?;
    let budget = |waves: u64| u32::try_from(waves).ok().and_then(|waves| tables().budget(target, waves));
    let (Some([max_sgprs, max_named, _, max_vectors, _]), Some([_, _, min_sgprs, _, min_vectors])) =
        (budget(low), budget(high))
    else {
        return refuse(format!("no budget is known for {low} to {high} waves"));
    };
    let requested = |key: &str| attributes.strings.get(key).map(|text| integer(text)).transpose();
    // VCC, XNACK_MASK and FLAT_SCRATCH follow the numbered SGPRs.
    let extra: u64 = match target.major {
        10.. => 2,
        _ if target.architected_flat_scratch || has_argument(function, "flatScratchInit") => 6,
        _ if target.xnack => 4,
        _ => 2,
    };
    let mut sgprs = u64::from(max_sgprs);
    if let Some(mut wanted) = requested("amdgpu-num-sgpr")?.filter(|wanted| *wanted > extra) {
        let preloaded = number(function, "machineFunctionInfo.numKernargPreloadSGPRs").unwrap_or(u64::MAX);
        wanted = wanted.max(argument_sgprs(function).saturating_add(preloaded));
        if wanted <= sgprs && wanted >= u64::from(min_sgprs) {
            sgprs = wanted;
        }
    }
    sgprs = sgprs.saturating_sub(extra).min(u64::from(max_named));
    let mut total = u64::from(max_vectors);
    if let Some(wanted) = requested("amdgpu-num-vgpr")?.filter(|wanted| *wanted != total) {
        let wanted = wanted.saturating_mul(if target.unified_vgpr { 2 } else { 1 });
        if wanted > u64::from(u32::MAX) {
            return refuse("amdgpu-num-vgpr does not fit".into());
        }
        total = wanted.max(u64::from(min_vectors)).min(total);
    }
    if !target.unified_vgpr {
        return Ok([total, 0, sgprs]);
    }
    let (v, a) = (u64::from(target.addressable_vgprs), u64::from(target.addressable_agprs));
    let (low, high) = match pair(attributes, "amdgpu-agpr-alloc")? {
        // Nothing is known of the AGPRs: each file gets its half.
        None => (total / 2, total / 2),
        Some((low, high)) => (low.div_ceil(4).saturating_mul(4).min(a), high.unwrap_or(u64::from(u32::MAX))),
    };
    let high = high.max(low).min(total);
    let low = low.min(a).min(high);
    let vgprs = total.saturating_sub(low).min(v);
    Ok([vgprs, total.saturating_sub(vgprs).min(high), sgprs])
}

/// The stack is realigned in a called function (SIRegisterInfo::hasBasePointer, shouldRealignStack).
fn has_base_pointer(function: &Function, attributes: &Attributes) -> bool {
    let info = |key: &str| is_true(function, &format!("machineFunctionInfo.{key}"));
    if info("isEntryFunction") || info("isChainFunction") || attributes.strings.contains_key("no-realign-stack") {
        return false;
    }
    let rows = function.stack.values().filter(|row| object(row, "stack-id") == "default");
    let of_objects = rows.map(|row| object(row, "alignment").parse().unwrap_or(u64::MAX));
    let alignment = of_objects.chain([number(function, "frameInfo.maxAlignment").unwrap_or(u64::MAX)]).max();
    alignment > Some(16) || attributes.words.iter().any(|word| word.starts_with("alignstack"))
}

/// Units that a function of this convention leaves as it found them (SIRegisterInfo::getCalleeSavedRegs).
///
/// # Errors
/// `calling-convention`: it is not known.
pub fn preserved(convention: &str, target: &Processor) -> Result<BTreeSet<u32>, Refused> {
    let Some(row) = tables().convention(convention) else {
        return Err(Refused::new("calling-convention", format!("{convention} is not known"), ""));
    };
    let [without, with_agprs] = row.saved;
    let mask = if target.has_agprs { with_agprs } else { without };
    if mask.is_empty() {
        return Ok(BTreeSet::new());
    }
    tables().mask(mask).map_or_else(|| refuse(format!("the mask {mask} is not known")), Ok)
}

/// What an allocator may do in a function of this file.
///
/// # Errors
/// `attribute`, `processor`, `calling-convention` or `module`: the function's header or attributes say something that is not known.
pub fn limits(function: &Function, module: &str, target: &Processor) -> Result<Limits, Refused> {
    let attributes = attributes(module, &function.name)?;
    if number(function, "machineFunctionInfo.dynamicVGPRBlockSize") != Some(0) {
        return refuse("VGPRs are allocated dynamically".into());
    }
    let target = with_features(target, &attributes)?;
    let mut limits = Limits::default();
    for (file, count) in ['v', 'a', 's'].into_iter().zip(counts(function, &attributes, &target)?) {
        let Some((base, size)) = tables().file(file) else { return refuse(format!("there is no file {file}")) };
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(size);
        limits.allocatable.extend(base..base.saturating_add(count.saturating_mul(2)));
    }
    let vcc = tables().register("vcc").map(|register| register.units).unwrap_or_default();
    limits.allocatable.extend(vcc);
    for register in tables().special_registers().filter(|register| register.is_marked("kept")) {
        limits.kept.extend(&register.units);
    }
    if let Some((base, size)) = tables().file('t') {
        limits.kept.extend(base..base.saturating_add(size.saturating_mul(2)));
    }
    let mut aside: Vec<(String, bool)> = Vec::new();
    for (k, key) in SET_ASIDE.iter().enumerate() {
        let names = registers_in(function, &format!("machineFunctionInfo.{key}"));
        aside.extend(names.into_iter().map(|name| (name, k < 3)));
    }
    if has_base_pointer(function, &attributes) {
        aside.push(("sgpr34".into(), true));
    }
    for (name, is_kept) in aside {
        let Some(register) = tables().register(&name) else { return refuse(format!("${name} is not known")) };
        limits.allocatable.retain(|unit| !register.units.contains(unit));
        if is_kept {
            limits.kept.extend(register.units);
        }
    }
    let is_scalar =
        |unit: &u32| ['v', 'a'].iter().filter_map(|f| tables().file(*f)).all(|(b, n)| !(b..b + 2 * n).contains(unit));
    limits.saved = preserved(&attributes.convention, &target)?.into_iter().filter(is_scalar).collect();
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
        let count =
            |file| tables().file(file).map(|(base, n)| limits.allocatable.range(base..base + 2 * n).count() / 2);
        Some([count('v')?, count('a')?, count('s')?])
    }

    #[test]
    fn attributes_set_the_limits() {
        assert_eq!(counted(""), Some([64, 64, 102]));
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
        ] {
            assert_eq!(counted(wrong), None, "{wrong}");
        }
    }
}
