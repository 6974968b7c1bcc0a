"""``make demo``: a small transformer block in Torch, compiled for two GPUs with every register assignment proved.

The block of examples/torch_block.py (linear layers, attention, MLP) goes through IREE. A server is started with the
models in this package. Each kernel's machine IR is sent to it over gRPC to be allocated by the language model, and it
is asked which plan to try (``-O=learned --server``). Each result is proved here, put into the .vmfb, and found there
again. Then a kernel has too few registers for the model's first answer: that is refuted, and the second proved
(refuted.py). On a Python without those packages it says so, and the kernels of examples/kernels are compiled instead
(demo_kernels.py).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

TARGETS = ("gfx942", "gfx1100")
PACKAGES = ("torch", "iree.compiler")
MODEL_PACKAGES = ("grpc", "torch", "transformers", "peft")


def missing(packages: Sequence[str] = PACKAGES) -> list[str]:
    """Those that are not installed."""

    def absent(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is None
        except ModuleNotFoundError:
            return True

    return [name for name in packages if absent(name)]


@contextlib.contextmanager
def serving() -> Iterator[dict[str, str]]:
    """A server with the models, as options of a compilation; none, and a line that says why, without them."""
    sys.path.insert(0, str(Path(__file__).parent / "service"))
    try:
        import plans
    except ImportError as error:
        print(f"demo: {error.name} is not installed: no server, and no model", file=sys.stderr)
        yield {}
        return
    language = ("--model=packaged",) if has_language_model() else ()
    with plans.serving_with(*language, f"--plan-model={plans.MODEL}") as (address, _):
        print(
            f"demo: verilocc serve {' '.join(language)} --plan-model={plans.MODEL.name} at {address}", file=sys.stderr
        )
        yield {"server": address, "effort": "learned"}


def has_language_model() -> bool:
    """Whether the language model's packages are installed; a line says which one is not."""
    absent = missing(MODEL_PACKAGES)
    if absent:
        print(f"demo: {', '.join(absent)} not installed: no language model", file=sys.stderr)
    return not absent


def show_refutation(out: Path, console: Console) -> bool:
    """A kernel with few registers, of which an answer is refuted and the next proved; whether all is proved."""
    if missing(MODEL_PACKAGES):
        return True
    import refuted

    console.print(Text("a kernel with few vector registers, and a model without a mask:"))
    shown = refuted.show(out)
    if shown.proved and not shown.refuted:
        console.print(Text("none of the model's answers was refuted"))
    return shown.proved


def said_of_plans(reports: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What the reports of kernels say of plans, with how many say it."""
    notes = (note for report in reports for note in report.get("notes", ()))
    for note, count in Counter(note for note in notes if "stated" in note or note.startswith("plans")).items():
        yield f"{count} x {note}" if count > 1 else note


def compile_block(target: str, out: Path, console: Console, options: Mapping[str, str]) -> bool:
    """Compile, show and write the block for one target; whether every kernel of it is proved."""
    from torch_block import block

    import verilocc_mlir
    from verilocc_mlir.hooks.module_page import print_result

    module, inputs = block()
    compiled = verilocc_mlir.compile(
        module,
        inputs,
        target=target,
        progress=lambda line: print(f"demo: {target}: {line}", file=sys.stderr),
        **options,
    )
    path, report = out / f"block.{target}.vmfb", out / f"block.{target}.json"
    compiled.save(path)
    report.write_text(compiled.result.to_json())
    print_result(compiled.result, str(path), console)
    for line in said_of_plans(kernel.report or {} for kernel in compiled.result.kernels):
        console.print(Text(f"note: {line}"))
    return compiled.proved


def main() -> int:
    """Exit code 0 if all kernels were proved, written and found well."""
    arguments = argparse.ArgumentParser(description="Compile a Torch transformer block, every kernel proved.")
    arguments.add_argument("--out", type=Path, default=Path("out"))
    out: Path = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    absent = missing()
    if absent:
        print(
            f"demo: {', '.join(absent)} not installed (wheels: Python 3.10 to 3.14 on Linux x86-64);"
            " compiling the LLVM IR kernels of examples/kernels instead",
            file=sys.stderr,
        )
        import demo_kernels

        return demo_kernels.main(out)
    from verilocc_mlir.errors import VeriloccError

    started = time.monotonic()
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    try:
        with serving() as options:
            proved = [compile_block(target, out, console, options) for target in TARGETS]
        proved.append(show_refutation(out, console))
    except VeriloccError as error:
        print(f"demo: error: {error.render()}", file=sys.stderr)
        return int(error.exit_code)
    console.print(Text(f"{', '.join(TARGETS)}: {time.monotonic() - started:.0f} s; files in {out}/"))
    return 0 if all(proved) else 3


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        sys.exit(130)
