"""What a verdict covers, and how a caller checks the rest: the command in the contract, run as it stands there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support import REPOSITORY, llc

pytest.importorskip("grpc", reason="the extra 'service' is not installed")

from service_support import CPU, mir_request, small_mir

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import audit_service_pb2 as auditing
from verilocc.v1 import verdict_pb2
from verilocc_mlir.service import jobs

CONTRACT = REPOSITORY / "proto" / "verilocc" / "v1" / "verdict.proto"
GUIDE = REPOSITORY / "docs" / "guide" / "service.md"
_COMMAND = re.compile(r"^(?://  |     ) (llc .*-run-pass=none .*)$", re.MULTILINE)


@pytest.mark.parametrize("page", [CONTRACT, GUIDE], ids=lambda path: path.name)
def test_proved_is_not_taken_by_llc_and_the_command_says_which(page: Path, tmp_path: Path) -> None:
    """Both texts name a value that the IR does not have, alike: the registers are right, and llc reads neither."""
    before = small_mir()
    request = mir_request(before, return_mir=True).SerializeToString()
    after = allocation.AllocateResponse.FromString(jobs.run("Allocate", request, 60)).mir.decode()
    assert _llc_takes(page, after, tmp_path)
    before, after = (text.replace("%ir.q", "%ir.nowhere") for text in (before, after))
    asked = auditing.AuditRequest(before=before.encode(), after=after.encode(), target=CPU)
    audited = auditing.AuditResponse.FromString(jobs.run("Audit", asked.SerializeToString(), 60))
    assert audited.outcome == verdict_pb2.OUTCOME_PROVED
    assert not _llc_takes(page, after, tmp_path)


def _llc_takes(page: Path, text: str, directory: Path) -> bool:
    (command,) = _COMMAND.findall(page.read_text())
    (directory / "allocated.mir").write_text(text)
    names = {"llc": llc(), "TEXT": "allocated.mir", "-mcpu=TARGET": f"-mcpu={CPU}"}
    words = [str(names.get(word, word)) for word in command.split()]
    return subprocess.run(words, cwd=directory, capture_output=True, check=False).returncode == 0
