//! Moves: copies (spec 7.1), implicit operands (7.2), spill code (7.3), scalars in lanes (7.4), whole waves (7.5).

use crate::context::Context;
use crate::header::{info, object, registers_in};
use crate::lanes::{Lane, Of, Set, FIRST_AGPR, FIRST_SCALAR};
use crate::model::*;
use crate::tables::tables;
use crate::threads::{Side, State};

/// What a move does, lane by lane.
#[derive(Clone, Debug, Default)]
pub struct Move {
    /// Target and source.
    pub pairs: Vec<(Lane, Lane)>,
    /// The source is `undef`.
    undef: bool,
    /// It runs for all classes, and cells go along (spec 7.5).
    pub whole_wave: bool,
    /// A COPY of a vector register (spec 10.6).
    pub vector_copy: bool,
    /// Lanes that it defines without a value: by implicit operands, or beside an `undef` subregister.
    pub blank: Vec<Lane>,
    /// The register of a `lane-save`, and whether its cells are lost.
    carrier: Vec<Lane>,
    cells_are_lost: bool,
}

/// The move that an instruction of a text is. `None`: a copy that pairs, or something else than a move.
pub fn read(context: &Context<'_>, text: &Function, i: &Instruction) -> Done<Option<Move>> {
    let spill = i.spill();
    let (lane_save, lane_restore) = (i.has("lane-save"), i.has("lane-restore"));
    let definitions = match spill {
        Some((_, _, saves)) => usize::from(!saves),
        None if i.has("copy") || lane_save || lane_restore => 1,
        None => return Ok(None),
    };
    let operands: Vec<&Operand> = i.explicit().collect();
    let in_order = operands.iter().enumerate().all(|(n, o)| !o.is_register() || o.is_def() == (n < definitions));
    ensure!(in_order && i.definitions == definitions, "move", i, "other definitions than the form has");
    let odd = |o: &&&Operand| {
        o.is_register() && (o.flags & (INTERNAL | DEBUG_USE | EARLY_CLOBBER) != 0 || o.lanes.is_empty())
    };
    ensure!(operands.iter().find(odd).is_none(), "move", i, "an operand that no move has");
    let form = Form { context, text, i };
    let moved = match (operands.as_slice(), spill) {
        (operands, Some((kind, bits, saves))) => form.spill(operands, kind, bits, saves)?,
        ([to, from], _) if i.has("copy") => match form.copy(to, from)? {
            Some(moved) => moved,
            None => return Ok(None),
        },
        ([to, from, number, tied], _) if lane_save => {
            let same = to.same_register(tied) && tied.tied.is_none_or(|n| n == 0);
            let fits = same && is_word(to, true) && is_word(from, false) && i.memory.is_empty();
            ensure!(fits, "move", i, "other operands than the form has");
            let pairs = form.cells(to, number)?.into_iter().zip(from.lanes.clone()).collect();
            let carrier = to.lanes.clone();
            Move { pairs, undef: from.is(UNDEF), carrier, cells_are_lost: tied.is(UNDEF), ..Move::default() }
        }
        ([to, from, number], _) if lane_restore => {
            let fits = is_word(from, true) && is_word(to, false) && !from.is(UNDEF) && i.memory.is_empty();
            ensure!(fits, "move", i, "other operands than the form has");
            Move { pairs: to.lanes.iter().copied().zip(form.cells(from, number)?).collect(), ..Move::default() }
        }
        _ => return Err(Refused::new("move", "another number of operands than the form has", i)),
    };
    form.finish(moved).map(Some)
}

/// A 32-bit register of this kind.
fn is_word(operand: &Operand, vector: bool) -> bool {
    let right = operand.bits() == 32 && operand.lanes.iter().all(|lane| lane.vector == vector);
    right && !(vector && operand.lanes.first().is_some_and(|lane| lane.of == Of::Virtual && lane.b % 2 != 0))
}

struct Form<'a> {
    context: &'a Context<'a>,
    text: &'a Function,
    i: &'a Instruction,
}

