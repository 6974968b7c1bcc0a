"""The IR module of a text: what it says of a function, and what may change in it."""

from __future__ import annotations

import pytest
from checker_support import stored_texts

from smt_verifier.audit.core.wellformed import module_difference
from smt_verifier.checker.module import attributes, compare_modules
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.text import read
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.attributes import function_attributes

IR = """; ModuleID = 'k'
source_filename = "k;k"
@g = global i32 0

define internal fastcc noundef i32 @f(ptr noalias %p, i32 range(i32 0, 4) %n) unnamed_addr #0 {
  %r = call i32 @llvm.amdgcn.workitem.id.x() #2
  ret i32 %r
}

define amdgpu_kernel void @"k a"() local_unnamed_addr #1 section "text" align 256 !dbg !3 {
  ret void
}

define cc91 void @n() "amdgpu-waves-per-eu"="1" noinline { ret void }

declare i32 @llvm.amdgcn.workitem.id.x() #2

attributes #0 = { nounwind memory(argmem: read, inaccessiblemem: none) "target-features"="+a,-b" }
attributes #1 = { "amdgpu-flat-work-group-size"="1,64" "uniform-work-group-size" "target-cpu"="gfx942" }
attributes #2 = { nocallback "target-features"="+a,-b" }
"""


def test_what_a_module_says_of_functions() -> None:
    f, k, n = (attributes(IR, name) for name in ("f", "k a", "n"))
    assert (f.calling_convention, f.is_local, f.strings) == ("fastcc", True, {"target-features": "+a,-b"})
    assert f.words == {"nounwind", "memory(argmem: read, inaccessiblemem: none)"}
    assert (k.calling_convention, k.is_local) == ("amdgpu_kernel", False)
    assert k.strings == {
        "amdgpu-flat-work-group-size": "1,64", "uniform-work-group-size": "", "target-cpu": "gfx942"
    }  # fmt: skip
    assert (n.calling_convention, n.strings, n.words) == (("amdgpu_kernel", {"amdgpu-waves-per-eu": "1"}, {"noinline"}))
    assert attributes(IR.replace("cc91", "cc 123"), "n").calling_convention == "cc123"
    assert attributes(IR.replace("cc91 ", ""), "n").calling_convention == "ccc"


