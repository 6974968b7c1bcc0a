"""Write tests/data/copies: random functions full of COPYs, and what LLVM's MachineCopyPropagation makes of them.

    python scripts/generate_copies.py [--count N] [--seed S]

Each function has three blocks of up to 22 instructions with random flags, widths, halves of tuples, implicit operands,
early clobbers and calls with register masks; of gfx90a also with AGPRs and matrix operations. Those that llc's machine
verifier refuses are left out.
``PROCESSOR.before.mir`` is the text as llc prints it, ``PROCESSOR.after.mir`` what ``-run-pass=machine-cp`` makes of
it.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "copies"
FIXED = ("$m0", "$exec_lo")
LIVE = [*(f"$vgpr{n}" for n in range(10)), *(f"$sgpr{n}" for n in range(12)), "$vcc_lo", "$vcc_hi"]
AGPRS = [f"$agpr{n}" for n in range(8)]


def parts(register: str) -> set[str]:
    """The registers of 32 bits that one consists of."""
    if register == "$vcc":
        return {"$vcc_lo", "$vcc_hi"}
    return {f"${part}" for part in register[1:].split("_")} if "gpr" in register else {register}


class Block:
    """Instructions at random; ``live``: registers that hold something; ``agprs``: there are AGPRs."""

    def __init__(self, random_: random.Random, live: set[str], *, agprs: bool) -> None:
        self._random, self.live, self._agprs = random_, live, agprs
        self._killed, self._written = set[str](), set[str]()

    def _register(self, width: int, file: str = "") -> str:
        file = file or self._random.choice("sssv")
        if file == "s" and width < 3 and self._random.random() < 0.1:
            return "$vcc" if width == 2 else self._random.choice(["$vcc_lo", "$vcc_hi", *FIXED])
        first = self._random.randrange(0, 8, {1: 1, 2: 2, 4: 4}[width])
        name = f"{file}gpr"
        return "$" + "_".join(f"{name}{first + n}" for n in range(width))

    def _flags(self, register: str, *words: str) -> str:
        renamable = self._random.random() < 0.8 and register not in FIXED
        return " ".join([*words, *(["renamable"] if renamable else []), register])

    def _use(self, width: int, file: str = "") -> str:
        register = self._register(width, file)
        if not parts(register) <= self.live | {*FIXED}:
            return self._flags(register, "undef")
        if self._random.random() < 0.3 and register not in FIXED:
            self._killed |= parts(register)
            return self._flags(register, "killed")
        return self._flags(register, *(["undef"] if self._random.random() < 0.06 else []))

    def _definition(self, width: int, file: str = "") -> str:
        register = self._register(width, file)
        if self._random.random() < 0.08 and register not in FIXED:
            self._killed |= parts(register)
            return self._flags(register, "dead")
        self._written |= parts(register)
        return self._flags(register)

    def _implicit(self) -> str:
        register = self._register(2)
        return f", implicit {'' if parts(register) <= self.live else 'undef '}{register}"

    def instruction(self) -> str:
        """One instruction; what it kills is not live behind it."""
        text, kept = self._chosen(self._random.random()), self.live
        if text.startswith("$sgpr30"):
            kept = kept & {*re.findall(r"\$sgpr\d+", text.partition("CustomRegMask")[2])}
        self.live = (kept - self._killed) | self._written
        self._killed, self._written = set[str](), set[str]()
        return text

    def _of_both_files(self) -> str:
        file, other = self._random.choice("av"), self._random.choice("av")
        if self._random.random() < 0.6:
            width = self._random.choice([1, 4, 4])
            return f"{self._definition(width, file)} = COPY {self._use(width, other)}"
        sources = f"{self._use(1, other)}, {self._use(1, 'v')}, {self._use(4, file)}"
        opcode = f"V_MFMA_F32_4X4X1F32_{'vgprcd_' * (file == 'v')}e64"
        return f"{self._definition(4, file)} = {opcode} {sources}, 0, 0, 0, implicit $mode, implicit $exec"

    def _chosen(self, share: float) -> str:
        if self._agprs and share < 0.8:
            return self._of_both_files()
        often = self._random.random() < 0.1
        if share < 0.5:
            width = self._random.choice([1, 1, 1, 2, 2, 4])
            file = self._random.choice(["s", "s", "v", ""])
            return f"{self._definition(width, file)} = COPY {self._use(width, file)}{self._implicit() if often else ''}"
        if share < 0.7:
            more = self._implicit() if often else ""
            return (
                f"{self._definition(1, 's')} = S_ADD_I32 {self._use(1, 's')}, {self._use(1, 's')}, "
                f"implicit-def dead $scc{more}"
            )
        if share < 0.78:
            operands = f"{self._use(2, 's')}, {self._use(2, 's')}"
            return f"{self._definition(2, 's')} = S_AND_B64 {operands}, implicit-def dead $scc"
        if share < 0.84:
            address = f"{self._use(2, 's')}, {self._use(1, 'v')}"
            return f"{self._definition(2, 'v')} = GLOBAL_LOAD_DWORDX2_SADDR {address}, 0, 0, implicit $exec"
        if share < 0.88:
            return f"GLOBAL_STORE_DWORDX2 {self._use(2, 'v')}, {self._use(2, 'v')}, 0, 0, implicit $exec"
        if share < 0.93:
            return f"{self._definition(1, 'v')} = V_ADD_U32_e64 {self._use(1)}, {self._use(1, 'v')}, 0, implicit $exec"
        if share < 0.96:
            kept = [f"$sgpr{n}" for n in range(8) if self._random.random() < 0.6] or ["$sgpr7"]
            callee = self._use(2, "s")
            return f"$sgpr30_sgpr31 = SI_CALL {callee}, 0, CustomRegMask({','.join(kept)}), implicit-def dead $scc"
        early = "early-clobber " if share > 0.98 else ""
        return f"{early}{self._definition(1, 's')} = S_MOV_B32 {self._use(1, 's')}"


def function(number: int, random_: random.Random, *, agprs: bool) -> str:
    """One function."""
    all_live = [*LIVE, *(AGPRS if agprs else ())]
    lists = [all_live, *([r for r in all_live if random_.random() < 0.3] or LIVE[:1] for _ in range(2))]
    ends = ["    S_CBRANCH_SCC0 %bb.2, implicit undef $scc", "", "    S_ENDPGM 0"]
    lines = ["---", f"name: f{number}", "tracksRegLiveness: true", "noVRegs: true", "body: |"]
    for n, (live, end) in enumerate(zip(lists, ends, strict=True)):
        block = Block(random_, {*live}, agprs=agprs)
        lines += [
            f"  bb.{n}:",
            *(["    successors: %bb.1, %bb.2"] if n == 0 else []),
            f"    liveins: {', '.join(live)}",
        ]
        lines += [f"    {block.instruction()}" for _ in range(random_.randrange(3, 22))]
        lines += [end] if end else []
    return "\n".join([*lines, "...", ""])


def llc(text: str, processor: str, run: str) -> tuple[str, str]:
    """What llc prints, and what it says."""
    command = [
        "llc-22",
        "-mtriple=amdgcn-amd-amdhsa",
        f"-mcpu={processor}",
        "-x",
        "mir",
        f"-run-pass={run}",
        "-o",
        "-",
        "-",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30, help="functions for each processor")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    for processor in ("gfx942", "gfx1100", "gfx90a"):
        agprs = processor == "gfx90a"
        texts = {f"f{n}": function(n, random.Random(f"{given.seed} {n}"), agprs=agprs) for n in range(given.count)}
        while refused := {*re.findall(r"function:\s+(f\d+)", llc("".join(texts.values()), processor, "none")[1])}:
            texts = {name: text for name, text in texts.items() if name not in refused}
        before = llc("".join(texts.values()), processor, "none")[0]
        (DATA / f"{processor}.before.mir").write_text(before)
        (DATA / f"{processor}.after.mir").write_text(llc(before, processor, "machine-cp")[0])
        print(f"{processor}: {len(texts)} functions")


if __name__ == "__main__":
    main()
