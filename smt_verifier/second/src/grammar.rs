//! The grammar of what LLVM's MIRPrinter writes (spec 2.1), and what reads by it. Every character is consumed.
//!
//! A parsing expression grammar: `/` tries one after the other, `!` looks ahead, `~` ends a line, `.` is a character
//! of one, `[^…]` any other.
//! A rule whose name begins with a capital makes a node of the tree.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::model::{Done, Refused};

const GRAMMAR: &str = r#"
Number = "0" ![0-9] / [1-9] [0-9]*
Word = [A-Za-z0-9_]+
word = Word
Name = [A-Za-z0-9_.$-]+
quoted = '"' ([^"\] / "\" .)* '"'
Symbol = quoted / [A-Za-z0-9_.$-]+
Hex = [0-9A-Fa-f]+
Type = "<" Number " x " [spif] Number ">" / [spif] Number
end = line+
balanced = "(" ([^();"] / quoted / balanced)* ")"
offset = ((" + " / " - ") Number)?
meta = "!" ("DI" word balanced / Number)

Body = line* Block*
line = " "* (";" .*)? ~
Block = Head end Successors? Liveins? (Instruction (Members / end))*
Members = " {" end (Instruction end)+ " "+ "}" end
Head = " "+ "bb." Number ("." Name)? (" (" Attributes ")")? ":"
Attributes = attribute (", " attribute)*
attribute = ("ir-block-address-taken "? "%ir-block.") Symbol / "align " Number / "machine-block-address-taken" /
    "inlineasm-br-indirect-target"
Successors = " "+ "successors:" (" " successor (", " successor)*)? end
successor = Target ("(0x" Hex ")")?
Liveins = " "+ "liveins: " Livein (", " Livein)* end
Livein = "$" Word (":0x" Hex)?

Instruction = " "+ !"bb." (Def (", " Def)* " = ")? (Flag " ")* (AsmCode " " asm (", " asm)* more / Code (" " Operand
    (", " Operand)* more / " " Attribute more)?) (" :: " Memory (", " Memory)*)?
more = (", " Attribute)*
AsmCode = "INLINEASM" word?
Code = !"INLINEASM" [A-Z] word?
Flag = "frame-setup" / "frame-destroy" / "nnan" / "ninf" / "nsz" / "arcp" / "contract" / "afn" / "reassoc" / "nuw" /
    "nsw" / "exact" / "nofpexcept" / "nomerge" / "unpredictable" / "noconvergent" / "nneg" / "disjoint" / "nusw" /
    "samesign" / "inbounds" / "lr-split" / "bb-prolog"
Attribute = ("debug-location " / "mmra " / "pcsections ") meta / ("heap-alloc-marker !" / "debug-instr-number " /
    "cfi-type ") Number / ("pre-instr-symbol " / "post-instr-symbol ") "<mcsymbol " Symbol ">"

Def = Flags register
Flags = ("implicit-def " / "implicit " / "def ")? "internal "? "dead "? "killed "? "undef "? "early-clobber "?
    "renamable "? "debug-use "?
register = Register ("(" Type ")")? ("(tied-def " Tied ")")?
Register = "$" Word / "%" Number ("." Sub)? (":" Class)?
Sub = word
Class = word
Tied = Number
Operand = Flags register / (Target / FrameIndex / FixedFrame / "%subreg." word / flagged? other) note?
note = " /*" [^*;]* "*/"
asm = AsmString note? / AsmFlag note? / Operand
AsmString = "&" quoted offset
AsmFlag = "-"? Number !!" /*" / asmword (" " asmword)*
asmword = ("sideeffect" / "mayload" / "maystore" / "isconvergent" / "alignstack" / "unwind" / "attdialect" /
    "inteldialect" / "regdef-ec" / "regdef" / "reguse" / "clobber" / "imm" / "mem" / "func" / "foldable") (":" word)?
    (" tiedto:$" Number)?
Target = "%bb." Number ("." Name)?
FrameIndex = "%stack." Number ("." Name)?
FixedFrame = "%fixed-stack." Number ("." Name)?
flagged = "target-flags(" [A-Za-z0-9_.$-]+ ") "
other = ("@" / "&") Symbol offset / "<mcsymbol " Symbol ">" / meta / RegMask / float / Immediate / integer /
    ("dbg-instr-ref" / "target-index" / "lanemask") balanced offset
RegMask = "CustomRegMask(" ("$" word ("," "$" word)*)? ")" / ("csr_" / "amdgpu_all") [A-Za-z0-9_.$-]*
float = ("float " / "double " / "half " / "bfloat " / "fp128 ") [A-Za-z0-9+.-]+
Immediate = "-"? Number
integer = "i" Number " " ("true" / "false" / "-"? Number)

Memory = "(" Marks ("load store " size (" on " pointer)? / "load " size (" from " pointer)? / "store " size (" into "
    pointer)?) after ")"
Marks = "volatile "? "non-temporal "? "dereferenceable "? "invariant "? '"amdgpu-noclobber" '? '"amdgpu-last-use" '?
    '"amdgpu-cooperative" '? '"amdgpu-thread-private" '?
size = ("syncscope(" quoted ") ")? Ordering? Ordering? ("unknown-size" / "(" Type ")")
Ordering = "unordered " / "monotonic " / "acquire " / "release " / "acq_rel " / "seq_cst "
pointer = (FixedFrame / FrameIndex / "unknown-address" / "stack" / "got" / "jump-table" / "constant-pool" / "custom "
    quoted / "`" [^`]* "`" / "call-entry "? ("%ir." / "@" / "&") Symbol) offset
after = (", align " Align)? (", basealign " Base)? (", !tbaa !" Number)? (", !alias.scope !" Number)? (", !noalias !"
    Number)? (", !noalias.addrspace !" Number)? (", !range !" Number)? (", addrspace " Space)?
Align = Number
Base = Number
Space = Number

Row = "- {" " "* (Item ("," " "* Item)*)? " "* "}" " "*
Item = Key ":" " "+ Value
Key = [A-Za-z-]+
Value = squoted / '"' [^"\]* '"' / "[" [^][{}]* "]" / [^],'"[{} ] [^],'"[{}]*
squoted = "'" ([^'] / "''")* "'"
is-bool = "true" / "false"
is-count = Number
is-integer = "0" / "-"? [1-9] [0-9]*
is-quoted = squoted
is-text = squoted / '"' [^"\]* '"' / [A-Za-z0-9_.$(<] [A-Za-z0-9_.$+<>()/ -]*
is-word = word
is-register = "'" ("$" word)? "'"
is-physical = "'$" word "'"
is-virtual = "'" ("%" Number)? "'"
is-wish = "'" ([$%] word)? "'"
is-wishes = "[" (" "* is-wish ","?)* " "* "]"
is-flags = "[" " "* "WWM_REG"? " "* "]"
is-argument = "{ " ("reg: '$" word "'" / "offset: " Number) (", mask: " Number)? " }"
is-policy = "all" / "non-leaf-no-reserve" / "non-leaf" / "none" / "reserved"
is-object = "default" / "spill-slot" / "variable-sized"
is-place = "default" / "sgpr-spill" / "noalloc"
is-none = "[]"
is-list = "[]"
is-map = "{}"
is-item = "- " squoted " "*

linkage = "private" / "internal" / "available_externally" / "linkonce_odr" / "linkonce" / "weak_odr" / "weak" /
    "external" / "extern_weak" / "common" / "dso_local" / "dso_preemptable" / "default" / "hidden" / "protected" /
    "dllimport" / "dllexport" / "appending" / "thread_local" / "unnamed_addr"
result = ("void" / "ptr" / "half" / "bfloat" / "float" / "double" / "<" / "[" / "{" / "%" / "target(" / "zeroext" /
    "signext" / "inreg" / "noundef" / "nonnull" / "noalias" / "align" / "range(" / "dereferenceable" / "nofpclass" /
    "fp128") .* / "i" [0-9]*

Part = "block " Number ~ Entry? Steps? (Repeat / Split)*
Entry = "entry" ~ Threads* Mask* Member* Nonempty? Beside? Some? In*
Threads = "class " Number " " [TOP] " on" ~ / "class " Number " " [TO] " off" ~
Mask = "mask " Number " " Range ~
Member = "member " Number (" " Signed)* ~
Signed = [+-] Span
Span = Number ("-" Number)?
Nonempty = "nonempty" (" " Number)* ~
Beside = "beside" (" " Number)* ~
Some = "some" ~
In = "in" (" wave" / (" " Span)+) ~ (Holds / Undefined / Doubtful)*
Holds = "h " Lane " " Range ~
Undefined = "u " Range ~
Doubtful = "d " Range ~
Range = Lane " " Number
Lane = [$^] Number / [%#] Number "." Number / [@!] Number "." Number "." Number / "&" Lane ":" Number ".1"?
Steps = "steps" (" " Run)* ~
Run = Number [=+-]
Repeat = "repeat " Number " " Number " " Number ~
Split = "split " Number ~
"#;

enum Item {
    Text(&'static str),
    /// ASCII characters, and whether all others are meant; never the end of a line.
    Set(u128, bool),
    Sequence(Vec<Item>),
    /// Each with the ASCII characters that it may begin with.
    Choice(Vec<(u128, Item)>),
    /// How often, and what it may begin with.
    Repeat(Box<Item>, usize, usize, u128),
    Not(Box<Item>),
    Rule(usize),
}

/// What a rule has read: its name, the text, where in the whole it begins, and how many nodes stand in it.
#[derive(Debug)]
pub struct Node<'t> {
    pub rule: &'static str,
    pub text: &'t str,
    pub at: usize,
    within: usize,
}

/// A node, and behind it those that stand in it.
#[derive(Clone, Copy)]
pub struct Tree<'t> {
    own: &'t Node<'t>,
    within: &'t [Node<'t>],
}

impl<'t> std::ops::Deref for Tree<'t> {
    type Target = Node<'t>;

    fn deref(&self) -> &Node<'t> {
        self.own
    }
}

impl<'t> Tree<'t> {
    /// The tree whose nodes begin the list, and the rest of the list.
    fn first(nodes: &'t [Node<'t>]) -> Option<(Self, &'t [Node<'t>])> {
        let (own, rest) = nodes.split_first()?;
        let (within, rest) = rest.split_at_checked(own.within)?;
        Some((Tree { own, within }, rest))
    }

    pub fn inner(self) -> impl Iterator<Item = Tree<'t>> {
        let mut rest = self.within;
        std::iter::from_fn(move || Self::first(rest).map(|(tree, others)| (rest = others, tree).1))
    }

    pub fn all(self, rule: &str) -> impl Iterator<Item = Tree<'t>> + use<'t, '_> {
        self.inner().filter(move |tree| tree.rule == rule)
    }

    pub fn child(self, rule: &str) -> Option<Tree<'t>> {
        self.all(rule).next()
    }

    /// The text of a child, or `""`.
    pub fn word(self, rule: &str) -> &'t str {
        self.child(rule).map_or("", |tree| tree.own.text)
    }

    /// The number that this is, or that stands first in it.
    pub fn number(self) -> Option<u64> {
        self.text.parse().ok().or_else(|| self.child("Number")?.text.parse().ok())
    }

    /// The numbers in it, if they are of 32 bits.
    pub fn numbers(self) -> Option<Vec<u32>> {
        self.all("Number").map(|number| number.text.parse().ok()).collect()
    }
}

/// Rules by number, with their names.
struct Grammar {
    rules: Vec<(&'static str, Item)>,
    numbers: HashMap<&'static str, usize>,
}

fn grammar() -> &'static Grammar {
    static ALL: OnceLock<Grammar> = OnceLock::new();
    ALL.get_or_init(|| {
        // A rule goes on in the lines that are indented.
        let starts = GRAMMAR.match_indices('\n').map(|(at, _)| at + 1);
        let starts: Vec<usize> = starts.filter(|at| GRAMMAR[*at..].starts_with(char::is_alphabetic)).collect();
        let ends = starts.iter().skip(1).copied().chain([GRAMMAR.len()]);
        let rules = starts.iter().zip(ends).filter_map(|(start, end)| GRAMMAR.get(*start..end));
        let lines: Vec<_> = rules.filter_map(|rule| rule.split_once(" = ")).collect();
        let numbers = lines.iter().enumerate().map(|(number, (name, _))| (*name, number)).collect();
        let mut rules: Vec<_> =
            lines.iter().map(|(name, text)| (*name, Source { rest: text, numbers: &numbers }.choice())).collect();
        let mut known = vec![(0, false); rules.len()];
        loop {
            let next: Vec<_> = rules.iter().map(|(_, node)| begins(node, &known)).collect();
            if next == known {
                break;
            }
            known = next;
        }
        rules.iter_mut().for_each(|(_, node)| mark(node, &known));
        Grammar { rules, numbers }
    })
}

/// What ASCII characters a node may begin with, and whether it may read nothing; of rules it is known.
fn begins(node: &Item, known: &[(u128, bool)]) -> (u128, bool) {
    match node {
        Item::Text(text) => (text.bytes().next().map_or(0, |letter| 1 << letter), text.is_empty()),
        Item::Set(set, others) => (if *others { !set } else { *set }, false),
        Item::Sequence(items) => items.iter().fold((0, true), |(letters, is_empty), item| {
            let of_item = if is_empty { begins(item, known) } else { (0, false) };
            (letters | of_item.0, of_item.1)
        }),
        Item::Choice(choices) => choices.iter().map(|(_, choice)| begins(choice, known)).fold((0, false), either),
        Item::Repeat(node, least, ..) => either(begins(node, known), (0, *least == 0)),
        Item::Not(_) => (0, true),
        Item::Rule(number) => known.get(*number).copied().unwrap_or_default(),
    }
}

fn either(a: (u128, bool), b: (u128, bool)) -> (u128, bool) {
    (a.0 | b.0, a.1 || b.1)
}

/// Writes down what choices and what repeats may begin with: all, where they may read nothing.
fn mark(node: &mut Item, known: &[(u128, bool)]) {
    let all = |node: &Item| match begins(node, known) {
        (_, true) => u128::MAX,
        (letters, false) => letters,
    };
    match node {
        Item::Sequence(items) => items.iter_mut().for_each(|item| mark(item, known)),
        Item::Choice(choices) => choices.iter_mut().for_each(|(begin, choice)| {
            *begin = all(choice);
            mark(choice, known);
        }),
        Item::Repeat(node, _, _, begin) => {
            *begin = all(node);
            mark(node, known);
        }
        Item::Not(node) => mark(node, known),
        Item::Text(_) | Item::Set(..) | Item::Rule(_) => (),
    }
}

/// Reads the right side of a rule.
struct Source<'a> {
    rest: &'static str,
    numbers: &'a HashMap<&'static str, usize>,
}

