//! Both texts as the checker sees them: lanes of operands (spec 3.1), files (3.4), slots (7.3), cells (3.5).

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::mem::take;
use std::rc::Rc;

use crate::behind::{MadeOne, Written};
use crate::check::{is_moving, is_reload};
use crate::header::{info, object, registers_in, Objects};
use crate::lanes::{Lane, Map, Of, Set, EXEC, FIRST_SCALAR, FLAT_SCRATCH};
use crate::limits::Limits;
use crate::model::*;
use crate::tables::{tables, Processor, Register};

/// What whoever asks knows of what LLVM does behind the phase.
#[derive(Clone, Copy, Default)]
pub struct Premises {
    /// It saves scalars, and restores them, which a callee must preserve (spec 12.3, 9.1).
    pub saved_later: bool,
    /// It makes no long branch: so it was measured (spec 13.4).
    pub near_branches: bool,
}

/// Everything that does not change while the blocks are checked. Objects have P's numbers (spec 13.3).
#[derive(Clone)]
pub struct Context<'a> {
    pub before: &'a Function,
    pub after: &'a Function,
    pub processor: &'a Processor,
    pub limits: &'a Limits,
    /// P's numbers of Q's objects.
    pub objects: &'a Objects,
    /// Lanes are 32 bits (spec 3.1).
    pub coarse: bool,
    /// The lanes of EXEC that cover the wave.
    pub exec: Vec<Lane>,
    /// Units that operands of either text name, and of these those of Q's.
    pub touched: BTreeSet<u32>,
    pub touched_after: Set<u32>,
    /// Slots of which each thread has its own value (spec 3.4).
    pub vector_slots: Set<u32>,
    /// Slots that something else than spill code names, or that are no spill slots (spec 7.3).
    pub other_slots: Set<u32>,
    /// Sizes in bits in which vector spill code names a slot.
    pub slot_bits: Map<u32, BTreeSet<u32>>,
    /// Numbers of the cells that the texts name (`Lane::cell`).
    pub cells: Rc<[u8]>,
    /// Units that calls of this function in P's file rely on, beyond its convention (spec 9).
    pub promised: BTreeSet<u32>,
    /// Units that its convention preserves.
    pub preserved: BTreeSet<u32>,
    /// The function's, by LLVM's name.
    pub convention: String,
    /// Its attributes ask for a frame pointer.
    pub keeps_frame_pointer: bool,
    /// Units that Q's header sets aside for whole-wave use (spec 4.3).
    pub reserved_after: Set<u32>,
    pub premises: Premises,
    /// Assembly may be other than its text shows (spec 5.4).
    pub is_obscure: bool,
    /// P waits for a number of accesses to memory (spec 8.4).
    pub is_counted: bool,
    pub has_virtual: bool,
    /// Units of the stack pointer and the like: a write of them moves the slots (spec 6).
    pub frame_units: Set<u32>,
    /// Units that moves and instructions without code of P define (spec 13.6).
    pub moved_units: Set<u32>,
    /// Units that hold at a return what they held at entry (spec 12.3). The stack pointer and its like are for pairs to
    /// change, as P does (spec 14), but not for reloads of scalars.
    pub restored: BTreeSet<u32>,
    /// Units that a call may leave without a value, unless it preserves them: all that hold one somewhere (spec 9).
    pub lost_to_calls: BTreeSet<u32>,
    /// What each block writes, once it was asked for (spec 12.2).
    pub written: OnceCell<Vec<Written>>,
    /// The blocks of P that lead to each, likewise.
    pub led: OnceCell<Vec<BTreeSet<usize>>>,
    /// And those of which LLVM may make one.
    pub made_one: OnceCell<Vec<MadeOne>>,
    /// Instructions of P that some `repeat` of the certificate names.
    pub repeated: Set<(u32, u32)>,
}

/// Whether a text names no half of a 32-bit register (spec 3.1).
pub fn is_coarse(function: &Function) -> bool {
    let is_half = |register: &Register| register.name.ends_with("_lo16") || register.name.ends_with("_hi16");
    let named = function.operands().filter_map(|operand| operand.register);
    let live = function.blocks.iter().flat_map(|block| &block.liveins).map(|(register, _)| *register);
    let mut halves = function.operands().filter(|o| o.sub.contains("lo16") || o.sub.contains("hi16"));
    let has_half = halves.next().is_some() || function.registers.values().any(|row| row.class.bits == 16);
    !has_half && !named.chain(live).any(is_half)
}

/// Of the lanes of something those that are used (spec 3.1).
pub fn used<T: Copy>(lanes: &[T], coarse: bool) -> Vec<T> {
    lanes.iter().copied().step_by(if coarse { 2 } else { 1 }).collect()
}