impl Form<'_> {
    fn copy(&self, to: &Operand, from: &Operand) -> Done<Option<Move>> {
        let i = self.i;
        let plain = to.is_register() && from.is_register() && i.memory.is_empty() && from.tied.is_none();
        ensure!(plain, "move", i, "other operands than a copy has");
        // Such a register cannot be copied like others: it shows something else, or changes by itself.
        let odd = |o: &Operand| {
            o.register
                .is_some_and(|r| r.name == "scc" || ["alias", "changes", "wide"].iter().any(|mark| r.is_marked(mark)))
        };
        let vector = |o: &Operand| o.lanes.iter().any(|lane| lane.vector);
        if vector(from) && !vector(to) || to.lanes.iter().any(|lane| lane.is_exec()) || odd(to) || odd(from) {
            return Ok(None);
        }
        let is_vgpr = |o: &Operand| {
            o.register.is_some_and(|register| register.file == 'v')
                || o.row.is_some_and(|row| row.class.files() == ['v'].into())
        };
        let (wide, narrow) = (to.bits(), from.bits());
        let of_scalar = wide == 16 && narrow == 32 && !vector(from) && self.context.processor.half_moves;
        let half =
            (wide == 16 || narrow == 16) && wide.max(narrow) <= 32 && is_vgpr(to) && (of_scalar || is_vgpr(from));
        let same = wide == narrow && to.lanes.len() == from.lanes.len() && wide % 32 == 0;
        ensure!(same || half, "move", i, "a copy of other widths");
        let accumulators = |lane: &Lane| lane.of == Of::Unit && (FIRST_AGPR..FIRST_SCALAR).contains(&lane.a);
        let there = self.context.processor.has_agprs || !to.lanes.iter().chain(&from.lanes).any(accumulators);
        ensure!(there, "move", i, "accumulators, which the processor does not have,");
        // A half that becomes a whole register says nothing of the other half.
        let blank = to.lanes.get(from.lanes.len()..).unwrap_or(&[]).to_vec();
        let pairs = to.lanes.iter().copied().zip(from.lanes.clone()).collect();
        Ok(Some(Move { pairs, undef: from.is(UNDEF), vector_copy: vector(to), blank, ..Move::default() }))
    }

    /// Whether the header has a register for EXEC while an instruction runs for all threads (7.5).
    fn exec_is_kept(&self) -> bool {
        !info(self.text, "sgprForEXECCopy").is_empty()
    }

    fn spill(&self, operands: &[&Operand], kind: &str, bits: u32, saves: bool) -> Done<Move> {
        let (i, vector) = (self.i, kind != "S");
        let pointer = info(self.text, "stackPtrOffsetReg");
        let is_pointer =
            |o: &Operand| o.register.is_some_and(|r| pointer.strip_prefix('$') == Some(&r.name)) && o.tied.is_none();
        let implicit = |is_it: &dyn Fn(&Operand) -> bool| i.operands.iter().any(|o| is_it(o) && o.flags == IMPLICIT);
        let (register, frame, offset) = match operands {
            [register, frame] if !vector && implicit(&is_pointer) => (register, frame, Some(0)),
            [register, frame, base, _] if vector && is_pointer(base) && base.flags == 0 => {
                (register, frame, i.immediate(operands.len() - 1))
            }
            _ => return Err(Refused::new("move", "other operands than the form has, or no stack pointer,", i)),
        };
        let names_frame = frame.kind == Kind::FrameIndex && frame.text == format!("%stack.{}", frame.number);
        let file = register.register.map_or('x', |register| register.file);
        let right_file = match kind.trim_start_matches("WWM_") {
            "V" => file == 'v',
            "A" => file == 'a' && self.context.processor.has_agprs,
            "AV" => matches!(file, 'v' | 'a'),
            _ => true,
        };
        let right = register.bits() == bits && register.lanes.iter().all(|lane| lane.vector == vector);
        let exec = implicit(&|o| o.names("exec") && o.tied.is_none());
        let fits = right && (right_file || register.vreg.is_some()) && exec && names_frame && register.tied.is_none();
        ensure!(fits, "move", i, "other operands than the form has");
        // LLVM reloads the whole register where SRAM ECC leaves no half alone.
        ensure!(bits >= 32 || !self.context.processor.align2, "move", i, "half a register");
        let (Some(offset), Some(row)) = (offset, self.text.stack.get(&frame.number)) else {
            return Err(Refused::new("move", "an offset or a slot that is none", i));
        };
        let number = |key: &str| object(row, key).parse().unwrap_or(0_u64);
        self.spill_memory(frame.number, bits, offset, saves, number("alignment"))?;
        let end = u64::from(offset) + u64::from(bits.div_ceil(8));
        let aligned = offset % (if self.context.coarse { 4 } else { 2 }) == 0;
        let place = object(row, "stack-id");
        let in_memory = place == "default" || !vector && place == "sgpr-spill";
        let fits = !self.context.other_slots.contains(&frame.number) && end <= number("size") && aligned && in_memory;
        ensure!(fits, "move", i, "a stack object that is no slot for it");
        let one_size = self.context.slot_bits.get(&frame.number).is_some_and(|all| all.len() == 1);
        let whole = offset == 0 && one_size && u64::from(bits.div_ceil(8)) == number("size");
        let parts = !vector || !self.context.processor.has_agprs || whole;
        ensure!(parts, "move", i, "a part of a slot that may lie in accumulators");
        let slot = self.context.slot_lanes(frame.number, offset, bits, vector);
        ensure!(slot.len() == register.lanes.len(), "move", i, "another width than the slot's");
        let (to, from) = if saves { (slot, register.lanes.clone()) } else { (register.lanes.clone(), slot) };
        let undef = register.is_use() && register.is(UNDEF);
        let whole_wave = kind.starts_with("WWM_");
        ensure!(!whole_wave || self.exec_is_kept(), "move", i, "no register for EXEC while it runs for all threads,");
        Ok(Move { pairs: to.into_iter().zip(from).collect(), undef, whole_wave, ..Move::default() })
    }

    fn spill_memory(&self, number: u32, bits: u32, offset: u32, saves: bool, aligned: u64) -> Done {
        let memory = self.i.memory.first().filter(|_| self.i.memory.len() == 1);
        let memory = need!(memory, "move", self.i, "not one memory operand");
        let size = u64::from(bits / 8);
        let align = memory.align.unwrap_or(size);
        let base = memory.base_align.unwrap_or(align);
        let way = if saves { ("store", "into") } else { ("load", "from") };
        let optional = |is_there: bool, text: String| if is_there { text } else { String::new() };
        let text = format!("({} (s{bits}) {} %stack.{number}", way.0, way.1)
            + &optional(offset > 0, format!(" + {offset}"))
            + &optional(align != size, format!(", align {align}"))
            + &optional(base != align, format!(", basealign {base}"))
            + ", addrspace 5)";
        let by_offset = if offset == 0 { base } else { base.min(1_u64 << offset.trailing_zeros()) };
        let fits = memory.text == text && base.is_power_of_two() && base <= aligned && align == by_offset;
        ensure!(fits, "move", self.i, "another memory operand than the form has");
        Ok(())
    }

    /// The cells of a lane number in a register, as many as a scalar has lanes.
    fn cells(&self, register: &Operand, number: &Operand) -> Done<Vec<Lane>> {
        let thread = number.text.parse().ok().filter(|_| number.kind == Kind::Immediate);
        let thread = thread.filter(|thread| u32::from(*thread) < self.context.processor.wave_size);
        let cells = thread.zip(register.lanes.first()).map(|(thread, first)| self.context.cells_of(*first, thread));
        Ok(need!(cells.filter(|cells| !cells.is_empty()), "move", self.i, "a lane that is none"))
    }

    /// Registers are of the classes that the table demands. Scalar spill code takes neither M0 nor EXEC: its lowering
    /// writes
    /// them. Implicit definitions, or an `undef` subregister, leave lanes without a value (spec 7.2, 5.10).
    fn finish(&self, mut moved: Move) -> Done<Move> {
        let i = self.i;
        for operand in &i.operands {
            let (Some(register), Some(table)) = (operand.register, operand.table) else { continue };
            let class = tables().class(table.class(self.context.processor));
            let odd = register.file == 'x' && !register.name.starts_with("vcc") && !i.has("copy");
            let fits = class.is_none_or(|class| class.contains(register)) && !odd;
            ensure!(fits, "register-class", i, "`{}`", operand.text);
        }
        if moved.whole_wave {
            // LLVM keeps EXEC there meanwhile (7.5).
            let names = registers_in(self.text, "sgprForEXECCopy");
            let units = names.iter().filter_map(|name| tables().register(name)).flat_map(|register| &register.units);
            moved.blank.extend(units.copied().filter(|unit| !self.context.coarse || unit % 2 == 0).map(Lane::unit));
        }
        let mut kept = i.lanes(|o| o.is(IMPLICIT) && o.reads());
        kept.extend(&moved.carrier);
        let written: Vec<Lane> = moved.pairs.iter().map(|(to, _)| *to).collect();
        let of_exec = moved.pairs.iter().any(|(_, from)| from.is_exec());
        // LLVM takes a move of Q for one that writes what it defines apart from its own, but in the form that it prints.
        let believed = std::ptr::eq(self.text, self.context.after) && !i.has("lane-save");
        for operand in i.operands.iter().filter(|o| o.is_register()) {
            let implicit = operand.is(IMPLICIT);
            let plain = !implicit || !operand.is(EARLY_CLOBBER) && operand.tied.is_none();
            ensure!(plain, "move", i, "an implicit operand that no move has");
            let lanes = match () {
                () if !operand.is_def() => &[],
                () if implicit => operand.lanes.as_slice(),
                () if operand.is(UNDEF) => operand.beside.as_slice(),
                () => &[],
            };
            let apart = believed && !lanes.iter().any(|lane| written.contains(lane));
            for lane in lanes.iter().filter(|lane| !written.contains(lane)) {
                ensure!(!lane.is_exec() || of_exec && implicit, "exec", i, "a move that defines EXEC");
                if !(lane.is_exec() || implicit && !apart && kept.contains(lane)) {
                    moved.blank.push(*lane);
                }
            }
        }
        Ok(moved)
    }
}

