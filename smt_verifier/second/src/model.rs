//! What a text of machine IR says (spec 2.1): files, functions, blocks, instructions, operands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Why a pair is refused: the rule, what is wrong in words, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub rule: &'static str,
    pub message: String,
    /// `line 12` or `bb.3`; empty where no place is meant.
    pub place: String,
}

impl Refused {
    pub fn new(rule: &'static str, message: impl Into<String>, place: impl Into<String>) -> Self {
        Refused { rule, message: message.into(), place: place.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.rule, self.message)?;
        if self.place.is_empty() {
            return Ok(());
        }
        write!(out, " ({})", self.place)
    }
}

/// One `.mir` file: its IR module, and its functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Lines between `--- |` and `...` without their two blanks in front; empty if there is no module.
    pub module: String,
    pub functions: Vec<Function>,
}

/// Keys and values of one row of a list such as `stack:`, in plain text; `id` is left out.
pub type Row = BTreeMap<String, String>;

/// One machine function: its header and its blocks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Function {
    pub name: String,
    /// Every other header field by path (`frameInfo.maxAlignment`), value as printed.
    pub fields: BTreeMap<String, String>,
    pub registers: BTreeMap<u32, VirtualRegister>,
    pub liveins: Vec<FunctionLiveIn>,
    pub fixed_stack: BTreeMap<u32, Row>,
    pub stack: BTreeMap<u32, Row>,
    /// In layout order. A block is named by its position here everywhere else in the model.
    pub blocks: Vec<Block>,
    pub line: usize,
}

impl Function {
    /// The class of a virtual register, or `""`.
    pub fn class_of(&self, vreg: u32) -> &str {
        self.registers.get(&vreg).map_or("", |row| row.class.as_str())
    }
}

/// A row of `registers:`. Where the list is not printed, the class that a definition prints.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct VirtualRegister {
    pub class: String,
    /// Sorted, for example `WWM_REG`.
    pub flags: Vec<String>,
}

/// A row of the function's `liveins:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionLiveIn {
    /// Without `$`.
    pub register: String,
    pub vreg: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Block {
    /// N of `bb.N`.
    pub number: u32,
    /// What stands in brackets and the IR name behind `bb.N`, as printed.
    pub attributes: String,
    /// Positions in the layout.
    pub successors: Vec<usize>,
    pub liveins: Vec<LiveIn>,
    pub instructions: Vec<Instruction>,
    pub line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveIn {
    /// Without `$`.
    pub register: String,
    /// Which lanes (16 bits each, lowest bit first), if a mask is printed.
    pub mask: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Instruction {
    pub opcode: String,
    /// In LLVM's order: what stands left of `=` first.
    pub operands: Vec<Operand>,
    /// How many operands stand left of `=`. Those are the explicit definitions.
    pub definitions: usize,
    /// `frame-setup`, `nofpexcept`, …
    pub flags: BTreeSet<String>,
    pub memory: Vec<MemoryOperand>,
    /// Attributes behind the operands as printed: `debug-location !7`, `mmra !3`, `pcsections !2`, …
    pub tail: Vec<String>,
    /// It stands between braces.
    pub in_bundle: bool,
    /// An opening brace follows it.
    pub opens_bundle: bool,
    /// A closing brace follows it.
    pub closes_bundle: bool,
    pub line: usize,
}

impl Instruction {
    /// Operands that are not implicit.
    pub fn explicit(&self) -> impl Iterator<Item = &Operand> {
        self.operands.iter().filter(|operand| !operand.is_implicit())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    Register,
    Immediate,
    /// `%bb.N`; `number` is the block's position.
    Block,
    /// `%stack.N`; `number` is N.
    FrameIndex,
    /// `%fixed-stack.N`; `number` is N.
    FixedFrame,
    /// `&name`.
    External,
    /// A named register mask, or `CustomRegMask(…)`.
    RegMask,
    /// The text of inline assembly.
    AsmString,
    /// A number of inline assembly that says what follows.
    AsmFlag,
    /// Globals, predicates, intrinsics, metadata, symbols, floating-point constants and the like.
    #[default]
    Other,
}

/// Flags of a register operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u16);

impl Flags {
    pub const DEF: Flags = Flags(1);
    pub const IMPLICIT: Flags = Flags(2);
    pub const DEAD: Flags = Flags(4);
    pub const KILLED: Flags = Flags(8);
    pub const UNDEF: Flags = Flags(16);
    pub const RENAMABLE: Flags = Flags(32);
    pub const EARLY_CLOBBER: Flags = Flags(64);
    pub const INTERNAL: Flags = Flags(128);
    pub const DEBUG_USE: Flags = Flags(256);

    pub fn has(self, flag: Flags) -> bool {
        self.0 & flag.0 == flag.0
    }

    pub fn with(self, flag: Flags) -> Flags {
        Flags(self.0 | flag.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Operand {
    pub kind: Kind,
    /// As printed, without a register's flags.
    pub text: String,
    /// A physical register's name without `$` (`noreg` too), else empty.
    pub register: String,
    pub vreg: Option<u32>,
    /// Subregister index, or empty.
    pub sub: String,
    /// The class printed behind the register, or empty; `Function::class_of` knows it everywhere.
    pub class: String,
    /// Low-level type, or empty.
    pub llt: String,
    /// N of `(tied-def N)`.
    pub tied: Option<usize>,
    pub flags: Flags,
    /// Block position or number of a frame object.
    pub number: u32,
}

impl Operand {
    pub fn is_register(&self) -> bool {
        self.kind == Kind::Register
    }

    pub fn is_physical(&self) -> bool {
        self.kind == Kind::Register && self.vreg.is_none()
    }

    pub fn is_def(&self) -> bool {
        self.kind == Kind::Register && self.flags.has(Flags::DEF)
    }

    pub fn is_use(&self) -> bool {
        self.kind == Kind::Register && !self.flags.has(Flags::DEF)
    }

    pub fn is_implicit(&self) -> bool {
        self.flags.has(Flags::IMPLICIT)
    }

    pub fn is_undef(&self) -> bool {
        self.flags.has(Flags::UNDEF)
    }

    /// A use whose value matters.
    pub fn reads(&self) -> bool {
        self.is_use() && !self.is_undef()
    }
}

/// One memory operand behind `::`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemoryOperand {
    /// As printed, with its parentheses.
    pub text: String,
    pub volatile: bool,
    pub atomic: bool,
    pub invariant: bool,
    pub dereferenceable: bool,
    /// N of `%stack.N`.
    pub stack: Option<u32>,
    /// Where the digits of N stand in `text`: first byte, and the one behind the last.
    pub number_at: (usize, usize),
    pub address_space: u32,
    /// Bytes; `None` where it is not printed.
    pub align: Option<u64>,
    pub base_align: Option<u64>,
}

impl MemoryOperand {
    /// The text with another number for its stack object.
    pub fn with_number(&self, number: u32) -> String {
        let head = self.text.get(..self.number_at.0).unwrap_or("");
        let tail = self.text.get(self.number_at.1..).unwrap_or("");
        format!("{head}{number}{tail}")
    }
}
