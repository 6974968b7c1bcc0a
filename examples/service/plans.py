"""Plans over the service from start to end: serve a model of plans, ask it over HTTP, compile a kernel with its plans.

    python examples/service/plans.py [--plan-model=DIR] [KERNEL.ll] [--plans=2] [--into=DIR]

DIR of --plan-model is what "verilocc train plans" wrote. Without it, the model in this package is taken. --into gets
the kernel's facts as a request for curl (request.json), the code object and its report. The compiler asks for plans
where another order of instructions promises fewer modelled cycles; else a note says why it does not ask.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from verilocc_mlir.pipeline.learned import model_directory
from verilocc_mlir.pipeline.plans import DEFAULT, planned
from verilocc_mlir.pipeline.settings import Settings
from verilocc_model.plans.choose import facts_of

VERILOCC = [sys.executable, "-m", "verilocc_mlir.cli.main"]
KERNEL = Path(__file__).parents[1] / "kernels" / "attn_d64.gfx1201.opt.ll"
MODEL = model_directory(None)
SECONDS = 60.0


@contextlib.contextmanager
def serving_with(*models: str) -> Iterator[tuple[str, int]]:
    """``verilocc serve`` with these options: its address, and its port for HTTP, which its log says."""
    options = ["--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--workers=1", *models]
    process = subprocess.Popen([*VERILOCC, "serve", *options], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = 0
        for line in process.stderr:
            said = json.loads(line) if line.startswith("{") else {"event": line.strip()}
            if said["event"] == "http":
                port = said["port"]
            elif said["event"] == "listening":
                # The log goes on: somebody has to read it.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield said["address"], port
                return
            else:
                print(said["event"], file=sys.stderr)
        raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.wait(SECONDS)


def request_for(kernel: Path) -> dict[str, object]:
    """What RankPlans is asked: the kernel's target and its facts, of LLVM's default compile and of its text."""
    given = planned(kernel.read_bytes(), str(kernel), Settings())
    facts = facts_of(given, DEFAULT, given.work.compiler.direct(given.ir, "asm"))
    return {"target": given.work.target.name, "facts": facts or {}, "count": 3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", nargs="?", type=Path, default=KERNEL)
    parser.add_argument("--plan-model", type=Path, default=MODEL)
    parser.add_argument("--plans", type=int, default=2)
    parser.add_argument("--into", type=Path)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        into = given.into or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        into.mkdir(exist_ok=True)
        body = json.dumps(request_for(given.kernel)).encode()
        (into / "request.json").write_bytes(body)
        address, port = stack.enter_context(serving_with(f"--plan-model={given.plan_model}"))

        url = f"http://127.0.0.1:{port}/verilocc.v1.PlanService/RankPlans"
        asked = urllib.request.Request(url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
            ranked = json.loads(answer.read())
        print(f"{ranked['model']} (version {ranked['version']}) ranks first: {', '.join(ranked['answers'])}")

        report = into / "report.json"
        options = ["-O=learned", f"--plans={given.plans}", f"--server={address}", f"--report={report}", "-q"]
        command = [*VERILOCC, "compile", str(given.kernel), *options, "-o", str(into / "kernel.hsaco")]
        done = subprocess.run(command, check=False)
        if done.returncode:
            return done.returncode
        data = json.loads(report.read_text())
    print(f"{given.kernel.name}: {data['outcome']}")
    for note in data["notes"]:
        print(f"note: {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