/// Set what both texts say of each operand of one: its lanes, P's numbers for its objects, the table's row.
///
/// # Errors
/// `well-formed`: a subregister that its register does not have.
pub fn resolve(function: &mut Function, objects: &Objects, coarse: bool, wave32: bool, xnack: bool) -> Done {
    let rows = take(&mut function.stack).into_iter();
    function.stack = rows.filter_map(|(number, row)| Some((*objects.stack.get(&number)?, row))).collect();
    let registers = &function.registers;
    for i in function.blocks.iter_mut().flat_map(|block| &mut block.instructions) {
        let is_asm = i.has("asm");
        let early: BTreeSet<usize> = assembly_operands(i).iter().filter(|o| o.is_early).map(|o| o.number).collect();
        for memory in &mut i.memory {
            let Some((kind, number)) = memory.object else { continue };
            let new = objects.number(kind, number);
            memory.object = Some((kind, new));
            memory.text.replace_range(memory.number_at..memory.number_at + number.to_string().len(), &new.to_string());
        }
        for (k, o) in i.operands.iter_mut().enumerate() {
            if matches!(o.kind, Kind::FrameIndex | Kind::FixedFrame) {
                let new = objects.number(o.kind, o.number);
                o.text = o.text.replacen(&format!(".{}", o.number), &format!(".{new}"), 1);
                o.number = new;
            }
            o.table = i.opcode.row(k).filter(|_| !o.is(IMPLICIT));
            o.early =
                o.is_def() && (o.is(EARLY_CLOBBER) || o.table.is_some_and(|r| r.early_clobber) || early.contains(&k));
            if let Some(register) = o.register {
                let half = wave32 && o.is(IMPLICIT) && register.name == "vcc" && !is_asm;
                let units = if half { register.units.get(..2).unwrap_or(&[]) } else { &register.units };
                o.lanes = used(units, coarse).into_iter().map(Lane::unit).collect();
            } else if let Some(vreg) = o.vreg {
                o.row = registers.get(&vreg).copied();
                let Some(row) = o.row else { continue };
                let whole: Vec<u32> = (0..row.lanes()).collect();
                let part = if o.sub.is_empty() { Some(whole.clone()) } else { tables().lanes(&o.sub) };
                let part = part.filter(|part| part.iter().all(|lane| *lane < row.lanes()));
                let part = need!(part, "well-formed", i.line, "no subregister `{}`", o.text);
                let of = |lane| Lane::new(Of::Virtual, vreg, lane, 0).with_vector(row.class.is_vector);
                o.lanes = used(&part, coarse).into_iter().map(of).collect();
                o.beside = used(&whole, coarse).into_iter().map(of).filter(|lane| !o.lanes.contains(lane)).collect();
            }
        }
        // A scalar load may be done again for a part of it, unless it is aligned to its size (spec 5.6).
        let (offset, align) = i.memory.first().map_or((0, 0), crate::order::placed);
        let again = xnack && i.opcode.has("scalar-load");
        for o in i.operands.iter_mut().take(1).filter(|o| again && o.is_def()) {
            let size = u64::from(o.bits() / 8);
            o.early |= size > 4 && (align < size || offset.unsigned_abs() % size.next_power_of_two() != 0);
        }
    }
    Ok(())
}

/// An operand of inline assembly, and what its group is: early-clobber (or a clobber), a clobber, tied.
pub struct AssemblyOperand {
    pub number: usize,
    pub is_early: bool,
    pub is_clobber: bool,
    pub is_tied: bool,
}

/// Operands of inline assembly, as the number or the words before their group say.
pub fn assembly_operands(i: &Instruction) -> Vec<AssemblyOperand> {
    let mut all = Vec::new();
    // The text and a number about it come first; then groups: a flag, and as many operands as it says.
    let mut at = if i.has("asm") { 2 } else { i.operands.len() };
    while let Some(flag) = i.operands.get(at).filter(|o| !o.is_register()) {
        let digits: String = flag.text.chars().take_while(char::is_ascii_digit).collect();
        let (is_early, is_clobber, is_tied, count) = match digits.parse::<u32>() {
            Ok(word) => (matches!(word & 7, 3 | 4), word & 7 == 4, word >> 31 == 1, (word >> 3 & 0x1fff) as usize),
            Err(_) => {
                let count = i.operands.iter().skip(at + 1).take_while(|o| o.kind != Kind::AsmFlag).count();
                let is_clobber = flag.text.starts_with("clobber");
                (is_clobber || flag.text.contains("-ec"), is_clobber, flag.text.contains("tiedto"), count)
            }
        };
        all.extend((at + 1..).take(count).map(|number| AssemblyOperand { number, is_early, is_clobber, is_tied }));
        at += 1 + count;
    }
    all
}

