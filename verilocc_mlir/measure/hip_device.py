"""A code object by itself, through HIP: arguments from its metadata, buffers filled, results taken back.

Before each run the buffers get their contents again and the caches are overwritten, both on the device and outside of
what is timed, as Triton's ``do_bench`` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.measure.arguments import Bound, Filling, arguments_of, bind, interface_of, kernarg, words_of
from verilocc_mlir.measure.device import Subject, Work, clocks_of, file_subject
from verilocc_mlir.measure.hip import Dimensions, Hip
from verilocc_mlir.results.measure import Clocks, DeviceAbout, MeasuredKernel
from verilocc_mlir.toolchain.metadata import CodeObject, KernelMetadata, read_code_object

CAVEAT = "the way through HIP was never run on a GPU: check the first figures against another tool"
_CACHE_BYTES = 256 << 20
"""What is written between runs, as in Triton's ``do_bench``: as much as the last cache of any of these GPUs holds."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched, as the command line says it.

    Attributes:
        kernel: its name; ``""`` where the file has one only.
        grid: work-groups.
        block: work-items of one; None: what the kernel requires.
        lds: bytes of dynamic LDS.
        arguments: ``WHICH=WHAT`` for each (``measure.arguments``).
    """

    grid: Dimensions
    kernel: str = ""
    block: Dimensions | None = None
    lds: int = 0
    arguments: tuple[str, ...] = ()


class HipDevice:
    """See the module.

    Raises:
        NoDeviceError: there is no GPU, or no HIP.
    """

    caveat = CAVEAT

    def __init__(self, launch: Launch, number: int = 0, open_hip: Callable[[int], Hip] = Hip) -> None:
        self._launch = launch
        self._hip = open_hip(number)
        self._bus = self._hip.bus()
        self._architecture = ""
        self.about = DeviceAbout("hip", self._hip.name(), "", f"HIP {self._hip.version()}")

    def subject(self, text: str) -> Subject:
        return file_subject(text)

    def kernel(self, subject: Subject) -> MeasuredKernel:
        code = _code_object(subject)
        metadata = _metadata(code, subject, self._launch.kernel)
        # Only code for this GPU is loaded, so what it is for says what the GPU is.
        self.about = DeviceAbout("hip", self.about.name, code.machine, self.about.software)
        return MeasuredKernel(metadata.name, interface_of(metadata))

    def work(self, subject: Subject) -> Work:
        metadata, bound, block = self._bound(subject)
        shape = f"{'x'.join(map(str, self._launch.grid))} work-groups of {'x'.join(map(str, block))}"
        if self._launch.lds:
            shape += f", {self._launch.lds} bytes of dynamic LDS"
        hashed = hashlib.sha256(shape.encode())
        for one in bound:
            data = one.given.data if isinstance(one.given, Filling) else one.given
            hashed.update(len(data).to_bytes(8, "little") + data)
        return Work(f"{metadata.name}: {shape}; {words_of(bound)}", hashed.hexdigest())

    def load(self, subject: Subject) -> HipLoaded:
        metadata, bound, block = self._bound(subject)
        return HipLoaded(self._hip, subject.data, metadata.name, bound, self._launch.grid, block, self._launch.lds)

    def clocks(self) -> Clocks:
        return clocks_of(self._bus)

    def close(self) -> None:
        """Nothing is held between codes."""

    def _bound(self, subject: Subject) -> tuple[KernelMetadata, tuple[Bound, ...], Dimensions]:
        metadata = _metadata(_code_object(subject), subject, self._launch.kernel)
        bound = bind(arguments_of(metadata), self._launch.arguments, metadata.name)
        return metadata, bound, _block(metadata, self._launch.block, subject.name)


@dataclass
class HipLoaded:
    """A kernel that is loaded, with its buffers: what they are filled with, and what it works on.

    Raises:
        HipError: the device rejects it, or has too little memory.
    """

    hip: Hip
    code_object: bytes
    name: str
    bound: Sequence[Bound]
    grid: Dimensions
    block: Dimensions
    lds: int
    _stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        with ExitStack() as stack:
            self._function = stack.enter_context(self.hip.function(self.code_object, self.name))
            self._events = stack.enter_context(self.hip.events())
            self._buffers: dict[int, tuple[int, int, int]] = {}
            for one in self.bound:
                if isinstance(one.given, Filling):
                    data = one.given.data
                    filled, used = (self._allocated(stack, len(data)) for _ in range(2))
                    self.hip.write(filled, data)
                    self._buffers[one.argument.number] = (used, filled, len(data))
            self._cache = self._allocated(stack, _CACHE_BYTES)
            self._kernarg = kernarg(self.bound, {number: used for number, (used, _, _) in self._buffers.items()})
            self._stack = stack.pop_all()

    def results(self) -> tuple[bytes, ...]:
        self._fill()
        self._launch()
        self.hip.record(self._events[1])
        self.hip.wait(self._events[1])
        return tuple(self.hip.read(used, size) for used, _, size in self._buffers.values())

    def times(self, count: int) -> list[float]:
        return [self._time() for _ in range(count)]

    def close(self) -> None:
        self._stack.close()

    def _time(self) -> float:
        start, stop = self._events
        self._fill()
        self.hip.clear(self._cache, _CACHE_BYTES)
        self.hip.record(start)
        self._launch()
        self.hip.record(stop)
        return self.hip.elapsed(start, stop)

    def _fill(self) -> None:
        for used, filled, size in self._buffers.values():
            self.hip.copy(used, filled, size)

    def _launch(self) -> None:
        self.hip.launch(self._function, self.grid, self.block, self.lds, self._kernarg)

    def _allocated(self, stack: ExitStack, size: int) -> int:
        address = self.hip.allocate(size)
        stack.callback(self.hip.free, address)
        return address


def _code_object(subject: Subject) -> CodeObject:
    try:
        return read_code_object(subject.data)
    except ToolchainError as error:
        raise InputError(
            f"this is no code object: {error.what}", where=subject.name, hint="modules of IREE: --device=iree:hip"
        ) from error


def _metadata(code: CodeObject, subject: Subject, name: str) -> KernelMetadata:
    if name and name in code.kernels:
        return code.kernels[name]
    if len(code.kernels) == 1 and not name:
        return next(iter(code.kernels.values()))
    there = ", ".join(code.kernels) or "none"
    what = f"it has no kernel {name}" if name else f"it has {len(code.kernels)} kernels"
    raise InputError(what, where=subject.name, hint=f"--kernel names one of: {there}")


def _block(metadata: KernelMetadata, given: Dimensions | None, where: str) -> Dimensions:
    """Work-items of a work-group: what is given, where the kernel allows it, else what it requires."""
    required = metadata.raw.get(".reqd_workgroup_size")
    if required is not None:
        wanted = (int(required[0]), int(required[1]), int(required[2]))
        if given is not None and given != wanted:
            raise InputError(f"the kernel requires work-groups of {'x'.join(map(str, wanted))}", where=where)
        return wanted
    if given is None:
        raise InputError(
            "the kernel requires no size of a work-group", where=where,
            hint=f"--block=X,Y,Z; at most {metadata.max_flat_workgroup_size} work-items",
        )  # fmt: skip
    if given[0] * given[1] * given[2] > metadata.max_flat_workgroup_size:
        most = metadata.max_flat_workgroup_size
        raise InputError(f"a work-group of it has at most {most} work-items", where=where)
    return given
