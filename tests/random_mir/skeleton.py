"""The text around a generated body: what llc prints for an empty function of the same signature and attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from support import run_llc

from random_mir.features import Features


@dataclass(frozen=True)
class Skeleton:
    """Attributes:
    before: everything up to ``registers:``.
    after: everything between the ``liveins:`` and the ``body:``.
    arguments: registers that hold something at entry.
    mask: the register mask of a call, ``""`` without calls.
    passed: registers that a call reads.
    """

    before: str
    after: str
    arguments: tuple[str, ...]
    mask: str
    passed: tuple[str, ...]

    def complete(self, registers: str, body: str) -> str:
        listed = "".join(f"  - {{ reg: '{name}' }}\n" for name in self.arguments)
        return f"{self.before}{registers}liveins:\n{listed}{self.after}body:             |\n{body}...\n"


@lru_cache(maxsize=None)
def skeleton(cpu: str, features: Features, attributes: tuple[tuple[str, str], ...]) -> Skeleton:
    """Header and live-ins of a kernel, or of a device function with sixteen vector and four scalar arguments."""
    printed = run_llc(_ir(features, attributes), cpu, "-stop-before=greedy,0", "-enable-ipra=0", mir=False)
    documents = printed.split("\n---\n")
    preamble = documents[0]
    function = next(d for d in documents[1:] if re.search(r"^name: +k$", d, re.M))
    before, rest = re.split(r"^registers:.*\n(?:  - .*\n)*", function, maxsplit=1, flags=re.M)
    _, live, rest = re.split(r"^(liveins:.*\n(?:  - .*\n)*)", rest, maxsplit=1, flags=re.M)
    after, body = re.split(r"^body: .*\n", rest, maxsplit=1, flags=re.M)
    call = re.search(r"SI_CALL %\d+, @callee, (\w+)((?:, implicit(?:-def)? (?:\w+ )*\$\w+)*)", body)
    return Skeleton(
        before=f"{preamble}\n---\n{before}",
        after=after,
        arguments=tuple(re.findall(r"reg: '(\$\w+)'", live)),
        mask=call[1] if call else "",
        passed=tuple(re.findall(r"implicit (?:\w+ )*(\$\w+)", call[2])) if call else (),
    )


def _ir(features: Features, attributes: tuple[tuple[str, str], ...]) -> str:
    strings = " ".join(f'"{name}"="{value}"' for name, value in attributes)
    if features.device:
        head = "define <4 x i32> @k(<16 x i32> %v, i32 inreg %a, i32 inreg %b, i64 inreg %c)"
        work = "  %r = shufflevector <16 x i32> %v, <16 x i32> poison, <4 x i32> <i32 0, i32 5, i32 9, i32 15>\n"
        used = '  call void asm sideeffect "", "s,s,s,v"(i32 %a, i32 %b, i64 %c, <16 x i32> %v)\n'
        leave = "  ret <4 x i32> %r\n"
    else:
        head = "define amdgpu_kernel void @k(ptr addrspace(1) %p, i64 %n, i32 %m)"
        work = "  %t = call i32 @llvm.amdgcn.workitem.id.x()\n  %w = call i32 @llvm.amdgcn.workgroup.id.x()\n"
        used = (
            "  %q = getelementptr i32, ptr addrspace(1) %p, i64 %n\n"
            "  %s = add i32 %t, %w\n  %s2 = add i32 %s, %m\n  store volatile i32 %s2, ptr addrspace(1) %q\n"
        )
        leave = "  ret void\n"
    call = "  %result = call i32 @callee(<8 x i32> zeroinitializer)\n" if features.calls else ""
    return (
        'target triple = "amdgcn-amd-amdhsa"\n'
        "declare i32 @llvm.amdgcn.workitem.id.x()\ndeclare i32 @llvm.amdgcn.workgroup.id.x()\n"
        f"declare i32 @callee(<8 x i32>)\n{head} {strings} {{\n{work}{used}{call}{leave}}}\n"
    )
