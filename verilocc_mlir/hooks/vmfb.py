"""Which code objects are in an IREE module file (.vmfb), byte for byte.

The file holds each one whole and uncompressed, so that it can be found by its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

_ELF = b"\x7fELF"
_EM_AMDGPU = (224).to_bytes(2, "little")
_MACHINE_OFFSET = 18
"""``e_machine`` in the ELF header."""


def accounted(vmfb: bytes, wanted: Mapping[str, bytes]) -> list[str]:
    """What is wrong with the code objects of ``vmfb``: one message each, none if it has those wanted and no others."""
    faults = [f"the code object of {name} is not in the file" for name, data in wanted.items() if data not in vmfb]
    at = vmfb.find(_ELF)
    while at >= 0:
        machine = vmfb[at + _MACHINE_OFFSET : at + _MACHINE_OFFSET + 2]
        if machine == _EM_AMDGPU and not any(vmfb.startswith(data, at) for data in wanted.values()):
            faults.append(f"the code object at byte {at} is none of those that belong there")
        at = vmfb.find(_ELF, at + 1)
    return faults
