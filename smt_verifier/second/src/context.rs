//! Both texts as the checker sees them: lanes of operands (spec 3.1), files (3.4), slots (7.3), cells (3.5).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::lanes::{Lane, Map, Of, Set};
use crate::limits::Limits;
use crate::model::{Function, Instruction, Kind, Operand, Refused};
use crate::tables::{tables, Opcode, Processor, Register, RegisterClass};
use crate::threads::Side;

/// An instruction with its row of the tables.
#[derive(Clone, Copy)]
pub struct Code<'a> {
    pub instruction: &'a Instruction,
    pub opcode: &'static Opcode,
}

impl Code<'_> {
    pub fn refused(&self, rule: &'static str, message: impl Into<String>) -> Refused {
        let text = format!("{} in {}", message.into(), self.instruction.opcode);
        Refused::new(rule, text, format!("line {}", self.instruction.line))
    }

    pub fn has(&self, word: &str) -> bool {
        self.opcode.has(word)
    }

    /// The first source is not read: every thread gets a new value (spec 8.2).
    fn old_is_not_read(&self) -> bool {
        let explicit: Vec<&str> = self.instruction.explicit().map(|o| o.text.as_str()).collect();
        let masks = matches!(explicit.as_slice(), [.., "15", "15", "1" | "-1"]);
        self.has("may-leave-old") && masks
    }
}

/// What is known of a virtual register.
#[derive(Clone, Copy)]
pub struct Virtual {
    pub class: &'static RegisterClass,
    pub lanes: u32,
}

/// One of the two texts.
pub struct Text<'a> {
    pub function: &'a Function,
    /// Numbers of stack objects, and those of the same objects in P (spec 13.3).
    pub slots: BTreeMap<u32, u32>,
    /// Blocks without debug instructions.
    pub blocks: Vec<Vec<Code<'a>>>,
    /// Units that some instruction names.
    pub touched: Set<u32>,
    registers: HashMap<&'a str, Register>,
    virtuals: Map<u32, Virtual>,
    coarse: bool,
    wave32: bool,
}

impl<'a> Text<'a> {
    fn new(function: &'a Function, slots: BTreeMap<u32, u32>, wave32: bool) -> Result<Text<'a>, Refused> {
        let mut text = Text {
            function,
            slots,
            blocks: Vec::new(),
            touched: Set::default(),
            registers: HashMap::new(),
            virtuals: Map::default(),
            coarse: true,
            wave32,
        };
        for (number, row) in &function.registers {
            let unknown =
                || Refused::new("well-formed", format!("unknown class `{}`", row.class), format!("%{number}"));
            let class = tables().register_class(&row.class).ok_or_else(unknown)?;
            text.virtuals.insert(*number, Virtual { class, lanes: class.bits.div_ceil(16).max(1) });
            text.coarse &= class.bits != 16;
        }
        for block in &function.blocks {
            let mut codes = Vec::new();
            for live in &block.liveins {
                text.register_named(&live.register, block.line)?;
            }
            for instruction in &block.instructions {
                let line = instruction.line;
                let unknown = || {
                    Refused::new(
                        "well-formed",
                        format!("unknown opcode {}", instruction.opcode),
                        format!("line {line}"),
                    )
                };
                let opcode = tables().opcode(&instruction.opcode).ok_or_else(unknown)?;
                for operand in instruction.operands.iter().filter(|o| o.is_register()) {
                    text.coarse &= !operand.sub.contains("lo16") && !operand.sub.contains("hi16");
                    if operand.is_physical() {
                        text.register_named(&operand.register, line)?;
                        text.touched
                            .extend(text.registers.get(operand.register.as_str()).iter().flat_map(|r| &r.units));
                    }
                }
                if !opcode.has("debug") {
                    codes.push(Code { instruction, opcode });
                }
            }
            text.blocks.push(codes);
        }
        Ok(text)
    }

    fn register_named(&mut self, name: &'a str, line: usize) -> Result<(), Refused> {
        if !self.registers.contains_key(name) {
            let unknown = || Refused::new("well-formed", format!("unknown register `{name}`"), format!("line {line}"));
            let register = tables().register(name).ok_or_else(unknown)?;
            self.coarse &= !(name.ends_with("_lo16") || name.ends_with("_hi16"));
            self.registers.insert(name, register);
        }
        Ok(())
    }

    /// A register that some operand or block live-in of this text names.
    pub fn register(&self, name: &str) -> Option<&Register> {
        self.registers.get(name)
    }

    pub fn virtual_register(&self, number: u32) -> Option<Virtual> {
        self.virtuals.get(&number).copied()
    }

    pub fn virtuals(&self) -> impl Iterator<Item = (u32, Virtual)> + '_ {
        self.virtuals.iter().map(|(number, row)| (*number, *row))
    }

