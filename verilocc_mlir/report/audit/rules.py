"""What each rule of the audit means and what to do when it is violated, for reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleText:
    """``summary``: what must hold. ``help``: what usually breaks it, and where to look."""

    summary: str
    help: str


RULE_TEXTS: dict[str, RuleText] = {
    "certificate": RuleText(
        "Each checker at hand accepts a certificate of the proof.",
        "Not proved and not refuted: the search found no fault, but its certificate is refused by the rule named. "
        "Report both texts: either the search is wrong, or the checker does not follow this code yet.",
    ),
    "value": RuleText(
        "Every operand holds, in every lane, the value it held before allocation.",
        "Look for a copy, reload or rematerialised instruction that is missing, stands on the wrong path, or moves "
        "another register or spill slot; for a result written over a value that is still needed; or for a vector move "
        "that stands where EXEC is narrower than where the value is read.",
    ),
    "inactive-lanes": RuleText(
        "What an instruction reads of threads that are not active (matrix operations, v_readlane) is still there.",
        "Not proved and not refuted: LLVM keeps such lanes only as far as it takes the value to be live. Compare both "
        "texts by hand, or keep the instruction out of divergent code.",
    ),
    "path-by-path": RuleText(
        "The text after allocation is right on every path as if EXEC did not exist, not only for each thread.",
        "LLVM's later passes reason so: they forward a COPY that waiting threads do not execute over a write of EXEC. "
        "Move the copy behind the write of EXEC, or keep the register's value on that path.",
    ),
    "undef-flag": RuleText(
        "An operand marked undef had no defined value before allocation.",
        "Later passes drop what an undef operand reads. Remove the flag, or name the value's register.",
    ),
    "kill-flag": RuleText(
        "A register marked killed is not read again before it is written.",
        "Later passes reuse a killed register. Remove the flag, or the later read.",
    ),
    "dead-flag": RuleText(
        "A result marked dead is not read.", "Later passes reuse a dead register. Remove the flag, or the read."
    ),
    "live-in": RuleText(
        "A register that a block reads first is declared live-in there.",
        "Add it to the block's liveins, or find out why the block reads a register that nobody wrote for it.",
    ),
    "early-clobber": RuleText(
        "A result that is written before the operands are read shares no register with them.",
        "Give the early-clobber result a register of its own.",
    ),
    "instruction-sequence": RuleText(
        "Both sides execute the same instructions in the same order, but for moves and repeated pure ones.",
        "An instruction was added, dropped, moved or replaced. An allocator may add copies, spill code and "
        "rematerialised instructions only.",
    ),
    "instruction-flags": RuleText("Instruction flags are what they were.", "Restore the flags (nofpexcept, nsw, …)."),
    "memory-operands": RuleText("Memory operands are what they were.", "Restore what stands after '::'."),
    "bundle": RuleText("Bundles begin and end where they did.", "Restore the braces."),
    "operands": RuleText(
        "Operands that are not allocated registers are what they were.",
        "An immediate, a symbol, a branch target or the number of operands changed.",
    ),
    "fixed-register": RuleText(
        "Physical registers that stood in the text before allocation are what they were.",
        "Arguments, results, calls and special registers are not the allocator's to choose.",
    ),
    "tied-operand": RuleText(
        "A use that is tied to a definition has the same register.",
        "Two-address forms read and write one register: copy the value there first.",
    ),
    "width": RuleText("A register has as many lanes as the operand it stands for.", "Use a tuple of the same width."),
    "register-class": RuleText(
        "A register is a member of the operand's class, alignment included.",
        "gfx90a and its like want even-aligned vector tuples; scalar tuples of 64 bits are even, wider ones multiples "
        "of four; some operands take AGPRs or VGPRs only.",
    ),
    "reserved-register": RuleText(
        "Code of the allocator writes only registers that this function may allocate.",
        "Reserved registers, the stack pointer, and registers beyond the function's budget (attributes such as "
        "amdgpu-num-vgpr and amdgpu-waves-per-eu) are not to be used.",
    ),
    "overlapping-definitions": RuleText(
        "No register is defined twice by one instruction.",
        "Give the results of the instruction registers of their own.",
    ),
    "spill-slot": RuleText(
        "Spill code uses slots that the allocator made, within their bounds, through the function's stack pointer.",
        "Compare the slot's row in stack: (size, type spill-slot), the offset, the memory operand and the base.",
    ),
    "callee-saved": RuleText(
        "At a return, registers that the convention preserves hold again what they held at function entry.",
        "Save the register before it is written and restore it on every path to a return, or use another.",
    ),
    "call-mask": RuleText(
        "A function leaves alone what the masks of its calls say it keeps beyond its calling convention.",
        "Give the value another register, or leave the register out of the calls' CustomRegMask.",
    ),
    "control-flow": RuleText(
        "Blocks and their successors are what they were.", "Allocation must not add, drop or reorder blocks."
    ),
    "header": RuleText(
        "The function's header is what it was, but for what allocation fills in.",
        "Compare the two texts above 'body:'; INVALID also where a function is missing on one side.",
    ),
    "relation": RuleText(
        "Where paths meet, both sides can be related.",
        "The audit could not relate both sides at a block's start. This is a limit of the audit, not a counterexample.",
    ),
    "solver": RuleText(
        "The solver decides every obligation within its limits.",
        "A time or memory limit was hit, or the solver failed: raise --solver-seconds or --solver-memory.",
    ),
    "undefined-input": RuleText(
        "An instruction that reads an undefined register is executed once, or its results are not compared.",
        "It was repeated, and each execution may give another value: see whether two uses of its result must agree.",
    ),
    "unsupported": RuleText(
        "The code is within what the audit models.",
        "The message names what is not modelled; docs/trust/audit.md lists what is.",
    ),
}


def rule_text(rule: str) -> RuleText:
    """The texts of a rule; a rule without texts stands for itself."""
    return RULE_TEXTS.get(rule) or RuleText(rule, rule)
