//! What an instruction does with masks and EXEC (spec 10.1 to 10.5), and what it says of threads (10.7, 10.8, 10.9, 10.10).

use crate::context::{Code, Context};
use crate::forms::{is_exec, is_scc};
use crate::lanes::Lane;
use crate::model::{Kind, Operand, Refused};
use crate::threads::{combine, Class, Mask, State};

/// How a value comes about.
#[derive(Clone, Debug)]
enum Value {
    Operation(&'static str, Mask, Mask),
    Same(Mask),
    /// A comparison: out for classes that wait, unknown for others.
    Comparison,
}

/// What is to be done when the instruction has written.
#[derive(Clone, Debug, Default)]
pub struct Effect {
    result: Option<(Vec<Lane>, Value)>,
    exec: Option<Value>,
    /// The old EXEC, by its masks.
    old: Vec<u32>,
    /// The result is a comparison with what the first active thread has (spec 10.7).
    first: bool,
    /// Lanes that become what the first active thread has in others (spec 10.7).
    firsts: Vec<(Lane, Lane)>,
    /// Lanes that become an active thread's number (spec 10.8).
    number: Vec<Lane>,
    /// It defines SCC by its result (spec 10.9).
    scc: bool,
}

impl Effect {
    /// Read the operands that are masks, before anything is written.
    pub fn of(context: &Context<'_>, state: &mut State, p: Code<'_>, exec_lanes: &[Lane]) -> Result<Effect, Refused> {
        let text = &context.before;
        let operands = &p.instruction.operands;
        let defined = text.gather(p, Operand::is_def)?;
        let exec_written: Vec<Lane> = defined.iter().copied().filter(|lane| is_exec(*lane)).collect();
        let writes_exec = !exec_written.is_empty();
        let first = match operands.first().filter(|o| o.is_def() && !o.is_implicit()) {
            Some(operand) => text.lanes(p, operand)?,
            None => Vec::new(),
        };
        let is_wide = |lanes: &[Lane]| lanes.len() == context.wave_lanes && lanes.iter().all(|lane| !lane.vector);
        let wide = is_wide(&first);
        let mut effect = Effect { old: state.masks_of(exec_lanes), ..Effect::default() };
        let lanes_of = |number: usize| operands.get(number).map_or(Ok(Vec::new()), |o| text.lanes(p, o));
        if p.has("compare-equal") && operands.iter().skip(1).take(2).all(Operand::reads) {
            let (a, b) = (lanes_of(1)?, lanes_of(2)?);
            let all = |a: &[Lane], b: &[Lane]| {
                a.len() == b.len() && !a.is_empty() && a.iter().zip(b).all(|(s, v)| state.is_first(*s, *v))
            };
            effect.first = all(&a, &b) || all(&b, &a);
        }
        if p.opcode.value("reach") == "first"
            && p.instruction.definitions == 1
            && operands.get(1).is_some_and(Operand::reads)
        {
            let source = lanes_of(1)?;
            if source.len() == first.len() && p.instruction.explicit().count() == 2 {
                effect.firsts = first.iter().copied().zip(source).collect();
            }
        }
        if p.has("first-bit") {
            let mask = mask_of(context, state, p, operands.get(1), exec_lanes)?;
            if state.mask_is_nonempty(&mask) && state.only_active(&mask) {
                effect.number = first.clone();
            }
        }
        let mut of = |number: usize| mask_of(context, state, p, operands.get(number), exec_lanes);
        let (binary, saving) = (p.opcode.value("mask"), p.opcode.value("save"));
        if !binary.is_empty() && wide {
            let value = Value::Operation(binary, of(1)?, of(2)?);
            effect.result = Some((first.clone(), value));
            effect.scc = defined.iter().any(|lane| is_scc(*lane));
        } else if !saving.is_empty() && wide && writes_exec {
            let operand = of(1)?;
            let old = Mask::Known(state.masks_of(exec_lanes));
            effect.result = Some((first.clone(), Value::Same(old.clone())));
            effect.exec = Some(Value::Operation(saving, operand, old));
        } else if p.has("enter-wwm") && wide && writes_exec {
            effect.result = Some((first.clone(), Value::Same(Mask::Known(effect.old.clone()))));
            effect.exec = Some(Value::Same(Mask::Everybody));
        } else if p.has("mask-move") && wide {
            effect.result = Some((first.clone(), Value::Same(of(1)?)));
        } else if p.has("compare") {
            let lanes = if first.is_empty() { implicit_result(context, p)? } else { first.clone() };
            if is_wide(&lanes) {
                effect.result = Some((lanes, Value::Comparison));
            }
        } else if p.has("cmpx") && writes_exec {
            effect.exec = Some(Value::Comparison);
        }
        if writes_exec && first == exec_lanes && effect.exec.is_none() && !p.has("compare") {
            effect.exec = effect.result.take().map(|(_, value)| value);
        }
        let covers = exec_lanes.iter().all(|lane| exec_written.contains(lane));
        // Wave32 has no use for EXEC's high half, but `implicit-def $exec` names it.
        let stray = exec_written.iter().any(|lane| !exec_lanes.contains(lane)) && context.processor.wave_size != 32;
        if writes_exec && (effect.exec.is_none() || !covers || stray) {
            return Err(p.refused("exec", "it writes EXEC in a way that is not followed"));
        }
        Ok(effect)
    }

