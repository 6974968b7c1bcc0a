"""Code objects in clang's offload bundles, compressed (zlib, zstd) or not, and in HIP's fat binaries, which hold these.

A bundle begins with its magic and the number of its entries; of each it has offset, size and the length of its name,
64 bits each, and the name, ``hipv4-amdgcn-amd-amdhsa--gfx942`` (clang/docs/ClangOffloadBundler.rst). A compressed one
begins with ``CCOB``. In a host's ELF file bundles stand in the section ``.hip_fatbin``, one behind the other.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from verilocc_mlir.errors import InputError

_MAGIC, _COMPRESSED, _ELF = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"\x7fELF"
_SECTION = ".hip_fatbin"
_AMDGPU = 224
_HEADERS = {1: struct.Struct("<4sHHIQ"), 2: struct.Struct("<4sHHIIQ"), 3: struct.Struct("<4sHHQQQ")}
"""Of a compressed bundle, by version: magic, version, method, from version 2 on the size of all, then the size
unpacked, and a hash (clang/lib/Driver/OffloadBundler.cpp)."""
_ZLIB, _ZSTD = 0, 1


def is_bundle(data: bytes) -> bool:
    """Whether it is a bundle, or a host's ELF file with bundles in it."""
    return data.startswith((_MAGIC, _COMPRESSED)) or _fat_section(data) is not None


def unbundled(data: bytes, path: str) -> tuple[bytes, ...]:
    """The code objects for AMD GPUs in a bundle or a fat binary; the data itself where it is neither.

    Raises:
        InputError: it is cut off, is compressed in a way that is not known here, or has none for an AMD GPU.
    """
    section = _fat_section(data)
    if section is None and not data.startswith((_MAGIC, _COMPRESSED)):
        return (data,)
    try:
        objects = tuple(_objects(data if section is None else section, path))
    except (struct.error, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"the bundle is damaged: {error}", where=path) from error
    if not objects:
        raise InputError("the bundle has no code object for an AMD GPU", where=path)
    return objects


def _objects(data: bytes, path: str) -> Iterator[bytes]:
    at = 0
    while (found := _next(data, at)) is not None:
        at = found
        if data.startswith(_COMPRESSED, at):
            bundle, size = _unpacked(data[at:], path)
            yield from _entries(bundle, path)
            at += size
        else:
            yield from _entries(data[at:], path)
            at += len(_MAGIC)


def _next(data: bytes, start: int) -> int | None:
    places = [place for magic in (_MAGIC, _COMPRESSED) if (place := data.find(magic, start)) >= 0]
    return min(places, default=None)


def _entries(bundle: bytes, path: str) -> Iterator[bytes]:
    (count,) = struct.unpack_from("<Q", bundle, len(_MAGIC))
    at = len(_MAGIC) + 8
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, at)
        name = bundle[at + 24 : at + 24 + length].decode()
        at += 24 + length
        if "amdgcn" not in name or not size:
            continue
        code = bundle[offset : offset + size]
        if len(code) < size:
            raise InputError(f"the bundle is cut off in {name}", where=path)
        if code.startswith(_ELF):
            yield code


def _unpacked(data: bytes, path: str) -> tuple[bytes, int]:
    """A compressed bundle, unpacked, and the bytes that it took."""
    _, version = struct.unpack_from("<4sH", data)
    header = _HEADERS.get(version)
    if header is None:
        raise InputError(f"this compressed bundle has version {version}, which is not known here", where=path)
    fields = header.unpack_from(data)
    method, size, unpacked = fields[2], fields[3] if version > 1 else len(data), fields[-2]
    if method == _ZLIB:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(data[header.size : size])
    elif method == _ZSTD:
        import zstandard  # here: what is costed is seldom a bundle

        unpacker = zstandard.ZstdDecompressor().decompressobj()
        try:
            text = unpacker.decompress(data[header.size : size])
        except zstandard.ZstdError as error:
            raise InputError(f"the bundle is damaged: {error}", where=path) from error
    else:
        raise InputError(f"this bundle is compressed by method {method}, which is not known here", where=path)
    if len(text) != unpacked:
        raise InputError(f"the bundle is damaged: {len(text)} of {unpacked} bytes came of it", where=path)
    return text, min(size, len(data)) - len(unpacker.unused_data)


def _fat_section(data: bytes) -> bytes | None:
    """The section of a host's ELF file; None where it is no ELF file, or has no such section."""
    if not data.startswith(_ELF) or data[18:20] == _AMDGPU.to_bytes(2, "little") or _SECTION.encode() not in data:
        return None
    try:
        section = ELFFile(io.BytesIO(data)).get_section_by_name(_SECTION)
    except (ELFError, ValueError):
        return None
    return None if section is None else section.data()
