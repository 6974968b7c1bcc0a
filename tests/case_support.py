"""Reading the case files of ``tests/cases``: what a pair of texts must be judged, and what llc says of the second."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support import REPOSITORY

from smt_verifier.artefacts import RecordingSolver
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.audit import audit_texts
from verilocc_mlir.results.audit import AuditRun, Listing
from verilocc_mlir.toolchain.inputs import decode

CASES = REPOSITORY / "tests" / "cases"
RIGHT = "right"
ATTACKS = frozenset(
    ["parser", "header", "calls", "memory", "added", "ties", "repeat", "lanes", "places", "module", "registers"]
)
"""Classes of wrong second texts: what is attacked."""
VERDICTS = frozenset({"proved", "refuted", "unknown", "invalid"})
ANSWERS = frozenset({"silent", "notices", "rejects"})
_FIELDS = {
    "verdict": VERDICTS,
    "rule": None,
    "target": None,
    "class": ATTACKS | {RIGHT},
    "llc": ANSWERS,
    "resume": None,
    "itself": frozenset({"no"}),
}
_REQUIRED = ("verdict", "rule", "target", "class")
_DEFAULT_RESUME = "virtregrewriter,2"


@dataclass(frozen=True)
class Case:
    """A pair of texts with what is expected of it; the fields are those of the first line (see cases/README.md)."""

    name: str
    before: Path
    after: Path
    verdict: str
    rule: str
    target: str
    kind: str
    llc: str
    resume: str
    equals_itself: bool


@dataclass(frozen=True)
class Judgement:
    """What the audit answers: an outcome, and the rules of all findings."""

    verdict: str
    rules: frozenset[str]
    messages: tuple[str, ...]


def read_case(before: Path) -> Case:
    """A case by its first text.

    Raises:
        ValueError: the first line is not a case's.
    """
    name = before.name.removesuffix(".before.mir")
    lines = before.read_bytes().decode().splitlines()
    fields = _fields(name, lines[0] if lines else "")
    if len(lines) < 2 or not re.match(r"# \S", lines[1]):
        raise ValueError(f"{name}: the second line must say what is wrong with the second text, or why it is right")
    proved = fields["verdict"] == "proved"
    undecided = (fields["verdict"], fields["rule"]) == ("unknown", "certificate")
    if not undecided and (fields["class"] == RIGHT) != proved:
        raise ValueError(f"{name}: what is right must be proved, if a certificate is accepted, and nothing else may be")
    return Case(
        name,
        before,
        before.with_name(f"{name}.after.mir"),
        fields["verdict"],
        fields["rule"],
        fields["target"],
        fields["class"],
        fields.get("llc", ""),
        fields.get("resume", _DEFAULT_RESUME),
        "itself" not in fields,
    )


def _fields(name: str, line: str) -> Mapping[str, str]:
    if not line.startswith("# "):
        raise ValueError(f"{name}: the first line is no comment")
    pairs = [entry.partition(":")[::2] for entry in line.removeprefix("# ").split(";")]
    fields = {key.strip(): value.strip() for key, value in pairs}
    for key, value in fields.items():
        if key not in _FIELDS:
            raise ValueError(f"{name}: no field {key!r}")
        allowed = _FIELDS[key]
        if not value or (allowed is not None and value not in allowed):
            raise ValueError(f"{name}: {key} cannot be {value!r}")
    missing = [key for key in _REQUIRED if key not in fields]
    if missing or len(fields) != len(pairs):
        raise ValueError(f"{name}: {', '.join(missing) or 'a field'} is missing or there twice")
    return fields


def all_cases(directory: Path = CASES) -> list[Case]:
    """Every case, by name."""
    return [read_case(path) for path in sorted(directory.glob("*.before.mir"))]


def judge(before: Path, after: Path, cpu: str) -> Judgement:
    """What ``verilocc audit`` answers for two files; a text it does not take is invalid.

    Z3 is asked too, as the third opinion: a solver that records is not the default one.
    """
    try:
        run: AuditRun = audit_texts(
            _listing(before), _listing(after), cpu, record=lambda _, solver: RecordingSolver(solver)
        )
    except VeriloccError as error:
        return Judgement("invalid", frozenset(), (str(error),))
    found = [finding for _, _, finding in run.findings()]
    return Judgement(
        run.outcome.value, frozenset(f.rule for f in found), tuple(f"{f.rule}: {f.message}" for f in found)
    )


def _listing(path: Path) -> Listing:
    return Listing(str(path), decode(path.read_bytes(), str(path)))


def llc_says(llc: str, text: Path, cpu: str, resume: str) -> tuple[str, str]:
    """What llc, with its machine verifier on, does with a text from ``resume`` on, and the first lines it prints."""
    command = [llc, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-x", "mir", f"-start-after={resume}"]
    done = subprocess.run(
        [*command, "-verify-machineinstrs", str(text), "-o", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode == 0:
        return "silent", ""
    parse_error = re.search(
        rf"^error: (?:YAML|{re.escape(str(text))}):|: error: {re.escape(str(text))}:", done.stderr, re.MULTILINE
    )
    errors = [
        line for line in done.stderr.splitlines() if re.search(r"error:|ERROR|Bad machine code|- instruction:", line)
    ]
    return ("rejects" if parse_error else "notices"), "\n".join(errors[:4])