impl Source<'_> {
    fn eat(&mut self, mark: char) -> bool {
        self.rest = self.rest.trim_start_matches([' ', '\n']);
        self.rest.strip_prefix(mark).inspect(|rest| self.rest = rest).is_some()
    }

    fn until(&mut self, mark: char) -> &'static str {
        let (text, rest) = self.rest.split_once(mark).unwrap_or((self.rest, ""));
        self.rest = rest;
        text
    }

    fn choice(&mut self) -> Item {
        let mut choices = vec![self.sequence()];
        while self.eat('/') {
            choices.push(self.sequence());
        }
        if choices.len() == 1 {
            choices.remove(0)
        } else {
            Item::Choice(choices.into_iter().map(|choice| (u128::MAX, choice)).collect())
        }
    }

    fn sequence(&mut self) -> Item {
        let mut items = Vec::new();
        while !self.rest.trim_start().starts_with(['/', ')']) && !self.rest.trim().is_empty() {
            items.push(self.item());
        }
        Item::Sequence(items)
    }

    fn item(&mut self) -> Item {
        if self.eat('!') {
            return Item::Not(Box::new(self.item()));
        }
        let node = if self.eat('"') {
            Item::Text(self.until('"'))
        } else if self.eat('\'') {
            Item::Text(self.until('\''))
        } else if self.eat('[') {
            self.set()
        } else if self.eat('~') {
            Item::Text("\n")
        } else if self.eat('.') {
            Item::Set(0, true)
        } else if self.eat('(') {
            let node = self.choice();
            self.eat(')');
            node
        } else {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
            let (name, rest) = self.rest.split_at(end);
            self.rest = rest;
            Item::Rule(*self.numbers.get(name).unwrap_or_else(|| panic!("the grammar has no rule `{name}`")))
        };
        match self.rest.chars().next() {
            Some('*') if self.eat('*') => Item::Repeat(Box::new(node), 0, usize::MAX, u128::MAX),
            Some('+') if self.eat('+') => Item::Repeat(Box::new(node), 1, usize::MAX, u128::MAX),
            Some('?') if self.eat('?') => Item::Repeat(Box::new(node), 0, 1, u128::MAX),
            _ => node,
        }
    }

    /// Characters and ranges; a `]` may stand first.
    fn set(&mut self) -> Item {
        let others = self.rest.starts_with('^');
        self.rest = self.rest.trim_start_matches('^');
        let end = self.rest.get(1..).and_then(|rest| rest.find(']')).map_or(0, |end| end + 1);
        let letters = self.rest.as_bytes().get(..end).unwrap_or(&[]);
        self.rest = self.rest.get(end + 1..).unwrap_or("");
        let (mut set, mut at) = (0_u128, 0);
        while let Some(letter) = letters.get(at) {
            let is_range = letters.get(at + 1) == Some(&b'-') && at + 2 < letters.len();
            let last = if is_range { letters[at + 2] } else { *letter };
            (*letter..=last).for_each(|letter| set |= 1 << letter);
            at += if is_range { 3 } else { 1 };
        }
        Item::Set(set, others)
    }
}

