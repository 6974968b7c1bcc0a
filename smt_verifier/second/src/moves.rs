//! Moves: copies (spec 7.1), implicit operands (7.2), spill code (7.3), scalars in lanes (7.4), whole waves (7.5).

use crate::context::{spill_kind, Code, Context, Text};
use crate::forms::{files, is_exec};
use crate::header;
use crate::lanes::{Lane, Of, Set};
use crate::model::{Flags, Kind, Operand, Refused};
use crate::tables::tables;
use crate::threads::{ByClass, Side, State};

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
    blank: Vec<Lane>,
    /// The register of a `lane-save`, and whether its cells are lost.
    carrier: Option<(Vec<Lane>, bool)>,
}

/// The move that an instruction is. `None`: a copy that pairs, or something else than a move.
pub fn read(context: &Context<'_>, text: &Text<'_>, code: Code<'_>) -> Result<Option<Move>, Refused> {
    let form = Form { context, text, code };
    let mut moved = if code.has("copy") {
        match form.copy()? {
            Some(moved) => moved,
            None => return Ok(None),
        }
    } else if code.has("wwm-copy") {
        form.whole_wave_copy()?
    } else if !code.opcode.value("spill").is_empty() {
        form.spill()?
    } else if code.has("lane-save") {
        form.lane_save()?
    } else if code.has("lane-restore") {
        form.lane_restore()?
    } else {
        return Ok(None);
    };
    form.classes()?;
    form.blanks(&mut moved)?;
    Ok(Some(moved))
}

struct Form<'a, 'b> {
    context: &'b Context<'a>,
    text: &'b Text<'a>,
    code: Code<'b>,
}