/// A `lane-save` that defines a tuple reads it too, and the saves of its other parts follow in the block, before
/// anything
/// else names them (spec 7.4).
pub fn saves_follow(text: &Function) -> Done {
    for block in &text.blocks {
        let mut saved: Set<Lane> = Set::default();
        for i in block.instructions.iter().rev() {
            if !i.has("lane-save") {
                let named = i.lanes(|_| true);
                saved.retain(|lane| !named.contains(lane));
                continue;
            }
            saved.extend(i.operands.get(1).iter().flat_map(|source| &source.lanes));
            let read = i.lanes(|o| o.is(IMPLICIT) && o.reads());
            let defined = i.lanes(|o| o.is(IMPLICIT) && o.is_def());
            let fits = defined.iter().all(|lane| read.contains(lane) && saved.contains(lane));
            ensure!(fits, "spill-slot", i, "it defines what it does not read, or what is not saved next,");
        }
    }
    Ok(())
}

impl Move {
    /// Its source is `undef`.
    pub fn is_of_nothing(&self) -> bool {
        self.undef
    }

    /// The cells that are lost with a fresh register of a `lane-save`.
    pub fn lost_cells(&self, context: &Context<'_>) -> Vec<Lane> {
        let carrier = self.carrier.first().filter(|_| self.cells_are_lost);
        carrier.iter().flat_map(|lane| context.cells_in(**lane)).collect()
    }