/// How deep rules may be nested: LLVM writes nothing near it.
const DEPTH: usize = 64;

struct Reading<'t> {
    grammar: &'static Grammar,
    text: &'t str,
    /// Where the farthest character stands that no rule has read.
    far: usize,
}

impl<'t> Reading<'t> {
    /// Where what the node reads from `at` on ends, if it reads something.
    fn read(&mut self, node: &Item, at: usize, depth: usize, out: &mut Vec<Node<'t>>) -> Option<usize> {
        self.far = self.far.max(at);
        match node {
            Item::Text(text) => {
                let rest = self.text.as_bytes().get(at..).filter(|rest| rest.first() == text.as_bytes().first())?;
                rest.starts_with(text.as_bytes()).then_some(at + text.len())
            }
            Item::Set(set, others) => self.is_in(at, *set, *others).then_some(at + 1),
            Item::Sequence(items) => items.iter().try_fold(at, |at, item| self.read(item, at, depth, out)),
            Item::Choice(choices) => {
                let letter = self.letter(at);
                let fitting = choices.iter().filter(|(begin, _)| begin >> letter & 1 == 1);
                fitting.map(|(_, choice)| choice).find_map(|choice| self.attempt(choice, at, depth, out))
            }
            Item::Repeat(node, least, most, begin) => {
                let (mut at, mut count) = (at, 0);
                if let (Item::Set(set, others), usize::MAX) = (&**node, *most) {
                    let end = (at..).find(|at| !self.is_in(*at, *set, *others))?;
                    self.far = self.far.max(end);
                    return (end - at >= *least).then_some(end);
                }
                while count < *most && begin >> self.letter(at) & 1 == 1 {
                    let Some(end) = self.attempt(node, at, depth, out).filter(|end| *end > at) else { break };
                    (at, count) = (end, count + 1);
                }
                (count >= *least).then_some(at)
            }
            Item::Not(node) => {
                let far = self.far;
                let length = out.len();
                let is_there = self.read(node, at, depth, out).is_some();
                out.truncate(length);
                self.far = far;
                (!is_there).then_some(at)
            }
            Item::Rule(number) => {
                let grammar = self.grammar;
                let (name, node) = grammar.rules.get(*number)?;
                let depth = depth.checked_sub(1)?;
                if !name.as_bytes().first()?.is_ascii_uppercase() {
                    return self.read(node, at, depth, out);
                }
                let own = out.len();
                out.push(Node { rule: name, text: "", at, within: 0 });
                let end = self.read(node, at, depth, out)?;
                let (text, within) = (self.text.get(at..end)?, out.len() - own - 1);
                // No number that LLVM writes is longer than 64 bits.
                (*name != "Number" || text.parse::<u64>().is_ok()).then_some(())?;
                *out.get_mut(own)? = Node { rule: name, text, at, within };
                Some(end)
            }
        }
    }