impl<'b> Form<'_, 'b> {
    fn refused(&self, message: &str) -> Refused {
        self.code.refused("move", message)
    }

    /// The explicit operands, which must be as many, with so many definitions.
    fn explicit<const N: usize>(&self, definitions: usize) -> Result<[&'b Operand; N], Refused> {
        let operands: Vec<&Operand> = self.code.instruction.explicit().collect();
        let all = <[&Operand; N]>::try_from(operands).ok().filter(|_| self.code.instruction.definitions == definitions);
        let all = all.ok_or_else(|| self.refused("other operands than the form has"))?;
        let fits = all.iter().enumerate().all(|(n, o)| !o.is_register() || o.is_def() == (n < definitions));
        if fits {
            Ok(all)
        } else {
            Err(self.refused("definitions and uses in another order"))
        }
    }

    fn register(&self, operand: &Operand) -> Result<Vec<Lane>, Refused> {
        let lanes = self.text.lanes(self.code, operand)?;
        let odd = Flags::INTERNAL.0 | Flags::DEBUG_USE.0 | Flags::EARLY_CLOBBER.0;
        if lanes.is_empty() || operand.flags.0 & odd != 0 {
            return Err(self.refused("an operand that no move has"));
        }
        Ok(lanes)
    }

    /// Registers are of the classes that the table demands. Scalar spill code takes neither M0 nor EXEC: its lowering writes them.
    fn classes(&self) -> Result<(), Refused> {
        for (number, operand) in self.code.instruction.explicit().enumerate().filter(|(_, o)| o.is_physical()) {
            let Some(register) = self.text.register(&operand.register) else { continue };
            let row = self.code.opcode.row(number).map_or("", |row| row.class(self.context.processor.mode));
            let fits = tables().register_class(row).is_none_or(|class| tables().contains(class, register));
            let odd = register.file == 'x' && !register.name.starts_with("vcc") && !self.code.has("copy");
            if !fits || odd {
                return Err(self.code.refused("register-class", format!("`{}`", operand.text)));
            }
        }
        Ok(())
    }

    fn bits(&self, operand: &Operand) -> u32 {
        let lanes = match operand.vreg {
            None => self.text.register(&operand.register).map_or(0, |r| r.units.len()),
            Some(_) if !operand.sub.is_empty() => tables().lanes(&operand.sub).map_or(0, |lanes| lanes.len()),
            Some(number) => return self.text.virtual_register(number).map_or(0, |row| row.class.bits),
        };
        u32::try_from(lanes).unwrap_or(0).saturating_mul(16)
    }

    fn is_vgpr(&self, operand: &Operand) -> bool {
        match operand.vreg {
            None => self.text.register(&operand.register).is_some_and(|r| r.file == 'v'),
            Some(number) => self.text.virtual_register(number).is_some_and(|row| files(row.class) == ['v']),
        }
    }

    /// The register cannot be copied like others: it shows something else, or changes by itself.
    fn is_odd(&self, operand: &Operand) -> bool {
        let register = self.text.register(&operand.register).filter(|_| operand.vreg.is_none());
        register.is_some_and(|r| r.name == "scc" || r.is_marked("alias") || r.is_marked("changes"))
    }

    fn copy(&self) -> Result<Option<Move>, Refused> {
        let [to, from] = self.explicit(1)?;
        if !to.is_register() || !from.is_register() || !self.code.instruction.memory.is_empty() || from.tied.is_some() {
            return Err(self.refused("other operands than a copy has"));
        }
        let (a, b) = (self.register(to)?, self.register(from)?);
        let vector = |lanes: &[Lane]| lanes.iter().any(|lane| lane.vector);
        if (vector(&b) && !vector(&a)) || a.iter().any(|lane| is_exec(*lane)) || self.is_odd(to) || self.is_odd(from) {
            return Ok(None);
        }
        let (wide, narrow) = (self.bits(to), self.bits(from));
        let half = (wide == 16 || narrow == 16) && wide.max(narrow) <= 32 && self.is_vgpr(to) && self.is_vgpr(from);
        let same = wide == narrow && a.len() == b.len() && wide % 32 == 0;
        if !(same || half) {
            return Err(self.refused("a copy of other widths"));
        }
        let accumulators = |lane: &Lane| lane.of == Of::Unit && (4096..8192).contains(&lane.a);
        if !self.context.processor.has_agprs && a.iter().chain(&b).any(accumulators) {
            return Err(self.refused("accumulators, which the processor does not have,"));
        }
        let vector_copy = vector(&a);
        // A half that becomes a whole register says nothing of the other half.
        let blank = a.get(b.len()..).unwrap_or(&[]).to_vec();
        let pairs = a.into_iter().zip(b).collect();
        Ok(Some(Move { pairs, undef: from.is_undef(), vector_copy, blank, ..Move::default() }))
    }

    fn whole_wave_copy(&self) -> Result<Move, Refused> {
        let [to, from] = self.explicit(1)?;
        let (a, b) = (self.register(to)?, self.register(from)?);
        let free =
            !header::value(self.text.function, "machineFunctionInfo.sgprForEXECCopy").trim_matches('\'').is_empty();
        let fits = free && a.len() == b.len() && self.bits(to) == self.bits(from) && self.bits(to) % 32 == 0;
        if !fits || from.is_undef() || from.tied.is_some() || a.iter().chain(&b).any(|lane| !lane.vector) {
            return Err(self.refused("other operands than a copy of a whole wave has"));
        }
        Ok(Move { pairs: a.into_iter().zip(b).collect(), whole_wave: true, ..Move::default() })
    }

    /// The stack pointer that the header names.
    fn stack_pointer(&self) -> String {
        pointer(self.text, "stackPtrOffsetReg")
    }

    fn is_plain_use(operand: &Operand, register: &str) -> bool {
        operand.is_physical()
            && operand.register == register
            && operand.flags == Flags::default()
            && operand.tied.is_none()
    }

    /// An implicit use of a register that reads it and says nothing else.
    fn has_implicit(&self, register: &str) -> bool {
        self.code
            .instruction
            .operands
            .iter()
            .any(|o| o.register == register && o.flags == Flags::IMPLICIT && o.tied.is_none())
    }

    fn spill(&self) -> Result<Move, Refused> {
        let value = self.code.opcode.value("spill");
        let (kind, bits) = spill_kind(value).ok_or_else(|| self.refused("an unknown kind of spill code"))?;
        let saves = value.ends_with(",save");
        let definitions = usize::from(!saves);
        let pointer = self.stack_pointer();
        let (register, frame, offset) = if kind == "S" {
            let [register, frame] = self.explicit(definitions)?;
            if !self.has_implicit(&pointer) {
                return Err(self.refused("no stack pointer"));
            }
            (register, frame, 0)
        } else {
            let [register, frame, base, offset] = self.explicit(definitions)?;
            let offset = if offset.kind == Kind::Immediate { offset.text.parse::<u32>().ok() } else { None };
            if !Self::is_plain_use(base, &pointer) {
                return Err(self.refused("no stack pointer"));
            }
            (register, frame, offset.ok_or_else(|| self.refused("an offset that is none"))?)
        };
        let lanes = self.register(register)?;
        let right_frame = frame.kind == Kind::FrameIndex && frame.text == format!("%stack.{}", frame.number);
        if !self.has_implicit("exec") || !right_frame || register.tied.is_some() {
            return Err(self.refused("other operands than the form has"));
        }
        let vector = kind != "S";
        if self.bits(register) != bits
            || lanes.iter().any(|lane| lane.vector != vector)
            || !self.right_file(kind, register)
        {
            return Err(self.refused("a register that it does not move"));
        }
        self.spill_memory(frame.number, bits, offset, saves)?;
        self.spill_slot(frame.number, bits, offset, vector)?;
        let slot = self.text.slot_lanes(frame.number, offset, bits, vector).filter(|slot| slot.len() == lanes.len());
        let slot = slot.ok_or_else(|| self.refused("another width than the slot's"))?;
        let pairs = if saves { slot.into_iter().zip(lanes).collect() } else { lanes.into_iter().zip(slot).collect() };
        let undef = register.is_use() && register.is_undef();
        Ok(Move { pairs, undef, whole_wave: kind.starts_with("WWM_"), ..Move::default() })
    }

    fn right_file(&self, kind: &str, operand: &Operand) -> bool {
        let Some(register) = self.text.register(&operand.register).filter(|_| operand.vreg.is_none()) else {
            return true;
        };
        match kind.trim_start_matches("WWM_") {
            "V" => register.file == 'v',
            "A" => register.file == 'a' && self.context.processor.has_agprs,
            "AV" => matches!(register.file, 'v' | 'a'),
            _ => true,
        }
    }

    fn spill_memory(&self, number: u32, bits: u32, offset: u32, saves: bool) -> Result<(), Refused> {
        let refused = || self.refused("another memory operand than the form has");
        let [memory] = self.code.instruction.memory.as_slice() else { return Err(refused()) };
        let row = self.text.function.stack.get(&number).ok_or_else(refused)?;
        let aligned: u64 = header::object(row, "alignment").parse().map_err(|_| refused())?;
        let size = u64::from(bits / 8);
        let align = memory.align.unwrap_or(size);
        let base = memory.base_align.unwrap_or(align);
        let mut text = format!(
            "({} (s{bits}) {} %stack.{number}",
            if saves { "store" } else { "load" },
            if saves { "into" } else { "from" }
        );
        if offset > 0 {
            text += &format!(" + {offset}");
        }
        if align != size {
            text += &format!(", align {align}");
        }
        if base != align {
            text += &format!(", basealign {base}");
        }
        text += ", addrspace 5)";
        let by_offset = if offset == 0 { base } else { base.min(1_u64 << offset.trailing_zeros()) };
        if memory.text != text || !base.is_power_of_two() || base > aligned || align != by_offset {
            return Err(refused());
        }
        Ok(())
    }

    fn spill_slot(&self, number: u32, bits: u32, offset: u32, vector: bool) -> Result<(), Refused> {
        let refused = || self.refused("a stack object that is no slot for it");
        let (slot, row) = self.text.slot(number).zip(self.text.function.stack.get(&number)).ok_or_else(refused)?;
        let size: u64 = header::object(row, "size").parse().map_err(|_| refused())?;
        let end = u64::from(offset) + u64::from(bits.div_ceil(8));
        if self.context.other_slots.contains(&slot)
            || end > size
            || offset % (if self.context.coarse { 4 } else { 2 }) != 0
        {
            return Err(refused());
        }
        let one_size = self.context.slot_bits.get(&slot).is_some_and(|all| all.len() == 1);
        let whole = offset == 0 && one_size && u64::from(bits) == size.saturating_mul(8);
        if vector && self.context.processor.has_agprs && !whole {
            return Err(self.refused("a part of a slot that may lie in accumulators"));
        }
        Ok(())
    }

    /// The cells of a lane number in a register, as many as a scalar has lanes.
    fn cells(&self, register: &[Lane], number: &Operand) -> Result<Vec<Lane>, Refused> {
        let thread = if number.kind == Kind::Immediate { number.text.parse::<u8>().ok() } else { None };
        let thread = thread.filter(|thread| u32::from(*thread) < self.context.processor.wave_size);
        let (Some(thread), Some(first)) = (thread, register.first()) else {
            return Err(self.refused("a lane that is none"));
        };
        let halves = if self.context.coarse { 0..=0 } else { 0..=1 };
        let cells: Option<Vec<Lane>> = halves.map(|half| first.cell_of(thread, half)).collect();
        cells.ok_or_else(|| self.refused("a lane that is none"))
    }

    fn is_word(&self, operand: &Operand, lanes: &[Lane], vector: bool) -> bool {
        let word = self.bits(operand) == 32 && lanes.iter().all(|lane| lane.vector == vector);
        word && !(vector && lanes.first().is_some_and(|lane| lane.of == Of::Virtual && lane.b % 2 != 0))
    }

    fn lane_save(&self) -> Result<Move, Refused> {
        let [to, from, number, tied] = self.explicit(1)?;
        let (register, scalar) = (self.register(to)?, self.register(from)?);
        let same = (to.vreg, &to.register, &to.sub) == (tied.vreg, &tied.register, &tied.sub)
            && tied.tied.is_none_or(|n| n == 0);
        if !same
            || !self.is_word(to, &register, true)
            || !self.is_word(from, &scalar, false)
            || !self.code.instruction.memory.is_empty()
        {
            return Err(self.refused("other operands than the form has"));
        }
        let pairs = self.cells(&register, number)?.into_iter().zip(scalar).collect();
        Ok(Move { pairs, undef: from.is_undef(), carrier: Some((register, tied.is_undef())), ..Move::default() })
    }

    fn lane_restore(&self) -> Result<Move, Refused> {
        let [to, from, number] = self.explicit(1)?;
        let (scalar, register) = (self.register(to)?, self.register(from)?);
        if !self.is_word(from, &register, true)
            || !self.is_word(to, &scalar, false)
            || from.is_undef()
            || !self.code.instruction.memory.is_empty()
        {
            return Err(self.refused("other operands than the form has"));
        }
        let pairs = scalar.into_iter().zip(self.cells(&register, number)?).collect();
        Ok(Move { pairs, ..Move::default() })
    }

    /// Lanes that implicit definitions, or an `undef` subregister, leave without a value (spec 7.2, 5.10).
    fn blanks(&self, moved: &mut Move) -> Result<(), Refused> {
        let mut kept: Vec<Lane> = moved.pairs.iter().map(|(to, _)| *to).collect();
        kept.extend(moved.carrier.iter().flat_map(|(register, _)| register.iter().copied()));
        kept.extend(self.text.gather(self.code, |o| o.is_implicit() && o.reads())?);
        let of_exec = moved.pairs.iter().any(|(_, from)| is_exec(*from));
        for operand in self.code.instruction.operands.iter().filter(|o| o.is_register()) {
            if operand.is_implicit() && operand.flags.has(Flags::EARLY_CLOBBER)
                || (operand.is_implicit() && operand.tied.is_some())
            {
                return Err(self.refused("an implicit operand that no move has"));
            }
            if !operand.is_def() {
                continue;
            }
            let lanes = if operand.is_implicit() {
                self.text.lanes(self.code, operand)?
            } else if operand.is_undef() && !operand.sub.is_empty() {
                self.text.whole(operand)
            } else {
                Vec::new()
            };
            for lane in lanes {
                let nothing =
                    kept.contains(&lane) && operand.is_implicit() || moved.pairs.iter().any(|(to, _)| *to == lane);
                if is_exec(lane) && !(of_exec && operand.is_implicit()) {
                    return Err(self.code.refused("exec", "a move that defines EXEC"));
                }
                if !nothing && !is_exec(lane) {
                    moved.blank.push(lane);
                }
            }
        }
        Ok(())
    }
}

