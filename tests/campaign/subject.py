"""Small right pairs of texts, and mutants of them."""

from __future__ import annotations

from dataclasses import dataclass, field

PROCESSORS = ("gfx942", "gfx1201", "gfx1250")
"""One for each mode of the tables."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A pair of texts that is right.

    Attributes:
        row: what is attacked in it, for the coverage table.
        processor: LLVM's name of the GPU.
        before: machine IR before allocation, all of the file.
        after: the same after it.
    """

    row: str
    processor: str
    before: str
    after: str
    function: str = "f"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a subject.

    Attributes:
        column: how it is changed, for the coverage table.
        after: the text after allocation, changed; or the subject's own.
        what: the change, in words.
        equivalent: why it may be accepted; ``""``: it must be refused.
        certificate: a changed certificate to be offered; ``""``: those of the search and of the subject are.
    """

    column: str
    after: str
    what: str
    equivalent: str = ""
    certificate: str = field(default="", repr=False)


HEADER = """--- |
  @g = external addrspace(1) global i32
  define {convention}void @f(ptr addrspace(1) %p) #0 {{
    ret void
  }}
  attributes #0 = {{ "amdgpu-flat-work-group-size"="1,64" "amdgpu-waves-per-eu"="1,1" "target-cpu"="{processor}" }}
...
---
name:            f
tracksRegLiveness: true
noVRegs:         {no_vregs}
registers:{registers}
liveins:{liveins}
frameInfo:
  hasCalls:        true
{stack}machineFunctionInfo:
  isEntryFunction: {entry}
  hasSpilledSGPRs: {spilled}
  scratchRSrcReg:  '{descriptor}'
  frameOffsetReg:  '{frame}'
  stackPtrOffsetReg: '$sgpr32'
  sgprForEXECCopy: '{exec_copy}'
{info}body:             |
"""


def text(
    processor: str,
    body: list[str],
    *,
    registers: dict[int, str] | None = None,
    liveins: tuple[str, ...] = (),
    stack: tuple[str, ...] = (),
    info: str = "",
    entry: bool = True,
    spilled: bool = False,
    virtual: bool = False,
    flags: frozenset[int] = frozenset(),
) -> str:
    """A file with one function ``f``; ``virtual``: it has virtual registers, of these classes."""
    rows = "".join(
        f"\n  - {{ id: {n}, class: {cls}, preferred-register: '', flags: [ {'WWM_REG' if n in flags else ''} ] }}"
        for n, cls in (registers or {}).items()
    )
    arguments = "".join(f"\n  - {{ reg: '${name}' }}" for name in liveins)
    objects = "stack:\n" + "\n".join(stack) + "\n" if stack else ""
    head = HEADER.format(
        convention="amdgpu_kernel " if entry else "",
        processor=processor,
        no_vregs=str(not virtual).lower(),
        registers=rows or "       []",
        liveins=arguments or "         []",
        stack=objects,
        entry=str(entry).lower(),
        spilled=str(spilled).lower(),
        info=info,
        descriptor="$sgpr96_sgpr97_sgpr98_sgpr99" if entry else "$private_rsrc_reg",
        frame="$fp_reg" if entry else "$sgpr33",
        exec_copy="$sgpr100_sgpr101" if processor.startswith("gfx9") else "$sgpr100",
    )
    return head + "\n".join(body) + "\n...\n"
