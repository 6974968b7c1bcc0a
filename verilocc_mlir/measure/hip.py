"""HIP's runtime, as much of it as a measurement needs, loaded at run time and called through ctypes; and a device that
is driven through it.

Signatures, error codes and attribute numbers are those of ``hip/hip_runtime_api.h``, in which they stand alike since
ROCm 5. The structure of device properties, whose layout changed with ROCm 6, is not used.

Called so far against AMD's own library without a GPU, and against a stand-in of the tests; never on a GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass, field
from pathlib import Path

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.measure.arguments import Bound, Filling, arguments_of, bind, interface_of, kernarg, words_of
from verilocc_mlir.measure.device import NoDeviceError, Subject, Work, clocks_of, file_subject
from verilocc_mlir.results.measure import Clocks, DeviceAbout, MeasuredKernel
from verilocc_mlir.toolchain.descriptor import CodeObject, KernelMetadata, read_code_object

VARIABLE = "VERILOCC_HIP"
"""Environment variable: the library, where the loader does not find it."""
_NAMES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
_PLACES = ("", "/opt/rocm/lib/")
_HINT = f"install ROCm's HIP runtime, or name its libamdhip64.so with ${VARIABLE}"
_NO_DEVICE = 100  # hipErrorNoDevice
_NO_BINARY = 209  # hipErrorNoBinaryForGpu
_NOT_READY = 600  # hipErrorNotReady
_FAULTS = (700, 702, 710, 719, 999)
"""Illegal address, launch timed out, assertion, launch failure, unknown: every later call fails likewise."""
_POLL_SECONDS = 0.0002
_NAME_BYTES = 256
DEFAULT_SECONDS = 60.0

# HIP_LAUNCH_PARAM_*: the arguments as one block of memory.
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3

_SIGNATURES = {
    "hipGetDeviceCount": (POINTER(c_int),),
    "hipSetDevice": (c_int,),
    "hipDeviceGetName": (c_char_p, c_int, c_int),
    "hipDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "hipRuntimeGetVersion": (POINTER(c_int),),
    "hipMalloc": (POINTER(c_void_p), c_size_t),
    "hipFree": (c_void_p,),
    "hipMemcpyHtoD": (c_void_p, c_char_p, c_size_t),
    "hipMemcpyDtoH": (c_void_p, c_void_p, c_size_t),
    "hipMemcpyDtoDAsync": (c_void_p, c_void_p, c_size_t, c_void_p),
    "hipMemsetAsync": (c_void_p, c_int, c_size_t, c_void_p),
    "hipModuleLoadData": (POINTER(c_void_p), c_char_p),
    "hipModuleUnload": (c_void_p,),
    "hipModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "hipModuleLaunchKernel": (
        c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_void_p, c_void_p, POINTER(c_void_p),
    ),
    "hipEventCreate": (POINTER(c_void_p),),
    "hipEventDestroy": (c_void_p,),
    "hipEventRecord": (c_void_p, c_void_p),
    "hipEventQuery": (c_void_p,),
    "hipEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
}  # fmt: skip

Dimensions = tuple[int, int, int]


class HipError(ToolchainError):
    """HIP refused a call; ``code`` is its ``hipError_t``."""

    def __init__(self, call: str, code: int, name: str) -> None:
        self.code = code
        super().__init__(f"{call} failed: {name} ({code})", hint=_advice(code))


def _advice(code: int) -> str:
    if code == _NO_BINARY:
        return "the code object is for another GPU than this one"
    return "after that, HIP answers nothing more in this process" if code in _FAULTS else ""


class Hip:
    """The library, with one device chosen.

    Args:
        number: of the device.
        library: its path; None searches.
        seconds: for one run of a kernel; then it is given up, and with it the device.

    Raises:
        NoDeviceError: there is no library, or no such GPU.
    """

    def __init__(self, number: int = 0, library: Path | None = None, *, seconds: float = DEFAULT_SECONDS) -> None:
        self._given_up = False
        self._library = _load(library or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None))
        for name, types in _SIGNATURES.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise NoDeviceError(f"HIP's library has no {name}: it is too old", hint=_HINT)
            function.argtypes, function.restype = types, c_int
        self._library.hipGetErrorString.argtypes, self._library.hipGetErrorString.restype = (c_int,), c_char_p
        self.number = number
        self._seconds = seconds
        count = c_int()
        try:
            self._call("hipGetDeviceCount", byref(count))
        except HipError as error:
            raise NoDeviceError(f"HIP finds no GPU: {error.what}", hint=_permissions()) from error
        if not 0 <= number < count.value:
            raise NoDeviceError(f"there is no GPU {number}: HIP finds {count.value}", hint="count from 0")
        self._call("hipSetDevice", number)

    def name(self) -> str:
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("hipDeviceGetName", text, _NAME_BYTES, self.number)
        return text.value.decode("utf-8", "replace")

    def bus(self) -> str:
        """Its place on the PCI bus, ``0000:03:00.0``."""
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("hipDeviceGetPCIBusId", text, _NAME_BYTES, self.number)
        return text.value.decode("ascii", "replace").lower()

    def version(self) -> str:
        number = c_int()
        self._call("hipRuntimeGetVersion", byref(number))
        return str(number.value)

    def allocate(self, size: int) -> int:
        """The address of ``size`` bytes of device memory; at least one byte is allocated."""
        address = c_void_p()
        self._call("hipMalloc", byref(address), max(size, 1))
        return address.value or 0

    def free(self, address: int) -> None:
        self._release("hipFree", address)

    def write(self, address: int, data: bytes) -> None:
        if data:
            self._call("hipMemcpyHtoD", address, data, len(data))

    def read(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(max(size, 1))
        if size:
            self._call("hipMemcpyDtoH", ctypes.addressof(data), address, size)
        return data.raw[:size]

    def copy(self, to: int, source: int, size: int) -> None:
        """On the device, after what was launched before."""
        if size:
            self._call("hipMemcpyDtoDAsync", to, source, size, None)

    def clear(self, address: int, size: int) -> None:
        self._call("hipMemsetAsync", address, 0, size, None)

    @contextmanager
    def function(self, code_object: bytes, name: str) -> Generator[int]:
        """A kernel of a code object, loaded while the block lasts."""
        module, function = c_void_p(), c_void_p()
        self._call("hipModuleLoadData", byref(module), code_object)
        try:
            self._call("hipModuleGetFunction", byref(function), module, name.encode())
            yield function.value or 0
        finally:
            self._release("hipModuleUnload", module)

    def launch(self, function: int, grid: Dimensions, block: Dimensions, lds: int, kernarg: bytes) -> None:
        """Launch it on the default stream.

        Args:
            grid: work-groups; block: work-items of one.
            lds: bytes of dynamic LDS.
            kernarg: its arguments as they lie in memory.
        """
        block_of_memory = ctypes.create_string_buffer(kernarg, max(len(kernarg), 1))
        size = c_size_t(len(kernarg))
        extra = (c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(block_of_memory), _BUFFER_SIZE, ctypes.addressof(size), _END
        )
        self._call("hipModuleLaunchKernel", function, *grid, *block, lds, None, None, extra)

    @contextmanager
    def events(self) -> Generator[tuple[int, int]]:
        """Two events while the block lasts."""
        start, stop = c_void_p(), c_void_p()
        self._call("hipEventCreate", byref(start))
        self._call("hipEventCreate", byref(stop))
        try:
            yield start.value or 0, stop.value or 0
        finally:
            for event in (start, stop):
                self._release("hipEventDestroy", event)

    def record(self, event: int) -> None:
        self._call("hipEventRecord", event, None)

    def elapsed(self, start: int, stop: int) -> float:
        """Milliseconds between two events, when the second has happened."""
        milliseconds = c_float()
        self.wait(stop)
        self._call("hipEventElapsedTime", byref(milliseconds), start, stop)
        return milliseconds.value

    def wait(self, event: int) -> None:
        """Wait until an event has happened: asked again and again, since HIP's own wait has no end where a kernel has
        none.

        Raises:
            ToolchainError: it did not in time.
        """
        end = time.monotonic() + self._seconds
        while (code := int(self._library.hipEventQuery(event))) == _NOT_READY:
            if time.monotonic() > end:
                self._given_up = True
                raise ToolchainError(
                    f"the kernel did not finish within {self._seconds:g} s",
                    hint="look at --grid, --block and --arg: a kernel that is given the wrong sizes may never end",
                )
            time.sleep(_POLL_SECONDS)
        self._check("hipEventQuery", code)

    def _call(self, name: str, *arguments: object) -> None:
        self._check(name, int(getattr(self._library, name)(*arguments)))

    def _release(self, name: str, handle: object) -> None:
        """Give something back, unless the device is given up: that would wait for a kernel that still runs, or fail."""
        if not self._given_up:
            self._call(name, handle)

    def _check(self, name: str, code: int) -> None:
        if code:
            self._given_up |= code in _FAULTS
            text: bytes | None = self._library.hipGetErrorString(code)
            raise HipError(name, code, text.decode("utf-8", "replace") if text else "unknown")


def _load(named: Path | None) -> ctypes.CDLL:
    candidates = [str(named)] if named else [place + name for place in _PLACES for name in _NAMES]
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            if named:
                raise NoDeviceError(f"HIP's runtime cannot be loaded: {error}", hint=_HINT) from error
    raise NoDeviceError("no GPU can be used here: HIP's runtime, libamdhip64.so, was not found", hint=_HINT)


def _permissions() -> str:
    if not Path("/dev/kfd").exists():
        return "the kernel's driver is not loaded: there is no /dev/kfd"
    if not os.access("/dev/kfd", os.R_OK | os.W_OK):
        return "this user may not use /dev/kfd: join the groups render and video"
    return "rocminfo shows what the driver sees"


# A code object by itself, through HIP: arguments from its metadata, buffers filled, results taken back.
#
# Before each run the buffers get their contents again and the caches are overwritten, both on the device and outside of
# what is timed, as Triton's ``do_bench`` does.


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
