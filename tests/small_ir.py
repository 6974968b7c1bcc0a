"""Small modules of LLVM IR by kind, as LLVM's newer tests have them: one form of each kind, with several types.

``modules()`` gives them by kind and name; ``tests/pipeline/test_small_ir.py`` compiles a sample of each kind, in a long
run all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

_KERNEL = "define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q, i32 %n)"
_INTEGERS = ("i8", "i16", "i32", "i64")
_ADDED = "ptr addrspace(3) @l, i32 0, i32 %n"


def modules() -> Iterator[tuple[str, str, str]]:
    """Kind, name, and IR."""
    for kind, bodies in _KINDS.items():
        for number, body in enumerate(bodies):
            yield kind, f"{kind}-{number}", f'target triple = "amdgcn-amd-amdhsa"\n{body}\n'


def _kernel(body: str, *, before: str = "", attributes: str = "") -> str:
    return f"{before}\n{_KERNEL} {attributes} {{\n{body}\n  ret void\n}}"


def _atomics() -> Iterator[str]:
    for operation, space, order in product(("add", "and", "umax", "xchg"), (1, 3, 0), ("monotonic", "seq_cst")):
        pointer = {1: "ptr addrspace(1) %p", 3: "ptr addrspace(3) @l", 0: "ptr %f"}[space]
        cast = "  %f = addrspacecast ptr addrspace(1) %p to ptr\n"
        text = f'{cast}  %r = atomicrmw {operation} {pointer}, i32 %n syncscope("agent") {order}\n'
        yield _kernel(
            f"{text}  store i32 %r, ptr addrspace(1) %q", before="@l = internal addrspace(3) global i32 poison"
        )
    for ty in ("i32", "i64"):
        text = f"  %r = cmpxchg ptr addrspace(1) %p, {ty} 1, {ty} 2 acq_rel monotonic\n"
        text += f"  %v = extractvalue {{{ty}, i1}} %r, 0\n"
        yield _kernel(f"{text}  store {ty} %v, ptr addrspace(1) %q")
    for ty in ("float", "double"):
        yield _kernel(
            f"  %r = atomicrmw fadd ptr addrspace(1) %p, {ty} 1.0 monotonic\n  store {ty} %r, ptr addrspace(1) %q"
        )


def _tuples() -> Iterator[str]:
    for ty, count in product(("i16", "half", "i32", "float", "i64"), (2, 3, 4, 8)):
        vector = f"<{count} x {ty}>"
        text = f"  %v = load {vector}, ptr addrspace(1) %p\n  %e = extractelement {vector} %v, i32 %n\n"
        text += f"  %w = insertelement {vector} %v, {ty} %e, i32 1\n  store {vector} %w, ptr addrspace(1) %q"
        yield _kernel(text)


def _assembly() -> Iterator[str]:
    for operands, result in product(("v", "s", "a", "{v5}", "{s9}"), ("=v", "=&v", "={v7}")):
        if operands != "a":
            text = f'  %r = call i32 asm sideeffect "v_mov_b32 $0, $1", "{result},{operands}"(i32 %n)\n'
            yield _kernel(f"{text}  store i32 %r, ptr addrspace(1) %p")
    for clobber in ("v0", "v[8:11]", "s[4:7]", "vcc", "memory"):
        yield _kernel(
            f'  call void asm sideeffect "; nothing", "~{{{clobber}}}"()\n  store i32 %n, ptr addrspace(1) %p'
        )


def _lanes() -> Iterator[str]:
    calls = {
        "readfirstlane.i32": "i32 %v",
        "readlane.i32": "i32 %v, i32 3",
        "writelane.i32": "i32 %n, i32 3, i32 %v",
        "update.dpp.i32": "i32 0, i32 %v, i32 273, i32 15, i32 15, i1 true",
        "mov.dpp.i32": "i32 %v, i32 1, i32 15, i32 15, i1 false",
        "ds.swizzle": "i32 %v, i32 100",
        "ds.bpermute": "i32 %n, i32 %v",
        "ds.permute": "i32 %n, i32 %v",
        "mbcnt.lo": "i32 -1, i32 %v",
        "set.inactive.i32": "i32 %v, i32 0",
        "perm": "i32 %v, i32 %n, i32 5",
        "alignbyte": "i32 %v, i32 %n, i32 5",
        "sad.u8": "i32 %v, i32 %n, i32 5",
    }
    for name, arguments in calls.items():
        text = "  %t = call i32 @llvm.amdgcn.workitem.id.x()\n  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t\n"
        text += f"  %v = load i32, ptr addrspace(1) %a\n  %r = call i32 @llvm.amdgcn.{name}({arguments})\n"
        yield _kernel(f"{text}  store i32 %r, ptr addrspace(1) %a")


def _halves() -> Iterator[str]:
    """What SDWA and the 16-bit forms are made for."""
    for ty, operation in product(("i8", "i16"), ("add", "mul", "shl", "lshr", "ashr", "xor")):
        text = f"  %v = load {ty}, ptr addrspace(1) %p\n  %w = load {ty}, ptr addrspace(1) %q\n"
        text += f"  %r = {operation} {ty} %v, %w\n"
        yield _kernel(f"{text}  %x = zext {ty} %r to i32\n  store i32 %x, ptr addrspace(1) %q")


def _calls() -> Iterator[str]:
    for ty, kind in product(("i32", "i64", "<4 x float>", "[3 x i32]", "{i8, double}"), ("", "fastcc ")):
        before = f"define {kind}{ty} @f({ty} %x) noinline {{\n  ret {ty} %x\n}}"
        text = f"  %v = load {ty}, ptr addrspace(1) %p\n  %r = call {kind}{ty} @f({ty} %v)\n"
        yield _kernel(f"{text}  store {ty} %r, ptr addrspace(1) %q", before=before)
    before = "define void @f(ptr addrspace(5) sret(i64) %r, ptr addrspace(5) byval([8 x i32]) %a) noinline {\n"
    before += "  %v = load i64, ptr addrspace(5) %a\n  store i64 %v, ptr addrspace(5) %r\n  ret void\n}"
    text = (
        "  %r = alloca i64, addrspace(5)\n  %a = alloca [8 x i32], addrspace(5)\n  store i32 %n, ptr addrspace(5) %a\n"
    )
    text += "  call void @f(ptr addrspace(5) sret(i64) %r, ptr addrspace(5) byval([8 x i32]) %a)\n"
    yield _kernel(f"{text}  %v = load i64, ptr addrspace(5) %r\n  store i64 %v, ptr addrspace(1) %q", before=before)
    yield _kernel("  %f = load ptr, ptr addrspace(1) %p\n  call void %f(i32 %n)")
    for tail, convention in product(("tail", "musttail"), ("", "fastcc ")):
        yield (
            f"define {convention}i32 @g(i32 %x) noinline {{\n  %y = mul i32 %x, 3\n  ret i32 %y\n}}\n"
            f"define {convention}i32 @f(i32 %x) {{\n  %r = {tail} call {convention}i32 @g(i32 %x)\n  ret i32 %r\n}}"
        )


def _memory() -> Iterator[str]:
    for ty, space in product((*_INTEGERS, "half", "<3 x i32>", "<8 x i16>"), (0, 1, 3, 4, 5)):
        pointer = f"ptr{f' addrspace({space})' if space else ''}"
        text = f"  %v = load {ty}, {pointer} %p\n  store {ty} %v, ptr addrspace(1) %q\n  ret void\n}}"
        yield f"define void @f({pointer} %p, ptr addrspace(1) %q) {{\n{text}"
    for ty, call in product(("i32", "<2 x float>", "<4 x i32>"), ("raw", "struct")):
        index = "i32 0, " if call == "struct" else ""
        mangled = ty.replace("<", "v").replace(" x ", "").replace(">", "").replace("float", "f32")
        yield (
            f"define void @f(ptr addrspace(8) inreg %r, i32 %o, ptr addrspace(1) %q) {{\n"
            f"  %v = call {ty} @llvm.amdgcn.{call}.ptr.buffer.load.{mangled}("
            f"ptr addrspace(8) %r, {index}i32 %o, i32 0, i32 0)\n"
            f"  store {ty} %v, ptr addrspace(1) %q\n  ret void\n}}"
        )


def _frames() -> Iterator[str]:
    for size, align in product(("%n", "4"), (4, 16, 64)):
        text = (
            f"  %a = alloca i32, i32 {size}, align {align}, addrspace(5)\n  store volatile i32 %n, ptr addrspace(5) %a"
        )
        yield _kernel(text)
        yield f"define void @f(i32 %n) {{\n{text}\n  ret void\n}}"
    for call in ("trap", "debugtrap"):
        yield _kernel(
            "  %c = icmp eq i32 %n, 0\n  br i1 %c, label %t, label %u\nt:\n"
            f"  call void @llvm.{call}()\n  br label %u\nu:"
        )


def _attributes() -> Iterator[str]:
    lists = (
        "nounwind",
        'nounwind "frame-pointer"="all"',
        "optnone noinline",
        "minsize",
        "uwtable",
        "convergent",
        '"amdgpu-flat-work-group-size"="64,64"',
        '"amdgpu-waves-per-eu"="4,8"',
        '"amdgpu-num-vgpr"="32"',
        '"amdgpu-ieee"="false"',
        '"denormal-fp-math"="preserve-sign,preserve-sign"',
        '"uniform-work-group-size"="true"',
    )
    for attributes in lists:
        yield _kernel("  store i32 %n, ptr addrspace(1) %p", attributes=attributes)


def _shared() -> Iterator[str]:
    for ty in (*_INTEGERS, "float", "double", "<4 x i32>"):
        before = f"@l = internal addrspace(3) global [64 x {ty}] poison"
        text = f"  %a = getelementptr [64 x {ty}], {_ADDED}\n"
        text += f"  %v = load {ty}, ptr addrspace(1) %p\n  store {ty} %v, ptr addrspace(3) %a\n"
        text += '  fence syncscope("workgroup") release\n  call void @llvm.amdgcn.s.barrier()\n'
        text += f"  %w = load {ty}, ptr addrspace(3) @l\n"
        yield _kernel(f"{text}  store {ty} %w, ptr addrspace(1) %q", before=before)


def _arithmetic() -> Iterator[str]:
    for ty, operation in product(("i32", "i64"), ("mul", "sdiv", "udiv", "urem", "ashr")):
        text = f"  %v = load {ty}, ptr addrspace(1) %p\n  %w = load {ty}, ptr addrspace(1) %q\n"
        yield _kernel(f"{text}  %r = {operation} {ty} %v, %w\n  store {ty} %r, ptr addrspace(1) %q")
    calls = ("sqrt", "fabs", "floor", "canonicalize", "rint")
    for (ty, short), name in product((("half", "f16"), ("float", "f32"), ("double", "f64")), calls):
        text = f"  %v = load {ty}, ptr addrspace(1) %p\n  %r = call {ty} @llvm.{name}.{short}({ty} %v)\n"
        yield _kernel(f"{text}  store {ty} %r, ptr addrspace(1) %q")
    for ty in ("half", "float", "double"):
        text = f"  %v = load {ty}, ptr addrspace(1) %p\n  %r = fdiv {ty} 1.0, %v\n"
        yield _kernel(f"{text}  store {ty} %r, ptr addrspace(1) %q")


def _generic() -> Iterator[str]:
    """Addresses of private memory and of LDS that become generic ones: apertures are copied (src_private_base)."""
    private = "  %a = alloca [4 x i32], addrspace(5)\n  %f = addrspacecast ptr addrspace(5) %a to ptr\n"
    shared = "  %a = getelementptr [4 x i32], ptr addrspace(3) @l, i32 0, i32 %n\n"
    shared += "  %f = addrspacecast ptr addrspace(3) %a to ptr\n"
    lds = "@l = internal addrspace(3) global [4 x i32] poison"
    callee = "define internal void @f(ptr %p, i32 %n) noinline {\n  store volatile i32 %n, ptr %p\n  ret void\n}"
    for space, text, before in ((5, private, ""), (3, shared, lds)):
        read = f"  %x = load i32, ptr addrspace({space}) %a\n  store i32 %x, ptr addrspace(1) %q"
        yield _kernel(f"{text}  store volatile i32 %n, ptr %f\n{read}", before=before)
        yield _kernel(f"{text}  call void @f(ptr %f, i32 %n)\n{read}", before=f"{before}\n{callee}")
        chosen = "  %g = addrspacecast ptr addrspace(1) %p to ptr\n  %c = icmp ult i32 %n, 7\n"
        chosen += "  %s = select i1 %c, ptr %f, ptr %g\n  store volatile i32 %n, ptr %s\n"
        yield _kernel(f"{text}{chosen}{read}", before=before)
        loaded = f"  %a = load ptr addrspace({space}), ptr addrspace(1) %p\n"
        loaded += f"  %f = addrspacecast ptr addrspace({space}) %a to ptr\n  store ptr %f, ptr addrspace(1) %q"
        yield _kernel(loaded)
        back = f"  %f = load ptr, ptr addrspace(1) %p\n  %a = addrspacecast ptr %f to ptr addrspace({space})\n"
        yield _kernel(f"{back}  store i32 %n, ptr addrspace({space}) %a")
        name = {5: "private", 3: "shared"}[space]
        asked = f"  %f = load ptr, ptr addrspace(1) %p\n  %c = call i1 @llvm.amdgcn.is.{name}(ptr %f)\n"
        yield _kernel(f"{asked}  %z = zext i1 %c to i32\n  store i32 %z, ptr addrspace(1) %q")


_KINDS = {
    "arithmetic": [*_arithmetic()],
    "atomics": [*_atomics()],
    "tuples": [*_tuples()],
    "inline assembly": [*_assembly()],
    "lanes": [*_lanes()],
    "8 and 16 bits": [*_halves()],
    "calls": [*_calls()],
    "memory": [*_memory()],
    "frames and traps": [*_frames()],
    "attributes": [*_attributes()],
    "LDS": [*_shared()],
    "generic addresses": [*_generic()],
}
