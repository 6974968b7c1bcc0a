"""Scalars in lanes of vector registers, whole-wave code, callee-saved registers, and all phases at once."""

from __future__ import annotations

import re

import pytest
from allocation import Pair
from support import readable, run_llc

from smt_verifier.outcome import Outcome

CLOBBERS = ",".join(f"~{{s{n}}}" for n in range(100))
SPILLING = f"""
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q, i32 %n) {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %c = icmp slt i32 %t, %n
  %gp = getelementptr i32, ptr addrspace(1) %p, i32 %t
  br i1 %c, label %a, label %b
a:
  %v = load i32, ptr addrspace(1) %gp
  call void asm sideeffect "", "{CLOBBERS},~{{vcc}}"()
  %o = add i32 %v, %n
  store i32 %o, ptr addrspace(1) %gp
  br label %b
b:
  store i32 %n, ptr addrspace(1) %q
  ret void
}}
"""
CALLING = """
declare void @ext(i32)
define i32 @f(i32 %x, i32 inreg %s, ptr addrspace(1) %p) {
  %q = load i32, ptr addrspace(1) %p
  %y = add i32 %q, %s
  call void @ext(i32 %y)
  %z = add i32 %y, %x
  %r = mul i32 %z, %s
  ret i32 %r
}
"""
WHOLE_WAVE = """
declare i32 @llvm.amdgcn.set.inactive.i32(i32, i32)
declare i32 @llvm.amdgcn.strict.wwm.i32(i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32 immarg, i32 immarg, i32 immarg, i1 immarg)
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %n) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %c = icmp slt i32 %t, %n
  %gp = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %early = load i32, ptr addrspace(1) %gp
  br i1 %c, label %a, label %b
a:
  %v = load volatile i32, ptr addrspace(1) %gp
  %s = call i32 @llvm.amdgcn.set.inactive.i32(i32 %v, i32 0)
  %d = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %s, i32 273, i32 15, i32 15, i1 false)
  %sum = add i32 %s, %d
  %w = call i32 @llvm.amdgcn.strict.wwm.i32(i32 %sum)
  store volatile i32 %w, ptr addrspace(1) %gp
  br label %b
b:
  store i32 %early, ptr addrspace(1) %gp
  ret void
}
"""


def all_phases(text: str, cpu: str) -> Pair:
    """LLVM's text before the first phase, and after the last."""
    pre = readable(run_llc(text, cpu, "-stop-before=greedy,0", "-enable-ipra=0", mir=False))
    post = run_llc(pre, cpu, "-start-before=greedy,0", "-stop-after=virtregrewriter,2", "-enable-ipra=0")
    return Pair(cpu, pre, readable(post))


def edited(pair: Pair, pattern: str, replacement: str) -> Pair:
    body = pair.post.index("body:")
    changed, count = re.subn(pattern, replacement, pair.post[body:], count=1, flags=re.MULTILINE)
    assert count == 1, f"{pattern!r} is not in the text"
    return Pair(pair.cpu, pair.pre, pair.post[:body] + changed)


@pytest.mark.parametrize("cpu", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("text", [SPILLING, CALLING, WHOLE_WAVE], ids=["spills", "calls", "whole wave"])
def test_all_phases_at_once_are_proved(text: str, cpu: str) -> None:
    assert all_phases(text, cpu).audit().outcome is Outcome.PROVED


SAVE = r"(\$vgpr\d+ = SI_SPILL_S32_TO_VGPR [^\n]*?\$sgpr\d+), (\d+), "


@pytest.mark.parametrize(
    ("pattern", "replacement", "rules"),
    [
        (r"^ *\$vgpr\d+ = SI_SPILL_S32_TO_VGPR (?:killed )?\$sgpr\d+, 4,[^\n]*\n", "", {"value"}),
        (SAVE + r"(?=[^\n]*\n[^\n]*TO_VGPR)", r"\1, 40, ", {"value"}),
        (r"(= SI_RESTORE_S32_FROM_VGPR \$vgpr\d+), 4", r"\1, 3", {"value"}),
        (r"(\$vgpr)\d+( = SI_SPILL_S32_TO_VGPR [^\n]*, 1,)", r"\g<1>7\2", {"tied-operand"}),
        (r"^( *)(INLINEASM)", r"\1$vgpr63 = IMPLICIT_DEF\n\1\2", {"value"}),
    ],
    ids=["dropped save", "wrong lane saved", "wrong lane restored", "broken tie", "register overwritten"],
)
def test_scalars_in_lanes(pattern: str, replacement: str, rules: set[str]) -> None:
    """LLVM keeps the scalars in the lanes of v63 here."""
    changed = edited(all_phases(SPILLING, "gfx942"), pattern, replacement)
    assert changed.audit().outcome is Outcome.REFUTED
    assert changed.rules() & rules


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"^ *\$sgpr30 = SI_RESTORE_S32_FROM_VGPR [^\n]*\n", ""),
        (r"^( *)SI_RETURN", r"\1$sgpr36 = COPY $sgpr32\n\1SI_RETURN"),
    ],
    ids=["dropped restore", "overwritten before the return"],
)
def test_callee_saved_scalars(pattern: str, replacement: str) -> None:
    assert "callee-saved" in edited(all_phases(CALLING, "gfx942"), pattern, replacement).rules()


def test_scalars_in_lanes_of_a_called_function_need_a_reserved_register() -> None:
    pair = all_phases(CALLING, "gfx942")
    unlisted = re.sub(r"  wwmReservedRegs:\n    - '\$vgpr\d+'\n", "", pair.post)
    assert unlisted != pair.post
    assert Pair(pair.cpu, pair.pre, unlisted).rules() == {"header"}


def test_a_whole_wave_result_destroys_what_waiting_threads_keep() -> None:
    """Its register holds the value loaded early, which threads that skip the branch store at the end."""
    pair = all_phases(WHOLE_WAVE, "gfx942")
    body = pair.post[pair.post.index("body:") :]
    early = re.search(r"(\$vgpr\d+) = GLOBAL_LOAD_DWORD_SADDR", body)
    wide = re.search(r"(\$vgpr\d+) = V_SET_INACTIVE_B32", body)
    assert early
    assert wide
    assert early[1] != wide[1]
    changed = pair.post.replace(body, re.sub(re.escape(wide[1]) + r"\b", early[1], body))
    assert "value" in Pair(pair.cpu, pair.pre, changed).rules()
