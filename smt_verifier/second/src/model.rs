//! What a text of machine IR says (spec 2.1): files, functions, blocks, instructions, operands; and a refusal.

use std::collections::BTreeMap;
use std::fmt;

use crate::lanes::{Lane, Set};
use crate::tables::{Opcode, OperandRow, Register, RegisterClass};

/// Why a pair is refused: the rule, what is wrong in words, and where (empty where no place is meant).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub rule: &'static str,
    pub message: String,
    pub place: String,
}

/// What is done, or why it is refused.
pub type Done<T = ()> = Result<T, Refused>;

impl Refused {
    pub fn new(rule: &'static str, message: impl Into<String>, place: impl Place) -> Self {
        let (place, opcode) = (place.place(), place.opcode());
        let within = if opcode.is_empty() { "" } else { " in " };
        Refused { rule, message: format!("{}{within}{opcode}", message.into()), place }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.rule, self.message)?;
        if self.place.is_empty() {
            Ok(())
        } else {
            write!(out, " ({})", self.place)
        }
    }
}

/// Where something is wrong: an instruction, a line of the text, words, or nowhere (`""`).
pub trait Place {
    fn place(&self) -> String;

    fn opcode(&self) -> &str {
        ""
    }
}

impl Place for &Instruction {
    fn place(&self) -> String {
        self.line.place()
    }

    fn opcode(&self) -> &str {
        &self.name
    }
}

impl Place for usize {
    fn place(&self) -> String {
        format!("line {self}")
    }
}

impl Place for &str {
    fn place(&self) -> String {
        (*self).to_string()
    }
}

/// Refuse unless something holds: `ensure!(holds, rule, place, "words {}", …)`.
macro_rules! ensure {
    ($holds:expr, $rule:expr, $place:expr, $($words:tt)+) => {
        if !$holds {
            return Err($crate::model::Refused::new($rule, format!($($words)+), $place));
        }
    };
}
pub(crate) use ensure;

/// What an option has, or a refusal: `need!(option, rule, place, "words {}", …)`.
macro_rules! need {
    ($option:expr, $rule:expr, $place:expr, $($words:tt)+) => {
        $option.ok_or_else(|| $crate::model::Refused::new($rule, format!($($words)+), $place))?
    };
}
pub(crate) use need;

/// One `.mir` file: its IR module (without the two blanks in front of each line; may be empty), and its functions.
#[derive(Clone, Debug)]
pub struct File {
    pub module: String,
    pub functions: Vec<Function>,
}

/// Keys and values of one row of a list such as `stack:`, in plain text; `id` is left out.
pub type Row = BTreeMap<String, String>;

/// One machine function: its header and its blocks, in layout order. A block is named by its position everywhere.
#[derive(Clone, Debug, Default)]
pub struct Function {
    pub name: String,
    /// Header fields by path (`frameInfo.maxAlignment`) but for the lists that follow, values without quotes.
    pub fields: Row,
    pub registers: BTreeMap<u32, Virtual>,
    /// Physical register without `$`, and virtual register.
    pub liveins: Vec<(String, Option<u32>)>,
    pub fixed_stack: BTreeMap<u32, Row>,
    pub stack: BTreeMap<u32, Row>,
    pub blocks: Vec<Block>,
    pub line: usize,
}

impl Function {
    pub fn instructions(&self) -> impl Iterator<Item = &Instruction> {
        self.blocks.iter().flat_map(|block| &block.instructions)
    }

    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.instructions().flat_map(|instruction| &instruction.operands)
    }

    pub fn has_virtual(&self) -> bool {
        self.operands().any(|operand| operand.vreg.is_some())
    }

    /// Units of the physical registers that operands name.
    pub fn units(&self) -> Set<u32> {
        self.operands().filter_map(|operand| operand.register).flat_map(|r| &r.units).copied().collect()
    }
}

/// What is known of a virtual register: its class, and whether its flag `WWM_REG` is set.
#[derive(Clone, Copy, Debug)]
pub struct Virtual {
    pub class: &'static RegisterClass,
    pub whole_wave: bool,
}

impl Virtual {
    /// How many lanes of 16 bits it has.
    pub fn lanes(&self) -> u32 {
        self.class.bits.div_ceil(16).max(1)
    }
}

/// A block without its debug instructions, which say nothing (spec 2.2).
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// N of `bb.N`.
    pub number: u32,
    /// What stands in brackets and the IR name behind `bb.N`, as printed.
    pub attributes: String,
    pub successors: Vec<usize>,
    /// Registers, and which lanes (16 bits each, lowest bit first) if a mask is printed.
    pub liveins: Vec<(&'static Register, Option<u64>)>,
    pub instructions: Vec<Instruction>,
    pub line: usize,
    // What follows is set when blocks are joined (spec 2.5).
    /// Where another one begins in it: before which instruction, and its position.
    pub joints: Vec<(usize, usize)>,
    /// The position of the last one in it.
    pub last: usize,
}

#[derive(Clone, Debug)]
pub struct Instruction {
    pub name: String,
    pub opcode: &'static Opcode,
    /// In LLVM's order: what stands left of `=` first.
    pub operands: Vec<Operand>,
    /// How many operands stand left of `=`. Those are the explicit definitions.
    pub definitions: usize,
    /// `frame-setup`, `nofpexcept`, …, sorted.
    pub flags: Vec<String>,
    pub memory: Vec<MemoryOperand>,
    /// Attributes behind the operands as printed, debug locations left out: `mmra !3`, `pcsections !2`, …
    pub tail: Vec<String>,
    /// It stands between braces; an opening one follows it; a closing one does.
    pub bundle: [bool; 3],
    pub line: usize,
}

impl Instruction {
    pub fn has(&self, word: &str) -> bool {
        self.opcode.has(word)
    }