def test_what_an_argument_means_is_a_comment() -> None:
    said = IR.replace("id.x() #2\n  ret", "id.x(/* (inf) */ i32 516, /* a | b */ i32 1) #2 ; /* x\n  ret")
    plain = IR.replace("id.x() #2\n  ret", "id.x(i32 516, i32 1) #2\n  ret")
    assert said != plain
    compare_modules(said, plain, "gfx942")
    assert attributes(said, "f") == attributes(plain, "f")
    for text in ("/* a", '/* " */', "/* ; */", "/* a\n */", "/* /* */", "/*/ a */"):
        wrong = plain.replace("i32 516", f"{text} i32 516")
        with pytest.raises(Refused, match="a comment that LLVM does not print"):
            compare_modules(wrong, wrong + "\n", "gfx942")
        with pytest.raises(Refused, match="a comment that LLVM does not print"):
            attributes(wrong, "f")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@f(", "@g("),
        ("define cc91 void @n()", "define void @f()"),
        ("define internal fastcc", "define internal swiftcc"),
        ("define internal fastcc", "define internal cc" + "1" * 5000),
        ("define internal fastcc", "define fastcc internal"),
        ("i32 range(i32 0, 4) %n)", "i32 range(i32 0, 4) %n"),
        (" #0 {", " #9 {"),
        (" #0 {", ' #0 "target-features"="+c" {'),
        (" #0 {", " #0 #2 {"),
        (" #0 {", ' #0 personality ptr @g {'),
        (" #0 {", " #0\n{"),
        ("attributes #0 = {", "attributes #0={"),
        ("attributes #0 = {", "attributes #0 = { nounwind }\nattributes #0 = {"),
        ("attributes #0 = {", ' attributes #0 = { "a" }\nattributes #0 = {'),
        ("ret i32 %r\n}", 'ret i32 %r\n} attributes #0 = { "a" }'),
        ("attributes #0 = {", "/* attributes #0 = {"),
        ('"target-features"="+a,-b" }\nattributes #1', '"target-features"="+a,\n-b" }\nattributes #1'),
        ('"target-features"="+a,-b" }\nattributes #1', '"target\\2Dfeatures"="+a,-b" }\nattributes #1'),
        ("nounwind memory", "nounwind; memory"),
    ],
)  # fmt: skip
def test_what_is_not_read_as_llvm_reads_it_is_refused(old: str, new: str) -> None:
    assert old in IR
    with pytest.raises(Refused) as refused:
        attributes(IR.replace(old, new, 1), "f")
    assert refused.value.rule == "module"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("; ModuleID = 'k'\n", "; another comment\n\n"),
        ("ret i32 %r", "ret i32 %r ; why"),
        ("#2", "#7"),
        (' "target-cpu"="gfx942"', ""),
        ('attributes #0 = { nounwind memory(argmem: read, inaccessiblemem: none) "target-features"="+a,-b"',
         'attributes #0 = { nounwind memory(argmem: read, inaccessiblemem: none) "target-features"="+a,-b,+a,-b"'),
        ('attributes #2 = { nocallback "target-features"="+a,-b"', "attributes #2 = { nocallback"),
    ],
)  # fmt: skip
def test_what_llc_changes_is_no_difference(old: str, new: str) -> None:
    assert old in IR
    declared = IR.replace("id.x() #2\n  ret", "id.x()\n  ret")
    changed = declared.replace(old, new)
    compare_modules(declared, changed, "gfx942")
    compare_modules(changed, declared, "gfx942")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@g = global i32 0", "@g = global i32 1"),
        ('"k;k"', '"k;l"'),
        ("ret i32 %r", "ret i32 0"),
        ('"target-cpu"="gfx942"', '"target-cpu"="gfx90a"'),
        ('"1,64"', '"1,32"'),
        ("nounwind memory", "memory"),
        ('none) "target-features"="+a,-b"', 'none) "target-features"="+a,-b,+b"'),
        ("unnamed_addr #0", "unnamed_addr #2"),
        ("unnamed_addr #0", "unnamed_addr"),
        ("@g = global i32 0\n", ""),
        ("\n}\n", "\n}\n/* \n"),
    ],
)  # fmt: skip
def test_other_differences_are_refused(old: str, new: str) -> None:
    assert old in IR
    for pair in ((IR, IR.replace(old, new, 1)), (IR.replace(old, new, 1), IR)):
        with pytest.raises(Refused) as refused:
            compare_modules(*pair, "gfx942")
        assert refused.value.rule == "module"


def test_no_module_says_nothing() -> None:
    compare_modules("", "", "gfx942")
    with pytest.raises(Refused):
        attributes("", "k")
    with pytest.raises(Refused):
        compare_modules(IR, "", "gfx942")


def test_stored_modules_are_read_as_the_other_reader_reads_them() -> None:
    compared = 0
    for path in stored_texts():
        text = path.read_bytes().decode()
        try:
            new, old = read(text), parse_mir(text)
            found = [(f, attributes(new.module, f.name)) for f in new.functions]
        except (Refused, VeriloccError):
            continue
        for function, says in found:
            other = function_attributes(old.preamble, function.name)
            assert (says.calling_convention, says.is_local) == (other.calling_convention, other.is_local)
            assert says.strings == other.strings
            compared += 1
    assert compared > 880


def test_modules_of_cases_differ_where_the_audit_says_so() -> None:
    for path in stored_texts():
        after = path.with_name(path.name.replace(".before.", ".after."))
        if after == path or not after.exists():
            continue
        texts = [p.read_bytes().decode() for p in (path, after)]
        try:
            before, changed = (read(text).module for text in texts)
            preamble, changed_preamble = (parse_mir(text).preamble for text in texts)
            difference = module_difference(preamble, changed_preamble, "gfx942")
        except (Refused, VeriloccError):
            continue
        try:
            compare_modules(before, changed, "gfx942")
        except Refused:
            assert difference, path.name
        else:
            assert not difference, path.name