    /// All units of physical registers that this text names.
    pub fn units(&self) -> impl Iterator<Item = u32> + '_ {
        self.registers.values().flat_map(|register| register.units.iter().copied())
    }

    /// Of the lanes of something those that are used (spec 3.1).
    pub fn used<T: Copy>(&self, lanes: Vec<T>) -> Vec<T> {
        if self.coarse && lanes.len() > 1 {
            return lanes.into_iter().step_by(2).collect();
        }
        lanes
    }

    /// The lanes that a register operand stands for (spec 3.1). Other operands have none.
    pub fn lanes(&self, code: Code<'_>, operand: &Operand) -> Result<Vec<Lane>, Refused> {
        if !operand.is_register() {
            return Ok(Vec::new());
        }
        let Some(number) = operand.vreg else { return self.physical_lanes(code, operand) };
        let unknown =
            || code.refused("well-formed", format!("a register or subregister that is none, `{}`,", operand.text));
        let row = self.virtual_register(number).ok_or_else(unknown)?;
        let lanes = if operand.sub.is_empty() {
            (0..row.lanes).collect()
        } else {
            tables().lanes(&operand.sub).filter(|lanes| lanes.iter().all(|l| *l < row.lanes)).ok_or_else(unknown)?
        };
        let of = |lane: u32| Lane::new(Of::Virtual, number, lane, 0).with_vector(row.class.is_vector);
        Ok(self.used(lanes).into_iter().map(of).collect())
    }

    fn physical_lanes(&self, code: Code<'_>, operand: &Operand) -> Result<Vec<Lane>, Refused> {
        let unknown = || code.refused("well-formed", format!("a register that is none, `{}`,", operand.text));
        let register = self.register(&operand.register).filter(|_| operand.sub.is_empty()).ok_or_else(unknown)?;
        let mut units = register.units.clone();
        if self.wave32 && operand.is_implicit() && operand.register == "vcc" && !code.has("asm") {
            units.truncate(2);
        }
        Ok(self.used(units).into_iter().map(Lane::unit).collect())
    }

    /// The lanes of all register operands that are chosen, in order.
    pub fn gather(&self, code: Code<'_>, chosen: impl Fn(&Operand) -> bool) -> Result<Vec<Lane>, Refused> {
        let mut all = Vec::new();
        for operand in code.instruction.operands.iter().filter(|o| o.is_register() && chosen(o)) {
            all.extend(self.lanes(code, operand)?);
        }
        Ok(all)
    }

    /// All lanes of the virtual register that an operand names.
    pub fn whole(&self, operand: &Operand) -> Vec<Lane> {
        let Some((number, row)) = operand.vreg.and_then(|n| Some((n, self.virtual_register(n)?))) else {
            return Vec::new();
        };
        let of = |lane: u32| Lane::new(Of::Virtual, number, lane, 0).with_vector(row.class.is_vector);
        self.used((0..row.lanes).collect()).into_iter().map(of).collect()
    }

    /// The lanes that an instruction reads, in the order of spec 8.3, of EXEC the first operand if it counts; whether one
    /// of them is `undef`.
    pub fn read_lanes(&self, code: Code<'_>, operands: usize) -> Result<(Vec<Lane>, bool), Refused> {
        let (mut exec, mut lanes, mut undef) = (Vec::new(), Vec::new(), false);
        let not_read = code.old_is_not_read();
        for (number, operand) in code.instruction.operands.iter().take(operands).enumerate().filter(|(_, o)| o.is_use())
        {
            if not_read && number == 1 {
                continue;
            }
            undef |= operand.is_undef();
            if operand.register != "exec" && operand.register != "exec_lo" {
                lanes.extend(self.lanes(code, operand)?);
            } else if code.has("pure-exec") && exec.is_empty() {
                exec.extend(self.lanes(code, operand)?);
            }
        }
        exec.extend(lanes);
        Ok((exec, undef))
    }

    /// The number that a stack object has in P.
    pub fn slot(&self, number: u32) -> Option<u32> {
        self.slots.get(&number).copied()
    }

    /// The lanes of a slot from a byte offset on; `number` is this text's own.
    pub fn slot_lanes(&self, number: u32, offset: u32, bits: u32, vector: bool) -> Option<Vec<Lane>> {
        let first = offset / 2;
        let last = first.checked_add(bits.div_ceil(16))?;
        let slot = self.slot(number)?;
        let of = |lane: u32| Lane::new(Of::Slot, slot, lane, 0).with_vector(vector);
        Some(self.used((first..last).collect()).into_iter().map(of).collect())
    }
}