/// A `lane-save` that defines a tuple reads it too, and the saves of its other parts follow in the block (spec 7.4).
pub fn saves_follow(text: &Text<'_>) -> Result<(), Refused> {
    for block in &text.blocks {
        let mut saved: Set<Lane> = Set::default();
        for code in block.iter().rev().filter(|code| code.has("lane-save")) {
            saved.extend(code.instruction.operands.get(1).map_or(Ok(Vec::new()), |source| text.lanes(*code, source))?);
            let defined = text.gather(*code, |o| o.is_implicit() && o.is_def())?;
            let read = text.gather(*code, |o| o.is_implicit() && o.reads())?;
            if !defined.iter().all(|lane| read.contains(lane) && saved.contains(lane)) {
                return Err(
                    code.refused("spill-slot", "it defines what it does not read, or what nothing behind saves,")
                );
            }
        }
    }
    Ok(())
}

/// The register that a field of the header names, without `$`.
pub fn pointer(text: &Text<'_>, field: &str) -> String {
    let value = header::value(text.function, &format!("machineFunctionInfo.{field}"));
    value.trim_matches('\'').trim_start_matches('$').to_string()
}

impl Move {
    /// The lanes of Q or P that the move writes, cells aside.
    pub fn written(&self) -> Vec<Lane> {
        let targets = self.pairs.iter().map(|(to, _)| *to).filter(|lane| lane.cell == 0);
        let carrier = self.carrier.iter().flat_map(|(register, _)| register.iter().copied());
        targets.chain(carrier).chain(self.blank.iter().copied()).collect()
    }

