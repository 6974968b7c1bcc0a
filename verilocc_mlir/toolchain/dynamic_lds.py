"""Trap: MIR does not say that a kernel uses dynamic LDS, so the hidden argument with its size is lost.

Instruction selection notes the use of an LDS array without a size (SITargetLowering::LowerGlobalAddress: setDynLDSAlign
and setUsesDynamicLDS, always together). MIR keeps the alignment but not the note. Without the note the metadata has no
``hidden_dynamic_lds_size`` (AMDGPUHSAMetadataStreamer), so the runtime leaves that argument unset.

When LLVM reads MIR again, it notes the use for a kernel ``k`` if the module has a variable ``llvm.amdgcn.k.dynlds``
(AMDGPUMachineFunction's constructor). LLVM's own lowering makes that variable for LDS that is reached by calls. Nothing
is emitted for a declaration in LDS, and later passes look at no such name. So a text to be finished gets the
declaration, and LLVM writes object and assembly as if it had never stopped. ``checked.py`` compares the metadata with a
direct compile's: a declaration too many or too few is refused there.
"""

from __future__ import annotations

import re

from verilocc_mlir.toolchain.mir_text import function_headers

_ALIGN = re.compile(r"^  dynLDSAlign: +(\d+)", re.MULTILINE)
_MODULE = re.compile(r"\A(?:;[^\n]*\n)*--- \|\n(?P<ir>.*?)^\.\.\.$", re.MULTILINE | re.DOTALL)
_UNSIZED = re.compile(
    r'^  (?P<name>@(?:"[^"]+"|[\w$.-]+)) = external (?:\w+ )*addrspace\(3\) (?:\w+ )*global (?:\[0 x |\{\})',
    re.MULTILINE,
)
_BODY = re.compile(
    r'^  define [^\n]*?@(?P<name>"[^"]+"|[\w$.-]+)\([^\n]*\{\n(?P<body>.*?)^  \}$', re.MULTILINE | re.DOTALL
)


def declare_dynamic_lds(mir: str) -> str:
    """The text, with the declaration that makes LLVM note dynamic LDS for each kernel that uses it."""
    module = _MODULE.match(mir)
    if module is None:
        return mir
    names = [f'@"llvm.amdgcn.{name}.dynlds"' for name in sorted(dynamic_lds_users(mir))]
    missing = [name for name in names if name not in module["ir"] and name.replace('"', "") not in module["ir"]]
    declared = "".join(f"  {name} = external addrspace(3) global [0 x i8]\n" for name in missing)
    end = module.end("ir")
    return mir[:end] + declared + mir[end:]


def dynamic_lds_users(mir: str) -> set[str]:
    """Functions whose code takes the address of dynamic LDS.

    An alignment above 1 says so. An array of bytes has alignment 1, which is also the default. For such functions the
    IR says whether they name an array without a size.
    """
    aligned = {name for name, header in function_headers(mir) if int(m[1] if (m := _ALIGN.search(header)) else 1) > 1}
    module = _MODULE.match(mir)
    arrays = [re.escape(name) for name in _UNSIZED.findall(module["ir"])] if module is not None else []
    if module is None or not arrays:
        return aligned
    mention = re.compile(rf"(?:{'|'.join(arrays)})(?![\w$.-])")
    return aligned | {
        body["name"].strip('"') for body in _BODY.finditer(module["ir"]) if mention.search(_code(body["body"]))
    }


def _code(body: str) -> str:
    """Instructions alone: a debug record may name what no instruction uses."""
    return "\n".join(line for line in body.split("\n") if not line.lstrip().startswith("#dbg_"))
