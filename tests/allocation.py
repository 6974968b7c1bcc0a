"""Pairs of MIR before and after an allocation phase, made by the real llc, for the tests of the audit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from support import allocated_by_llvm, cpu_of, llc, pre_ra, readable, run_llc

from smt_verifier.audit import AuditReport, audit
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target


@dataclass(frozen=True)
class Pair:
    """Text before and after one phase for one target."""

    cpu: str
    pre: str
    post: str

    def audit(self) -> AuditReport:
        return audit(parse_mir(self.pre, "pre.mir"), parse_mir(self.post, "post.mir"), target(self.cpu))

    def rules(self) -> set[str]:
        """Rules that the audit names."""
        return {f.rule for done in self.audit().functions for f in done.findings}

    def with_post(self, old: str, new: str, count: int = 1) -> Pair:
        """The post-RA text with ``old`` replaced; the text must be there."""
        body = self.post.index("body:")
        assert old in self.post[body:], f"{old!r} is not in the text: choose another site"
        return replace(self, post=self.post[:body] + self.post[body:].replace(old, new, count))


def edited(pair: Pair, pattern: str, change: str | Callable[[re.Match[str]], str], *, after: str = "body:") -> Pair:
    """The post-RA text with the first match of ``pattern`` behind ``after`` changed."""
    start = pair.post.index(after)
    text, count = re.subn(pattern, change, pair.post[start:], count=1, flags=re.MULTILINE)
    if not count:
        llc()  # the sites are those of LLVM 22
    assert count == 1, f"{pattern} matches nothing in:\n{pair.post[start:]}"
    return replace(pair, post=pair.post[:start] + text)


PASSES = {"greedy": "greedy", "basic": "regallocbasic", "fast": "regallocfast"}
"""LLVM's allocators and the names of their passes; a rewriter runs after each of them."""
ALLOCATORS = sorted(PASSES)


def allocated(pre: str, cpu: str, phase: int, allocator: str = "greedy", *arguments: str) -> Pair:
    """One phase of MIR stopped before ``greedy,0``, by one of ``PASSES``.

    Args:
        pre: the text before the SGPR phase.
        cpu: its target.
        phase: 0 SGPR, 2 VGPR. Before the VGPR phase that allocator does the phases before, in one run from ``pre``:
            llc 22 crashes when it resumes from text with scalar spills.
        allocator: a key of ``PASSES``, for all phases.
        arguments: further options of llc.
    """
    name = PASSES[allocator]
    chosen = (*(f"-{kind}-regalloc={allocator}" for kind in ("sgpr", "wwm", "vgpr")), "-enable-ipra=0", *arguments)
    before = pre
    if phase:
        before = run_llc(readable(pre), cpu, *chosen, f"-start-before={name},0", f"-stop-before={name},{phase}")
    stages = (f"-start-before={name},{phase}", f"-stop-after=virtregrewriter,{phase}")
    return Pair(cpu, before, run_llc(readable(before), cpu, *chosen, *stages))


FORCED: dict[str, dict[str, str]] = {
    "as is": {},
    "few VGPRs": {"amdgpu-num-vgpr": "64", "amdgpu-agpr-alloc": "0"},
    "few SGPRs": {"amdgpu-num-sgpr": "32"},
    "many waves": {"amdgpu-flat-work-group-size": "1,64", "amdgpu-waves-per-eu": "6"},
}
"""Function attributes that make LLVM spill; ``amdgpu-waves-per-eu`` is a wish and may change nothing."""


def with_attributes(ir: str, attributes: dict[str, str]) -> str:
    """IR whose functions have these string attributes; they replace those of the same name."""
    if not attributes:
        return ir
    for name in attributes:
        ir = re.sub(rf'"{name}"="[^"]*" ?', "", ir)
    added = " ".join(f'"{name}"="{value}"' for name, value in attributes.items())
    return re.sub(r"^(define .*\))((?: (?:local_unnamed_addr|unnamed_addr))?)", rf"\1\2 {added}", ir, flags=re.M)


_LANE = r"sub\d+(?:_[lh][oi]16)?|[lh][oi]16"
_LANE_COPY = re.compile(
    rf"^(?P<indent> +)(?P<to>.*%(?P<vreg>\d+)\.(?:{_LANE}):(?P<file>a?)v\w+)"
    rf" = COPY (?:killed )?%(?P=vreg)\.(?P<lane>{_LANE})$",
    re.M,
)


def without_lane_copies(mir: str) -> str:
    """``%5.sub1 = COPY %5.sub0`` of vector registers by way of a register of its own.

    LLVM 22's fast allocator takes such a copy for an identity and deletes it (RegAllocFast compares registers without
    their lanes), which the audit rightly refutes; this text says the same and is spared.
    """
    first = 1 + max(map(int, re.findall(r"(?<=%)\d+|(?<=- { id: )\d+(?=, class)", mir)), default=0)
    classes: list[str] = []

    def through(match: re.Match[str]) -> str:
        classes.append("vgpr_16" if "16" in match["lane"] else "av_32" if match["file"] else "vgpr_32")
        name, indent = f"%{first + len(classes) - 1}", match["indent"]
        source = f"%{match['vreg']}.{match['lane']}"
        return f"{indent}{name}:{classes[-1]} = COPY {source}\n{indent}{match['to']} = COPY {name}"

    mended = _LANE_COPY.sub(through, mir)
    entry = "  - {{ id: {}, class: {}, preferred-register: '', flags: [  ] }}\n"
    listed = "".join(entry.format(first + n, cls) for n, cls in enumerate(classes))
    return mended.replace("\nliveins:", f"\n{listed}liveins:", 1)


@lru_cache(maxsize=None)
def phases_of_ir(text: str, cpu: str) -> tuple[Pair, Pair]:
    """The SGPR and the VGPR phase of IR, both allocated by LLVM."""
    return _phases(run_llc(text, cpu, "-stop-before=greedy,0", mir=False), cpu)


@lru_cache(maxsize=None)
def phases_of_kernel(path: Path) -> tuple[Pair, Pair]:
    """The SGPR and the VGPR phase of a kernel file, both allocated by LLVM."""
    return _phases(pre_ra(path), cpu_of(path))


def _phases(printed: str, cpu: str) -> tuple[Pair, Pair]:
    pre = readable(printed)
    scalar = allocated_by_llvm(pre, cpu, 0, 0)
    # In one run from the pre-RA text: llc 22 crashes when it resumes from text with scalar spills.
    vector = readable(run_llc(pre, cpu, "-start-before=greedy,0", "-stop-before=greedy,2"))
    return Pair(cpu, pre, scalar), Pair(cpu, vector, allocated_by_llvm(vector, cpu, 2, 2))