impl<'a> Context<'a> {
    /// # Errors
    /// `spill-slot`: a slot that scalar and vector spill code names.
    pub fn new(
        before: &'a Function, after: &'a Function, processor: &'a Processor, limits: &'a Limits, objects: &'a Objects,
        coarse: bool,
    ) -> Done<Context<'a>> {
        let reserved = registers_in(after, "wwmReservedRegs");
        let reserved = reserved.iter().filter_map(|name| tables().register(name)).flat_map(|r| r.units.iter().copied());
        let exec: Vec<Lane> = EXEC.into_iter().take(processor.wave_size as usize / 16).map(Lane::unit).collect();
        let touched_after = after.units();
        let mut context = Context {
            before,
            after,
            processor,
            limits,
            objects,
            coarse,
            exec: used(&exec, coarse),
            touched: before.units().into_iter().chain(touched_after.iter().copied()).collect(),
            touched_after,
            vector_slots: Set::default(),
            other_slots: Set::default(),
            slot_bits: Map::default(),
            cells: Rc::from([]),
            promised: BTreeSet::new(),
            preserved: BTreeSet::new(),
            written: OnceCell::new(),
            led: OnceCell::new(),
            made_one: OnceCell::new(),
            convention: String::new(),
            keeps_frame_pointer: false,
            reserved_after: reserved.collect(),
            premises: Premises::default(),
            is_obscure: false,
            is_counted: false,
            has_virtual: after.has_virtual(),
            frame_units: frame_units([before, after]),
            moved_units: defined(before, is_moving),
            restored: BTreeSet::new(),
            lost_to_calls: BTreeSet::new(),
            repeated: Set::default(),
        };
        let reloaded = defined(after, is_reload);
        let set_aside = |unit: &u32| limits.kept.contains(unit) || limits.of_exec.contains(unit);
        let restored = limits.saved.iter().filter(|unit| !set_aside(unit) || reloaded.contains(unit));
        // A called function gives the scratch descriptor back, and the frame pointer, which LLVM saves if it is one.
        let names = match info(before, "isEntryFunction") == "true" {
            true => Vec::new(),
            false => [registers_in(after, "scratchRSrcReg"), registers_in(after, "frameOffsetReg")].concat(),
        };
        let (written, registers) = (defined(after, |_| true), names.iter().filter_map(|name| tables().register(name)));
        let given = registers.flat_map(|r| &r.units).filter(|unit| written.contains(unit));
        let restored = restored.chain(given).filter(|unit| !coarse || *unit % 2 == 0);
        context.restored = restored.copied().collect();
        let blocks = before.blocks.iter().chain(&after.blocks);
        let live = blocks.flat_map(|block| &block.liveins).flat_map(|(register, _)| &register.units);
        let held = context.touched.iter().chain(live).chain(&context.restored);
        context.lost_to_calls = held.filter(|unit| !limits.kept.contains(unit)).copied().collect();
        let mut scalar: Set<u32> = Set::default();
        for text in [before, after] {
            let other = text.stack.iter().filter(|(_, row)| object(row, "type") != "spill-slot");
            context.other_slots.extend(other.map(|(number, _)| *number));
            for i in text.instructions() {
                let operands = i.operands.iter().filter(|o| o.kind == Kind::FrameIndex).map(|o| o.number);
                let memory = i.memory.iter().filter_map(|m| m.object).filter(|(kind, _)| *kind == Kind::FrameIndex);
                for slot in operands.chain(memory.map(|(_, number)| number)) {
                    match i.spill() {
                        None => drop(context.other_slots.insert(slot)),
                        Some(("S", ..)) => drop(scalar.insert(slot)),
                        Some((_, bits, _)) => {
                            context.vector_slots.insert(slot);
                            context.slot_bits.entry(slot).or_default().insert(bits);
                        }
                    }
                    let both = scalar.contains(&slot) && context.vector_slots.contains(&slot);
                    ensure!(!both, "spill-slot", i, "a slot of scalar and of vector spill code");
                }
            }
        }
        let moves = [before, after].into_iter().flat_map(Function::instructions);
        let moves = moves.filter(|i| i.has("lane-save") || i.has("lane-restore"));
        let threads: BTreeSet<u8> = moves.filter_map(|i| u8::try_from(i.immediate(2)?).ok()).collect();
        let cells = threads.into_iter().flat_map(|thread| context.cells_of(Lane::unit(0), thread));
        context.cells = cells.map(|cell| cell.cell).collect::<Vec<u8>>().into();
        Ok(context)
    }

    /// All cells of the register that a lane lies in, of which the texts name some.
    pub fn cells_in(&self, lane: Lane) -> impl Iterator<Item = Lane> + '_ {
        self.cells.iter().map(move |cell| Lane { cell: *cell, vector: false, ..lane.base() })
    }

    /// The cells of a thread in the register that a lane lies in, as many as a scalar has lanes.
    pub fn cells_of(&self, lane: Lane, thread: u8) -> Vec<Lane> {
        (0..if self.coarse { 1 } else { 2 }).filter_map(|half| lane.cell_of(thread, half)).collect()
    }

    /// The lanes of a slot from a byte offset on.
    pub fn slot_lanes(&self, slot: u32, offset: u32, bits: u32, vector: bool) -> Vec<Lane> {
        let lanes: Vec<u32> = (offset / 2..offset / 2 + bits.div_ceil(16)).collect();
        let of = |lane| Lane::new(Of::Slot, slot, lane, 0).with_vector(vector);
        used(&lanes, self.coarse).into_iter().map(of).collect()
    }

    /// A name or place of a certificate with its file (spec 3.4); `None` for one that the texts do not have.
    pub fn resolve(&self, mut lane: Lane, place: bool) -> Option<Lane> {
        if place && lane.of == Of::Slot {
            lane.a = *self.objects.stack.get(&lane.a)?;
        }
        let text = if place { self.after } else { self.before };
        let vector = match lane.of {
            Of::Unit | Of::Entry => lane.a < FIRST_SCALAR,
            Of::Virtual => text.registers.get(&lane.a).filter(|row| lane.b < row.lanes())?.class.is_vector,
            Of::Slot => self.vector_slots.contains(&lane.a),
            Of::Read => read_lanes(self.remembered(lane.a, lane.b)?).0.get(usize::from(lane.c))?.vector,
            Of::Result => {
                let first = self.remembered(lane.a, lane.b)?.operands.first().filter(|o| o.is_def())?;
                first.lanes.get(usize::from(lane.c))?.vector
            }
            Of::Unchanged => return None,
        };
        if lane.cell != 0 {
            Some(lane).filter(|lane| vector && self.cells.contains(&lane.cell))
        } else {
            Some(lane.with_vector(vector))
        }
    }

    /// The instruction of P that `@B.I.K` or `!B.I.K` names.
    pub fn remembered(&self, block: u32, instruction: u32) -> Option<&'a Instruction> {
        self.before.blocks.get(block as usize)?.instructions.get(instruction as usize)
    }

    /// Whether an allocator may use this unit (spec 13.4).
    pub fn allocatable(&self, lane: Lane) -> bool {
        lane.of != Of::Unit || self.limits.allocatable.contains(&lane.a)
    }
}