/// Everything that does not change while the blocks are checked.
pub struct Context<'a> {
    pub before: Text<'a>,
    pub after: Text<'a>,
    pub processor: &'static Processor,
    pub limits: &'a Limits,
    /// Lanes are 32 bits (spec 3.1).
    pub coarse: bool,
    /// Lanes of a mask.
    pub wave_lanes: usize,
    /// Slots, by P's numbers, of which each thread has its own value (spec 3.4).
    pub vector_slots: Set<u32>,
    /// Slots that something else than spill code names, or that are no spill slots (spec 7.3).
    pub other_slots: Set<u32>,
    /// Units that calls of this function in P's file rely on, beyond its convention (spec 9).
    pub promised: Set<u32>,
    /// Units that Q's header sets aside for whole-wave use (spec 4.3).
    pub reserved_after: Set<u32>,
    /// LLVM saves scalars behind the phase (`--saved-later`, spec 12.3).
    pub saved_later: bool,
    /// Numbers of the cells that P names (`Lane::cell`).
    cells: Vec<u8>,
    /// Sizes in bits in which vector spill code names a slot.
    pub slot_bits: Map<u32, BTreeSet<u32>>,
}

impl<'a> Context<'a> {
    pub fn new(
        before: &'a Function, after: &'a Function, numbers: BTreeMap<u32, u32>, processor: &'static Processor,
        limits: &'a Limits,
    ) -> Result<Context<'a>, Refused> {
        let wave32 = processor.wave_size == 32;
        let own = before.stack.keys().map(|n| (*n, *n)).collect();
        let mut before = Text::new(before, own, wave32)?;
        let mut after = Text::new(after, numbers, wave32)?;
        let coarse = before.coarse && after.coarse;
        before.coarse = coarse;
        after.coarse = coarse;
        let wave_lanes = (processor.wave_size / if coarse { 32 } else { 16 }) as usize;
        let reserved = crate::header::registers_in(after.function, "machineFunctionInfo.wwmReservedRegs");
        let reserved_after = reserved.iter().filter_map(|name| tables().register(name)).flat_map(|r| r.units).collect();
        let (vector_slots, other_slots, slot_bits) = (Set::default(), Set::default(), Map::default());
        let mut context = Context {
            before,
            after,
            processor,
            limits,
            coarse,
            wave_lanes,
            vector_slots,
            other_slots,
            promised: Set::default(),
            saved_later: false,
            cells: Vec::new(),
            reserved_after,
            slot_bits,
        };
        context.find_slots()?;
        context.find_cells();
        Ok(context)
    }

    fn find_slots(&mut self) -> Result<(), Refused> {
        let mut scalar: Set<u32> = Set::default();
        for text in [&self.before, &self.after] {
            for (number, row) in &text.function.stack {
                if row.get("type").map(String::as_str) != Some("spill-slot") {
                    self.other_slots.extend(text.slot(*number));
                }
            }
            for code in text.blocks.iter().flatten() {
                let value = code.opcode.value("spill");
                let named = code.instruction.operands.iter().filter(|o| o.kind == Kind::FrameIndex).map(|o| o.number);
                let in_memory = code.instruction.memory.iter().filter_map(|memory| memory.stack);
                for slot in named.chain(in_memory) {
                    let slot = text.slot(slot).ok_or_else(|| code.refused("well-formed", "an unknown stack object"))?;
                    let Some((kind, bits)) = spill_kind(value) else {
                        self.other_slots.insert(slot);
                        continue;
                    };
                    if kind == "S" {
                        scalar.insert(slot);
                    } else {
                        self.vector_slots.insert(slot);
                        self.slot_bits.entry(slot).or_default().insert(bits);
                    }
                    if scalar.contains(&slot) && self.vector_slots.contains(&slot) {
                        return Err(code.refused("spill-slot", "a slot of scalar and of vector spill code"));
                    }
                }
            }
        }
        Ok(())
    }

    /// The text of P or of Q.
    pub fn text(&self, side: Side) -> &Text<'a> {
        match side {
            Side::Name => &self.before,
            Side::Place => &self.after,
        }
    }

    fn find_cells(&mut self) {
        let codes = self.before.blocks.iter().flatten();
        let lanes = codes.filter(|code| code.has("lane-save") || code.has("lane-restore"));
        let number = |code: &Code<'_>| code.instruction.operands.get(2).and_then(|o| o.text.parse::<u8>().ok());
        let halves = if self.coarse { 0..=0 } else { 0..=1 };
        let cell = |thread| halves.clone().filter_map(move |half| Some(Lane::unit(0).cell_of(thread, half)?.cell));
        self.cells = lanes.filter_map(number).flat_map(cell).collect();
        self.cells.sort_unstable();
        self.cells.dedup();
    }

    /// The cells that P may name in the register that a lane lies in.
    pub fn cells_in(&self, lane: Lane) -> impl Iterator<Item = Lane> + '_ {
        let cells = if lane.vector { self.cells.as_slice() } else { &[] };
        cells.iter().map(move |cell| Lane { cell: *cell, vector: false, ..lane.base() })
    }

    /// A name or place of a certificate with its file (spec 3.4); `None` for one that the texts do not have.
    pub fn resolve(&self, lane: Lane, place: bool) -> Option<Lane> {
        let text = if place { &self.after } else { &self.before };
        let vector = match lane.of {
            Of::Unit | Of::Entry => lane.vector,
            Of::Virtual => {
                let row = text.virtual_register(lane.a).filter(|row| lane.b < row.lanes)?;
                row.class.is_vector
            }
            Of::Slot => self.vector_slots.contains(&lane.a),
            Of::Read => self.read_lane(lane)?.vector,
            Of::Result => self.result_lane(lane)?.vector,
            Of::Unchanged => return None,
        };
        if lane.cell != 0 {
            let vector_base = if lane.of == Of::Unit { crate::lanes::is_vector_unit(lane.a) } else { vector };
            return vector_base.then_some(lane);
        }
        Some(lane.with_vector(vector))
    }

    /// The instruction of P that `@B.I.K` or `!B.I.K` names.
    pub fn remembered(&self, block: u32, instruction: u32) -> Option<Code<'a>> {
        let block = self.before.blocks.get(usize::try_from(block).ok()?)?;
        block.get(usize::try_from(instruction).ok()?).copied()
    }

    fn read_lane(&self, lane: Lane) -> Option<Lane> {
        let code = self.remembered(lane.a, lane.b)?;
        let (lanes, _) = self.before.read_lanes(code, usize::MAX).ok()?;
        lanes.get(usize::from(lane.c)).copied()
    }

    fn result_lane(&self, lane: Lane) -> Option<Lane> {
        let code = self.remembered(lane.a, lane.b)?;
        let first = code.instruction.operands.first().filter(|o| o.is_def())?;
        self.before.lanes(code, first).ok()?.get(usize::from(lane.c)).copied()
    }

    /// Whether an allocator may use this unit (spec 13.4).
    pub fn allocatable(&self, lane: Lane) -> bool {
        lane.of != Of::Unit || self.limits.allocatable.contains(&lane.a)
    }
}

/// KIND and BITS of a trait `spill`.
pub fn spill_kind(value: &str) -> Option<(&str, u32)> {
    let (kind, rest) = value.split_once(',')?;
    Some((kind, rest.split_once(',')?.0.parse().ok()?))
}

/// Units of EXEC's low and high half.
pub const EXEC: [u32; 4] = [12_292, 12_293, 12_294, 12_295];
pub const SCC: u32 = 12_298;
pub const VCC: [u32; 4] = [12_288, 12_289, 12_290, 12_291];
pub const FLAT_SCRATCH: [u32; 4] = [12_300, 12_301, 12_302, 12_303];
