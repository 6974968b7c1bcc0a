"""Tokens of problems in the model's encoding against tokens of the machine IR under a code model's tokenizer.

    .venv/bin/python benchmarks/encoding_size.py KERNEL.ll... --tokenizer DIR_OR_GGUF [--out FILE.json]

For each kernel: the MIR of its function as ``llc -stop-before=greedy,0`` prints it (from ``name:`` to the end of the
body, IR left out), and the windows of its SGPR and VGPR problems with the deterministic allocator's answers, headers
and answers included. Needs the model extra.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "model"), str(REPOSITORY / "tests")]

from allocators_support import compile_phases  # noqa: E402
from support import cpu_of, pre_ra  # noqa: E402

from verilocc_model.encoding.examples import windows_of  # noqa: E402


def tokenizer(path: Path) -> Any:
    """A tokenizer of transformers from a directory, or out of a GGUF file."""
    kind: Any = importlib.import_module("transformers").AutoTokenizer
    if path.is_file():
        return kind.from_pretrained(path.parent, gguf_file=path.name)
    return kind.from_pretrained(path)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="+", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    known = tokenizer(arguments.tokenizer)
    rows: list[dict[str, Any]] = []
    for path in arguments.kernels:
        mir = pre_ra(path)
        text = mir[mir.index("\nname:") :]
        compiled = compile_phases(mir, cpu_of(path), ("sgpr", "vgpr"))
        problems = [r for runs in compiled.runs.values() for r in runs if r.proposal is not None]
        ours = sum(len(w.tokens) for r in problems if r.proposal for w in windows_of(r.problem, r.proposal.registers))
        theirs = len(known(text)["input_ids"])
        row = {"kernel": path.name, "phases": len(problems), "characters": len(text), "mir": theirs, "encoded": ours}
        rows.append({**row, "fewer_percent": round(100 * (1 - ours / theirs), 2)})
        print(f"{path.name:36} MIR {theirs:8,}  encoded {ours:7,}  {rows[-1]['fewer_percent']:.1f} % fewer", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps({"tokenizer": arguments.tokenizer.name, "kernels": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