/// Units of the registers that address the stack, as both headers name them (spec 6). A called function that has a frame pointer
/// does not name it (spec 13.4).
fn frame_units(texts: [&Function; 2]) -> Set<u32> {
    let entry = info(texts[0], "isEntryFunction") == "true";
    let fields = ["scratchRSrcReg", if entry { "frameOffsetReg" } else { "stackPtrOffsetReg" }];
    let names = fields.iter().flat_map(|field| texts.map(|text| info(text, field)));
    let registers = names.filter_map(|name| tables().register(name.strip_prefix('$')?));
    registers.flat_map(|r| r.units.iter().copied()).chain(FLAT_SCRATCH).collect()
}

/// Units that some instructions of a text define.
fn defined(text: &Function, chosen: fn(&Instruction) -> bool) -> Set<u32> {
    let lanes = text.instructions().filter(|i| chosen(i)).flat_map(|i| i.lanes(Operand::is_def));
    lanes.filter(|lane| lane.of == Of::Unit).map(|lane| lane.a).collect()
}

/// The lanes that an instruction reads, in the order of spec 8.3, of EXEC the first operand if it counts; whether one
/// of
/// them is `undef`.
pub fn read_lanes(i: &Instruction) -> (Vec<Lane>, bool) {
    let explicit: Vec<&str> = i.explicit().map(|o| o.text.as_str()).collect();
    // Every thread gets a new value (spec 8.2).
    let old_is_not_read = i.has("may-leave-old") && matches!(explicit.as_slice(), [.., "15", "15", "1" | "-1"]);
    let uses = i.operands.iter().enumerate().filter(|(n, o)| o.is_use() && !(old_is_not_read && *n == 1));
    let (exec, others): (Vec<_>, Vec<_>) = uses.map(|(_, o)| o).partition(|o| o.names("exec") || o.names("exec_lo"));
    let undef = exec.iter().chain(&others).any(|o| o.is(UNDEF));
    let exec = exec.first().filter(|_| i.has("pure-exec"));
    (exec.into_iter().chain(&others).flat_map(|o| o.lanes.clone()).collect(), undef)
}