    /// The character that stands there; for what is not ASCII, or not there, the end of a line: see `begins`, where it
    /// is in every set of others.
    fn letter(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().filter(u8::is_ascii).unwrap_or(b'\n')
    }

    /// Whether a character of a set stands there. What is not ASCII is in no set: one byte of it after the other.
    fn is_in(&self, at: usize, set: u128, others: bool) -> bool {
        self.text.as_bytes().get(at).is_some_and(|letter| {
            let is_in = letter.is_ascii() && set >> letter & 1 == 1;
            is_in != others && *letter != b'\n'
        })
    }

    fn attempt(&mut self, node: &Item, at: usize, depth: usize, out: &mut Vec<Node<'t>>) -> Option<usize> {
        let length = out.len();
        let end = self.read(node, at, depth, out);
        if end.is_none() {
            out.truncate(length);
        }
        end
    }
}

/// What a rule has read of a whole text.
pub struct Parsed<'t> {
    own: Node<'t>,
    within: Vec<Node<'t>>,
}

impl Parsed<'_> {
    pub fn tree(&self) -> Tree<'_> {
        Tree { own: &self.own, within: &self.within }
    }
}

/// A text that is of this rule.
pub fn parse<'t>(rule: &str, text: &'t str, line: usize) -> Done<Parsed<'t>> {
    let mut reading = Reading { grammar: grammar(), text, far: 0 };
    let mut within = Vec::new();
    let number = reading.grammar.numbers.get(rule);
    if let Some((rule, item)) = number.and_then(|number| reading.grammar.rules.get(*number)) {
        if reading.read(item, 0, DEPTH, &mut within) == Some(text.len()) {
            return Ok(Parsed { own: Node { rule, text, at: 0, within: within.len() }, within });
        }
    }
    let (read, rest) = text.split_at_checked(reading.far).unwrap_or((text, ""));
    let (line, rest) = (line + read.matches('\n').count(), rest.escape_debug().take(24).collect::<String>());
    Err(Refused::new("text", format!("characters that no rule reads, at `{rest}`"), line))
}

/// Whether the whole text is of this rule.
pub fn is(rule: &str, text: &str) -> bool {
    parse(rule, text, 0).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_stands_twice() {
        assert_eq!(grammar().rules.len(), grammar().numbers.len());
    }

    #[test]
    fn everything_is_consumed() {
        assert!(is("is-count", "10") && !is("is-count", "010") && !is("is-count", "10 ") && !is("is-count", ""));
        assert!(is("is-text", "'a '' b'") && !is("is-text", "'a ' b'"));
        let deep = format!("{}{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(!is("balanced", &deep) && is("balanced", "(a (b) \")\" c)"));
    }
}
