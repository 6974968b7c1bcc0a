"""LLVM's own tests of its AMDGPU back end, those of an old copy, by ``verilocc compile-many`` where llc compiles them.

    .venv/bin/python benchmarks/llvm_old_tests.py --repository=GIT_DIR [--targets=gfx942,gfx1100]

The repository is one that has ``test/CodeGen/AMDGPU``: a clone of emscripten-core/emscripten-fastcomp. Its tests have
typed pointers, which are made opaque here, line by line. What llc does not compile after that is not counted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from common import Row, command, options, write

from verilocc_mlir.toolchain.find import find_toolchain

FOLDER = "test/CodeGen/AMDGPU/"
_OPEN = {">": "<", "]": "[", "}": "{", ")": "("}
_TYPE = re.compile(r"(?:\b(?:i\d+|half|float|double|void|ptr|metadata)|%[\w.$-]+|%\"[^\"]+\"|ptr addrspace\(\d+\))$")
_STAR = re.compile(r"\s*(addrspace\(\d+\)\s*)?\*")
_COMMENT = re.compile(r"^((?:[^;\"]|\"[^\"]*\")*);.*$")
_REASONS = {
    "does not know llvm.": "an intrinsic that LLVM 22 has no more",
    "it is compiled for": "the functions name another GPU",
    "no function is defined": "no function",
    "the input is empty": "no function",
    "COPY: registers of different width": "no certificate: a copy between registers of different width",
}


def opaque(text: str) -> str:
    """IR with opaque pointers, without comments."""
    lines = (_COMMENT.sub(r"\1", line) for line in text.splitlines())
    parts = ([p if p.startswith('"') else _pointers(p) for p in re.split(r"(\"[^\"]*\")", line)] for line in lines)
    return "\n".join(line for line in map("".join, parts) if line.strip()) + "\n"


def _pointers(line: str) -> str:
    at = 0
    while (star := _STAR.search(line, at)) is not None:
        start = _start_of_type(line[: star.start()])
        at = star.end() if start is None else start
        if start is not None:
            space = f" {star[1].strip()}" if star[1] else ""
            line = f"{line[:start]}ptr{space}{line[star.end() :]}"
    return line


def _start_of_type(text: str) -> int | None:
    """Where the type begins that ``text`` ends with; None: it ends with none."""
    text = text.rstrip()
    match = _TYPE.search(text)
    if match is not None or not text or text[-1] not in _OPEN:
        return None if match is None else match.start()
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] in _OPEN) - (text[at] in _OPEN.values())
        if not depth:
            # Before the parameters of a function type stands its result.
            return _start_of_type(text[:at]) if text[-1] == ")" else at
    return None


def reason(message: str) -> str:
    """Of one kind of failure one text."""
    return next((text for part, text in _REASONS.items() if part in message), message)


def measure(texts: dict[str, str], cpu: str, directory: Path) -> Row:
    """What llc compiles of the tests, and what came of that."""
    source, out, summary = (directory / name for name in ("in", "out", "summary.json"))
    source.mkdir()
    llc = find_toolchain(None).llc
    for name, text in texts.items():
        given = [llc, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-filetype=obj", "-o", "/dev/null"]
        try:
            done = subprocess.run(given, input=text, text=True, capture_output=True, timeout=90)
        except subprocess.TimeoutExpired:
            print(f"llc takes over 90 s for {name} on {cpu}", file=sys.stderr, flush=True)
            continue
        if not done.returncode:
            (source / name).write_text(text)
    words = ["compile-many", str(source), "-o", str(out), f"-mcpu={cpu}", "-j1", "--job-seconds=90", "--emit=obj"]
    words += ["--no-cache", f"--report={summary}", "-q"]
    subprocess.run([sys.executable, "-m", "verilocc_mlir.cli.main", *words], stdout=subprocess.DEVNULL)
    return row(cpu, json.loads(summary.read_text())["inputs"])


def row(cpu: str, inputs: list[Row]) -> Row:
    """The counts of one target."""
    failed = {Path(i["input"]).name: f"{i['outcome']}: {reason(i['message'])}" for i in inputs if i["exit_code"]}
    return {
        "target": cpu,
        "compiled_by_llc": len(inputs),
        "proved": len(inputs) - len(failed),
        "reasons": dict(Counter(failed.values()).most_common()),
        "others": failed,
    }


def main() -> None:
    parser = options(__doc__, "llvm_old_tests.json")
    parser.add_argument("--repository", required=True, type=Path)
    parser.add_argument("--targets", default="gfx942,gfx1100")
    arguments = parser.parse_args()
    git = ["git", "-C", str(arguments.repository)]

    def output(*words: str) -> str:
        return subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout

    names = output("ls-tree", "-r", "HEAD", "--name-only", FOLDER).split()
    texts = {
        name.removeprefix(FOLDER).replace("/", "_"): opaque(output("show", f"HEAD:{name}"))
        for name in names
        if name.endswith(".ll")
    }
    rows: list[Row] = []
    for cpu in arguments.targets.split(","):
        with tempfile.TemporaryDirectory() as directory:
            rows.append(measure(texts, cpu, Path(directory)))
        print(cpu, rows[-1]["proved"], "of", rows[-1]["compiled_by_llc"], file=sys.stderr, flush=True)
        write(arguments.out, {"command": command(), "tests": len(texts), "rows": rows})


if __name__ == "__main__":
    main()