    /// The lanes of Q or P that the move writes, cells aside.
    pub fn written(&self) -> Vec<Lane> {
        let targets = self.pairs.iter().map(|(to, _)| *to).filter(|lane| lane.cell == 0);
        targets.chain(self.carrier.iter().copied()).chain(self.blank.iter().copied()).collect()
    }

    /// Execute it on the names of P or on the places of Q.
    pub fn apply(&self, state: &mut State, side: Side) {
        let everyone = state.select(|_| true);
        let run = if self.whole_wave { everyone.clone() } else { state.select(|class| class.active) };
        let lose = |state: &mut State, lane: Lane, run: &[usize]| match side {
            Side::Name => state.undefine(lane, run),
            Side::Place => state.spoil(lane, run),
        };
        for lane in &self.carrier {
            state.clear(*lane, side, &everyone);
            for cell in if self.cells_are_lost { state.cells_in(*lane) } else { Vec::new() } {
                lose(state, cell, &everyone);
            }
        }
        let tracked = self.vector_copy && !self.undef && side == Side::Place;
        let old: Vec<_> = self.pairs.iter().filter(|_| tracked).map(|(to, _)| state.before_copies(*to)).collect();
        let mut pairs = self.pairs.clone();
        if self.whole_wave {
            // The cells of a register go along: those that the source does not have are lost.
            let whole = self.pairs.iter().filter(|(to, _)| *to == to.base());
            pairs.extend(whole.flat_map(|(to, from)| state.cells_in(*to).into_iter().zip(state.cells_in(*from))));
        } else {
            // Cells of a register that is written are lost.
            pairs.iter().filter(|(to, _)| to.cell == 0).for_each(|(to, _)| state.spoil_cells(*to, side));
        }
        match side {
            _ if self.undef => pairs.iter().for_each(|(to, _)| lose(state, *to, &run)),
            Side::Name => state.copy_names(&pairs, &run),
            Side::Place => state.copy_places(&pairs, &run),
        }
        for lane in &self.blank {
            state.spoil_cells(*lane, side);
            lose(state, *lane, &run);
        }
        if side == Side::Name {
            return;
        }
        // LLVM's MachineCopyPropagation runs when all registers are physical.
        let physical = |(to, from): &(Lane, Lane)| to.of == Of::Unit && from.of == Of::Unit;
        let copies: Vec<_> = self.pairs.iter().zip(&old).filter(|(pair, _)| physical(pair)).collect();
        let again = copies.iter().filter(|(pair, _)| state.copied_before(**pair).is_some()).map(|((to, _), _)| *to);
        let again: Vec<Lane> = again.collect();
        self.written().into_iter().for_each(|lane| state.note_written(lane, again.contains(&lane)));
        copies.iter().for_each(|((to, from), old)| state.note_copy(*to, *from, old));
    }
}
