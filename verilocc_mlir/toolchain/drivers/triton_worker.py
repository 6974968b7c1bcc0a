"""The process in which the LLVM of Triton's wheel works: an error of LLVM ends it, and its options are global.

A question has ``do``. ``ir`` and ``mir`` compile the data that comes with it, ``link`` links it, and ``say`` gives LLVM
``options`` that end the process. After a question with ``fresh`` the process takes no other one. The answer has
``cpu_s`` and ``rss_kib``, the cost of the work; the first answer of a process includes the cost of starting it. The
caller reads LLVM's standard error.

    python triton_worker.py LIBRARY QUESTION < INPUT > OUTPUT    # does the work of one question, which is JSON
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verilocc_mlir.crew.descendants import serve_jobs
from verilocc_mlir.crew.serve import Answer

_MOST_KIB = 2 << 20
"""Resident memory; a process that has had more is not kept."""


class WheelLlvm:
    """LLVM as Triton's ``library`` offers it to Python, and by two of its exported functions to ctypes."""

    def __init__(self, library: str) -> None:
        spec = importlib.util.spec_from_file_location("libtriton", library)
        if spec is None or spec.loader is None:
            raise ImportError(f"{library} is no extension module")
        self._module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._module)
        self._module.llvm.init_targets()
        self._library = ctypes.CDLL(library)
        self._file = os.memfd_create("machine-ir")
        self.path = f"/proc/self/fd/{self._file}"

    def do(self, question: Mapping[str, Any], data: bytes) -> bytes:
        """The result of the question's work."""
        self._set_options(question.get("options", ()))
        if question["do"] == "link":
            return self._link(data)
        source = data.decode() if question["do"] == "ir" else self._in_a_file(data)
        flags: list[str] = []
        machine = question["triple"], question["cpu"], question["features"]
        common = (*machine, flags, question["fusion"], question["object"])
        llvm = self._module.llvm
        # The last argument: addresses are not canonicalised; Triton's option that turns scheduling off is not used.
        result: str | bytes = (
            llvm.translate_to_asm(source, *common, False)
            if question["do"] == "ir"
            else llvm.translate_mir_to_asm(source, *common, True)
        )
        return result if isinstance(result, bytes) else result.replace(self.path, "<stdin>").encode()

    def _set_options(self, options: Any) -> None:
        self._library._ZN4llvm2cl25ResetAllOptionOccurrencesEv()
        words = [b"llvm", *(option.encode() for option in options)]
        array = (ctypes.c_char_p * len(words))(*words)
        self._library.LLVMParseCommandLineOptions(len(words), array, b"")

    def _in_a_file(self, data: bytes) -> str:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, 0)
        return self.path

    def _link(self, data: bytes) -> bytes:
        with tempfile.TemporaryDirectory(prefix="verilocc-") as directory:
            given, wanted = Path(directory, "k.o"), Path(directory, "k.hsaco")
            given.write_bytes(data)
            self._module.amd.link_hsaco(str(given), str(wanted))
            return wanted.read_bytes()


def _most_resident_kib() -> int:
    """The most memory that this process has had. Of ``getrusage`` a new program inherits its parent's figure."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


def work(library: str) -> None:
    """Answer questions until the pipe ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def load() -> Answer:
        llvm = WheelLlvm(library)
        used = 0.0

        def answer(question: dict[str, Any], data: bytes) -> tuple[Mapping[str, object], bytes]:
            nonlocal used
            before = used
            try:
                failure, result = "", llvm.do(question, data)
            except Exception as error:
                failure, result = f"{type(error).__name__}: {error}", b""
            usage = resource.getrusage(resource.RUSAGE_SELF)
            used = usage.ru_utime + usage.ru_stime
            most = _most_resident_kib()
            last = question.get("fresh", False) or most > _MOST_KIB
            header = {"cpu_s": used - before, "rss_kib": most, "failure": failure, "last": last}
            return header, result

        return answer

    serve_jobs(load)


if __name__ == "__main__":
    sys.stdout.buffer.write(WheelLlvm(sys.argv[1]).do(json.loads(sys.argv[2]), sys.stdin.buffer.read()))
