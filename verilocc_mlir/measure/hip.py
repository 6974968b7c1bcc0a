"""HIP's runtime, as much of it as a measurement needs: loaded at run time, called through ctypes.

Signatures, error codes and attribute numbers are those of ``hip/hip_runtime_api.h``, in which they stand alike since
ROCm 5. The structure of device properties, whose layout changed with ROCm 6, is not used.

Called so far against AMD's own library without a GPU, and against a stand-in of the tests; never on a GPU.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.measure.device import NoDeviceError

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