    /// Follow it; at an instruction marked `split`, classes are split by the result.
    pub fn apply(self, state: &mut State, p: Code<'_>, exec_lanes: &[Lane], split: bool) -> Result<(), Refused> {
        let marked = self.result.is_some() || self.exec.is_some();
        if split && !marked {
            return Err(p.refused("certificate", "a `split` where nothing is split"));
        }
        for (scalar, vector) in self.firsts {
            state.set_first(scalar, vector);
        }
        if !self.number.is_empty() {
            state.set_number(&self.number);
        }
        let some = state.some_active();
        if let Some((names, value)) = self.result {
            let mask = result(state, &value);
            if self.first || has_first(state, &value) {
                state.set_has_first(mask);
            }
            if self.scc {
                state.scc = Some(mask);
            }
            state.set_mask(&names, mask);
            if let Value::Same(Mask::Known(masks)) = &value {
                masks.iter().filter(|other| **other != mask).for_each(|other| state.set_mask(&names, *other));
            }
            if split {
                state.split(|class| State::is_in(class, &Mask::Known(vec![mask])).is_none().then_some(mask))?;
            }
        }
        let Some(value) = self.exec else { return Ok(()) };
        // First by the one operand that is unknown, then by the result.
        state.split(|class| match &value {
            Value::Operation(_, a, b) => match (State::is_in(class, a), State::is_in(class, b)) {
                (None, Some(_)) if inside(class, &value).is_none() => first_known(a),
                (Some(_), None) if inside(class, &value).is_none() => first_known(b),
                _ => None,
            },
            Value::Same(mask) if State::is_in(class, mask).is_none() => first_known(mask),
            _ => None,
        })?;
        let mask = result(state, &value);
        if some && has_first(state, &value) {
            state.mark_nonempty(mask);
        }
        if self.scc {
            state.scc = Some(mask);
        }
        let is_old = |mask: &Mask| matches!(mask, Mask::Known(masks) if masks.iter().any(|m| self.old.contains(m)));
        let grows = matches!(&value, Value::Operation("OR", a, b) if is_old(a) || is_old(b));
        state.split(|class| State::is_in(class, &Mask::Known(vec![mask])).is_none().then_some(mask))?;
        let emptied_by = match &value {
            Value::Operation("ANDN2", a, Mask::Known(masks)) if some && is_old(a) => masks.clone(),
            Value::Operation("ANDN1", Mask::Known(masks), b) if some && is_old(b) => masks.clone(),
            _ => Vec::new(),
        };
        let also = if let Value::Same(mask) = value { mask } else { Mask::Unknown };
        state.set_exec(exec_lanes, mask, &also, grows);
        state.emptied_by = emptied_by;
        state.find_active();
        Ok(())
    }
}

fn first_known(mask: &Mask) -> Option<u32> {
    if let Mask::Known(masks) = mask {
        masks.first().copied()
    } else {
        None
    }
}

/// Whether the threads of a class are in a value.
fn inside(class: &Class, value: &Value) -> Option<bool> {
    match value {
        Value::Operation(operation, a, b) => combine(operation, State::is_in(class, a), State::is_in(class, b)),
        Value::Same(mask) => State::is_in(class, mask),
        Value::Comparison => {
            if class.active {
                None
            } else {
                Some(false)
            }
        }
    }
}

/// The first active thread is in the value (spec 10.7).
fn has_first(state: &State, value: &Value) -> bool {
    match value {
        Value::Operation("AND", a, b) => state.has_first(a) && state.has_first(b),
        Value::Operation("OR", a, b) => state.has_first(a) || state.has_first(b),
        Value::Same(mask) => state.has_first(mask),
        _ => false,
    }
}

/// A new mask that is this value.
fn result(state: &mut State, value: &Value) -> u32 {
    let mask = state.new_mask();
    for class in &mut state.classes {
        if let Some(inside) = inside(class, value) {
            class.masks.insert(mask, inside);
        }
    }
    let nonempty = match value {
        Value::Operation("OR", a, b) => state.mask_is_nonempty(a) || state.mask_is_nonempty(b),
        Value::Same(mask) => state.mask_is_nonempty(mask),
        _ => false,
    };
    if nonempty {
        state.mark_nonempty(mask);
    }
    mask
}

/// What an operand is as a mask. Names of which nothing is known become a mask of their own.
pub fn mask_of(
    context: &Context<'_>, state: &mut State, p: Code<'_>, operand: Option<&Operand>, exec_lanes: &[Lane],
) -> Result<Mask, Refused> {
    let Some(operand) = operand else { return Ok(Mask::Unknown) };
    if operand.kind == Kind::Immediate {
        return Ok(match operand.text.as_str() {
            "0" => Mask::Nobody,
            "-1" => Mask::Everybody,
            _ => Mask::Unknown,
        });
    }
    let mut lanes = context.before.lanes(p, operand)?;
    if !lanes.is_empty() && lanes.iter().all(|lane| is_exec(*lane)) && lanes.starts_with(exec_lanes) {
        lanes.truncate(exec_lanes.len());
    }
    let settled =
        lanes.len() == context.wave_lanes && lanes.iter().all(|lane| !lane.vector && !state.scalar.is_doubtful(*lane));
    if !operand.reads() || !settled {
        return Ok(Mask::Unknown);
    }
    let known = state.masks_of(&lanes);
    if !known.is_empty() {
        return Ok(Mask::Known(known));
    }
    let own = state.new_mask();
    state.set_mask(&lanes, own);
    Ok(Mask::Known(vec![own]))
}

/// The implicit result of a comparison, `$vcc` or its half.
fn implicit_result(context: &Context<'_>, p: Code<'_>) -> Result<Vec<Lane>, Refused> {
    let is_result = |o: &&Operand| o.is_def() && o.is_implicit() && o.register.starts_with("vcc");
    match p.instruction.operands.iter().find(is_result) {
        Some(operand) => context.before.lanes(p, operand),
        None => Ok(Vec::new()),
    }
}