    /// What stands behind `=` of a trait, or `""`.
    pub fn value(&self, word: &str) -> &'static str {
        self.opcode.value(word)
    }

    /// Operands that are not implicit.
    pub fn explicit(&self) -> impl Iterator<Item = &Operand> {
        self.operands.iter().filter(|operand| !operand.is(IMPLICIT))
    }

    pub fn defined(&self) -> impl Iterator<Item = &Operand> {
        self.operands.iter().filter(|operand| operand.is_def())
    }

    /// The lanes of all register operands that are chosen, in order.
    pub fn lanes(&self, chosen: impl Fn(&Operand) -> bool) -> Vec<Lane> {
        self.operands
            .iter()
            .filter(|operand| chosen(operand))
            .flat_map(|operand| operand.lanes.iter().copied())
            .collect()
    }

    /// KIND, BITS and whether it saves, of spill code (spec 7.3).
    pub fn spill(&self) -> Option<(&'static str, u32, bool)> {
        let (kind, rest) = self.value("spill").split_once(',')?;
        let (bits, way) = rest.split_once(',')?;
        Some((kind, bits.parse().ok()?, way == "save"))
    }

    /// Whole-wave spill code (spec 7.5).
    pub fn is_whole_wave(&self) -> bool {
        self.value("spill").starts_with("WWM_")
    }

    /// The immediate that an operand is.
    pub fn immediate(&self, number: usize) -> Option<u32> {
        self.operands.get(number).filter(|o| o.kind == Kind::Immediate)?.text.parse().ok()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    Register,
    Immediate,
    /// `%bb.N`; `number` is the block's position.
    Block,
    /// `%stack.N` and `%fixed-stack.N`; `number` is N, later that of the object in P (spec 13.3).
    FrameIndex,
    FixedFrame,
    /// A named register mask, or `CustomRegMask(…)`.
    RegMask,
    /// The text of inline assembly, and what says what follows.
    AsmString,
    AsmFlag,
    /// Globals, symbols, metadata, floating-point constants and the like.
    #[default]
    Other,
}

// Flags of a register operand.
pub const DEF: u16 = 1;
pub const IMPLICIT: u16 = 2;
pub const DEAD: u16 = 4;
pub const KILLED: u16 = 8;
pub const UNDEF: u16 = 16;
pub const RENAMABLE: u16 = 32;
pub const EARLY_CLOBBER: u16 = 64;
pub const INTERNAL: u16 = 128;
pub const DEBUG_USE: u16 = 256;

#[derive(Clone, Debug, Default)]
pub struct Operand {
    pub kind: Kind,
    /// As printed, without a register's flags.
    pub text: String,
    /// A physical register, `noreg` too.
    pub register: Option<&'static Register>,
    pub vreg: Option<u32>,
    /// Subregister index, class as printed, and low-level type; may be empty.
    pub sub: String,
    pub class: String,
    pub llt: String,
    /// N of `(tied-def N)`.
    pub tied: Option<usize>,
    pub flags: u16,
    /// Block position or number of a frame object.
    pub number: u32,
    // What follows is set when both texts have been read.
    /// The lanes that a register operand stands for (spec 3.1). Other operands have none.
    pub lanes: Vec<Lane>,
    /// The other lanes of a virtual register, of which an `undef` definition of a subregister writes a part.
    pub beside: Vec<Lane>,
    /// The row of the virtual register.
    pub row: Option<Virtual>,
    /// The table's row of an explicit operand.
    pub table: Option<&'static OperandRow>,
    /// A definition that is written before all uses are read, by its flag, the table, or its group in assembly.
    pub early: bool,
}

impl Operand {
    /// Whether it has all these flags.
    pub fn is(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    pub fn is_register(&self) -> bool {
        self.kind == Kind::Register
    }

    /// An address relative to its instruction.
    pub fn is_relative(&self) -> bool {
        let flags = self.text.strip_prefix("target-flags(");
        !self.is_register() && flags.is_some_and(|flags| !flags.starts_with("amdgpu-abs"))
    }

    pub fn is_def(&self) -> bool {
        self.is_register() && self.is(DEF)
    }

    pub fn is_use(&self) -> bool {
        self.is_register() && !self.is(DEF)
    }

    /// A use whose value matters.
    pub fn reads(&self) -> bool {
        self.is_use() && !self.is(UNDEF)
    }

    /// Whether it names this physical register.
    pub fn names(&self, register: &str) -> bool {
        self.register.is_some_and(|own| own.name == register)
    }

    /// Whether both name the same registers, or parts of them.
    pub fn same_register(&self, other: &Operand) -> bool {
        (self.vreg, self.register, &self.sub) == (other.vreg, other.register, &other.sub)
    }

    /// Width of what it names.
    pub fn bits(&self) -> u32 {
        let lanes = match (self.register, self.row) {
            (Some(register), _) => register.units.len(),
            (None, Some(row)) if self.sub.is_empty() => return row.class.bits,
            _ => crate::tables::tables().lanes(&self.sub).unwrap_or_default().len(),
        };
        lanes as u32 * 16
    }
}

/// One memory operand behind `::`.
#[derive(Clone, Debug, Default)]
pub struct MemoryOperand {
    /// As printed, with its brackets; later with P's number of a stack object.
    pub text: String,
    pub volatile: bool,
    pub atomic: bool,
    pub invariant: bool,
    pub dereferenceable: bool,
    /// N of `%stack.N` (a frame index) or `%fixed-stack.N`, and where in `text` its digits begin.
    pub object: Option<(Kind, u32)>,
    pub number_at: usize,
    pub address_space: u64,
    /// Bytes; `None` where it is not printed.
    pub align: Option<u64>,
    pub base_align: Option<u64>,
}