    /// Execute it on the names of P or on the places of Q.
    pub fn apply(&self, state: &mut State, side: Side) {
        let everyone = state.select(|_| true);
        let run = if self.whole_wave { everyone.clone() } else { state.select(|class| class.active) };
        let lose = |state: &mut State, lane: Lane, run: &[usize]| match side {
            Side::Name => state.undefine(lane, run),
            Side::Place => state.spoil(lane, run),
        };
        let mut pairs = self.pairs.clone();
        if self.whole_wave {
            let carried: Vec<(Lane, Lane)> =
                self.pairs.iter().flat_map(|(to, from)| carried_cells(state, side, *to, *from)).collect();
            pairs.extend(carried);
        }
        if let Some((register, cells_are_lost)) = &self.carrier {
            for lane in register {
                match side {
                    Side::Name => state.forget(*lane, &everyone),
                    Side::Place => state.spoil(*lane, &everyone),
                }
                for cell in if *cells_are_lost { state.cells_in(*lane, side) } else { Vec::new() } {
                    lose(state, cell, &everyone);
                }
            }
        }
        let old: Vec<(Lane, ByClass)> = if self.vector_copy && side == Side::Place {
            self.pairs.iter().map(|(to, _)| (*to, state.before_copies(*to))).collect()
        } else {
            Vec::new()
        };
        // Cells of a register that is written are lost; they are read first where they go along.
        let clear_cells = |state: &mut State| {
            for (to, _) in pairs.iter().filter(|(to, _)| to.cell == 0) {
                state.spoil_cells(*to, side);
            }
        };
        if !self.whole_wave {
            clear_cells(state);
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
        if side == Side::Place {
            // LLVM's MachineCopyPropagation runs when all registers are physical.
            let physical = |(to, from): &(Lane, Lane)| to.of == Of::Unit && from.of == Of::Unit && !self.undef;
            let again: Vec<bool> =
                self.pairs.iter().map(|pair| self.vector_copy && physical(pair) && state.is_copied(*pair)).collect();
            let kept = self.pairs.iter().zip(&again).filter(|(_, again)| **again).map(|((to, _), _)| *to);
            let kept: Vec<Lane> = kept.collect();
            for lane in self.written() {
                state.note_written(lane, kept.contains(&lane));
            }
            for ((to, from), (_, old)) in self.pairs.iter().zip(&old).filter(|(pair, _)| physical(pair)) {
                state.note_copy(*to, *from, old);
            }
        }
    }
}

/// The cells of `to` and of `from`, which a whole-wave move carries along: those that `from` does not have are lost.
fn carried_cells(state: &State, side: Side, to: Lane, from: Lane) -> Vec<(Lane, Lane)> {
    if to != to.base() {
        return Vec::new();
    }
    let mut cells: Vec<u8> = state.cells_in(to, side).iter().map(|cell| cell.cell).collect();
    cells.extend(state.cells_in(from, side).iter().map(|cell| cell.cell));
    cells.sort_unstable();
    cells.dedup();
    let at = |lane: Lane, cell: u8| Lane { cell, vector: false, ..lane.base() };
    cells.into_iter().map(|cell| (at(to, cell), at(from, cell))).collect()
}
