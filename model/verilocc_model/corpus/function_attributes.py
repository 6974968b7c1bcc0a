"""String attributes of the functions that LLVM IR text defines."""

from __future__ import annotations

import re
from collections.abc import Mapping

_DEFINE = re.compile(
    r'^(define (?:[^@\n"]|"[^"\n]*")*@(?:"[^"\n]*"|[\w.$-]+)\(.*\)(?: (?:local_)?unnamed_addr)?)(?= |$)', re.MULTILINE
)


def with_attributes(ir: str, attributes: Mapping[str, str]) -> str:
    """The IR with these attributes on its functions; they replace attributes of the same name."""
    if not attributes:
        return ir
    for name in attributes:
        ir = re.sub(rf'"{re.escape(name)}"="[^"]*" ?', "", ir)
    added = " ".join(f'"{name}"="{value}"' for name, value in attributes.items())
    return _DEFINE.sub(rf"\1 {added}", ir)


def with_features(ir: str, features: str) -> str:
    """The IR with further target features on its functions."""
    if not features:
        return ir
    present = re.findall(r'"target-features"="([^"]*)"', ir)
    return with_attributes(ir, {"target-features": ",".join(dict.fromkeys([*present, features]))})
