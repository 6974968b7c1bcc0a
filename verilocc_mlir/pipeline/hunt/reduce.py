"""A text of machine IR made small, while a question about it is answered with yes.

Nothing here knows what the question is. What LLVM does not read is answered with no, so edits need not be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.toolchain.verifier import without_functions

_T = TypeVar("_T")
Question = Callable[[str], bool]

_DOCUMENT = re.compile(r"^---.*?^\.\.\.$\n?", re.M | re.S)
_BODY = re.compile(r"^body: +\|\n", re.M)
_LABEL = re.compile(r"^  bb\.(\d+)[^\n]*:", re.M)
_MEMORY = re.compile(r" :: \((?:load|store|volatile|dereferenceable|invariant|non-temporal|noalias|\")[^\n]*$", re.M)
_DEBUG = re.compile(r",? debug-location !\w+(?:\([^\n]*\))?|^ *DBG_[^\n]*\n|,? debug-instr-number \d+", re.M)
_IR_NAMES = re.compile(r"^(  bb\.\d+)(?:\.[\w.\-$\"]+)?( \([^)\n]*\))?:", re.M)
_BLOCK_USE = re.compile(r"%bb\.(\d+)(?:\.[\w.\-$]+)?")
_SUCCESSORS = re.compile(r"^    successors: (.*)$", re.M)
_DEFINITIONS = re.compile(r"^    ((?:[^=\n]*, )?[^=\n]*%\d+[^=\n]*) = (?!IMPLICIT_DEF)", re.M)
_DEFINED = re.compile(
    r"(?:(?:dead|undef|renamable|early-clobber|killed|nofpexcept) )*(%\d+(?:\.\w+)?(?::\w+)?(?:\([^)]*\))?)"
)
_IR_BODY = re.compile(r"(^ *define [^\n]*\{\n).*?(^ *\}$)", re.M | re.S)


def minimise(items: Sequence[_T], answer: Callable[[Sequence[_T]], bool]) -> list[_T]:
    """Items without those that are not needed: runs of them are left out, from the end, shorter and shorter ones."""
    kept = list(items)
    size = len(kept)
    while size:
        end = len(kept)
        while end > 0:
            fewer = kept[: max(0, end - size)] + kept[end:]
            if answer(fewer):
                kept = fewer
            end -= size
        size //= 2
    return kept


class _Block(Struct, frozen=True):
    """A block: its label's line, and the lines below it."""

    number: int
    label: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join((self.label, *self.lines)) + "\n\n"

    @property
    def successors(self) -> list[int]:
        return [int(n) for line in self.lines if _SUCCESSORS.match(line) for n in _BLOCK_USE.findall(line)]


class _Function(Struct, frozen=True):
    """A function's document: what is above its blocks, the blocks, what is below."""

    head: str
    blocks: tuple[_Block, ...]
    tail: str

    @property
    def name(self) -> str:
        return self.head.partition("name:")[2].partition("\n")[0].strip().strip("'\"")

    @property
    def text(self) -> str:
        return self.head + "".join(block.text for block in self.blocks) + self.tail


class _File(Struct, frozen=True):
    ir: str
    functions: tuple[_Function, ...]

    @property
    def text(self) -> str:
        return self.ir + "".join(function.text for function in self.functions)


def reduce_mir(text: str, question: Question) -> str:
    """The text with as little as possible for which the answer is yes, as it is for ``text``."""
    reducer = _Reducer(text, question)
    reducer.around()
    while True:
        before = reducer.text
        reducer.inside()
        if reducer.text == before:
            break
    reducer.headers()
    return reducer.text


class _Reducer:
    def __init__(self, text: str, question: Question) -> None:
        self.text = text
        self._question = question
        self._seen: dict[str, bool] = {}

    def _try(self, text: str) -> bool:
        """Take the text if the answer is yes."""
        if text == self.text:
            return False
        if text not in self._seen:
            self._seen[text] = self._question(text)
        if self._seen[text]:
            self.text = text
        return self._seen[text]

    def around(self) -> None:
        """Other functions, memory operands, names and bodies of the IR."""
        file = _read(self.text)
        minimise(file.functions, lambda kept: bool(kept) and self._try(_only(file, kept).text))
        for pattern, change in (
            (_DEBUG, ""),
            (_MEMORY, ""),
            (_IR_NAMES, r"\1:"),
            (_IR_BODY, r"\1    unreachable\n\2"),
        ):
            self._try(pattern.sub(change, self.text))
        file = _read(self.text)
        if not self._try(replace(file, ir="").text):
            lines = file.ir.split("\n")
            minimise(
                lines[1:-2], lambda kept: self._try(replace(file, ir="\n".join([lines[0], *kept, *lines[-2:]])).text)
            )
        self.headers()

    def headers(self) -> None:
        for number in range(len(_read(self.text).functions)):
            self._header(number)

    def inside(self) -> None:
        """Blocks, instructions and live-ins."""
        for number in range(len(_read(self.text).functions)):
            self._ends(number)
            self._edges(number)
            self._joined(number)
            self._instructions(number)
            self._definitions(number)
            self._live_ins(number)

    def _function(self, number: int, function: _Function) -> bool:
        file = _read(self.text)
        functions = (*file.functions[:number], _reachable(function), *file.functions[number + 1 :])
        return self._try(replace(file, functions=functions).text)

    def _current(self, number: int) -> _Function:
        return _read(self.text).functions[number]

    def _header(self, number: int) -> None:
        """Leave out keys with all below them, then single registers, stack objects and fields."""
        for pattern in (r"\n(?=\w)", r"\n(?=\w|  \w|  - )"):
            first, *keys, body = re.split(pattern, self._current(number).head.rstrip("\n").removeprefix("---\n"))

            def fewer(kept: Sequence[str], first: str = first, body: str = body) -> bool:
                head = "\n".join(["---", first, *kept, body]) + "\n"
                return self._function(number, replace(self._current(number), head=head))

            minimise(keys, fewer)

    def _ends(self, number: int) -> None:
        """Make blocks the program's end."""
        for block in reversed(self._current(number).blocks):
            function = self._current(number)
            at = next((n for n, b in enumerate(function.blocks) if b.number == block.number), None)
            if at is not None:
                live = tuple(line for line in block.lines if line.lstrip().startswith("liveins:"))
                ended = replace(block, lines=(*live, "    S_ENDPGM 0"))
                self._function(number, _with_block(function, at, ended))

    def _edges(self, number: int) -> None:
        """Leave out one way from a block that has two."""
        for block in self._current(number).blocks:
            for target in block.successors if len(block.successors) > 1 else ():
                function = self._current(number)
                at = next((n for n, b in enumerate(function.blocks) if b.number == block.number), None)
                if at is not None:
                    self._function(number, _with_block(function, at, _without_edge(function.blocks[at], target)))

    def _joined(self, number: int) -> None:
        """Put a block behind the one that alone leads to it."""
        at = 0
        while at + 1 < len(self._current(number).blocks):
            function = self._current(number)
            first, second = function.blocks[at : at + 2]
            ways = [n for b in function.blocks for n in b.successors if n == second.number]
            if first.successors != [second.number] or len(ways) != 1 or not self._function(number, _join(function, at)):
                at += 1

    def _instructions(self, number: int) -> None:
        function = self._current(number)
        places = [
            (at, n)
            for at, block in enumerate(function.blocks)
            for n, line in enumerate(block.lines)
            if not line.lstrip().startswith(("liveins:", "successors:"))
        ]
        lines = set(places)

        def without(kept: Sequence[tuple[int, int]]) -> bool:
            gone = lines - set(kept)
            blocks = tuple(
                replace(b, lines=tuple(line for n, line in enumerate(b.lines) if (at, n) not in gone))
                for at, b in enumerate(function.blocks)
            )
            return self._function(number, replace(function, blocks=blocks))

        minimise(places, without)

    def _definitions(self, number: int) -> None:
        """Have values come from nowhere."""
        for at in reversed(range(len(self._current(number).blocks))):
            function = self._current(number)
            if at >= len(function.blocks):
                continue
            for n in reversed(range(len(function.blocks[at].lines))):
                function = self._current(number)
                block = function.blocks[at]
                defined = _from_nowhere(block.lines[n]) if n < len(block.lines) else ()
                if defined:
                    lines = (*block.lines[:n], *defined, *block.lines[n + 1 :])
                    self._function(number, _with_block(function, at, replace(block, lines=lines)))

    def _live_ins(self, number: int) -> None:
        for at in range(len(self._current(number).blocks)):
            block = self._current(number).blocks[at] if at < len(self._current(number).blocks) else None
            for n, line in enumerate(block.lines if block else ()):
                head, colon, registers = line.partition("liveins: ")
                if not colon or block is None:
                    continue

                def fewer(
                    kept: Sequence[str], at: int = at, n: int = n, head: str = head, block: _Block = block
                ) -> bool:
                    new = (f"{head}liveins: {', '.join(kept)}",) if kept else ()
                    lines = (*block.lines[:n], *new, *block.lines[n + 1 :])
                    function = self._current(number)
                    return self._function(number, _with_block(function, at, replace(block, lines=lines)))

                minimise(registers.split(", "), fewer)


def _only(file: _File, kept: Sequence[_Function]) -> _File:
    """The file with those functions; LLVM's passes leave the IR of the others alone."""
    names = [function.name for function in file.functions if function not in kept]
    return _File(without_functions(file.ir, names), tuple(kept))


def _read(text: str) -> _File:
    documents = _DOCUMENT.findall(text)
    ir = "".join(document for document in documents if document.startswith("--- |"))
    return _File(ir, tuple(_function(d) for d in documents if not d.startswith("--- |")))


def _function(document: str) -> _Function:
    body = _BODY.search(document)
    if body is None:
        return _Function(document, (), "")
    end = document.rindex("\n...") + 1
    labels = [*_LABEL.finditer(document, body.end())]
    places = [*(match.start() for match in labels), end]
    blocks = tuple(
        _block(int(match[1]), document[start:stop])
        for match, start, stop in zip(labels, places, places[1:], strict=False)
    )
    return _Function(document[: body.end()], blocks, document[end:])


def _block(number: int, text: str) -> _Block:
    label, *lines = text.rstrip("\n").split("\n")
    return _Block(number, label, tuple(line for line in lines if line.strip() and not line.lstrip().startswith(";")))


def _with_block(function: _Function, at: int, block: _Block) -> _Function:
    return replace(function, blocks=(*function.blocks[:at], block, *function.blocks[at + 1 :]))


def _without_edge(block: _Block, target: int) -> _Block:
    lines: list[str] = []
    for line in block.lines:
        if _SUCCESSORS.match(line):
            remaining = [f"%bb.{n}" for n in block.successors if n != target]
            lines += [f"    successors: {', '.join(remaining)}"] if remaining else []
            continue
        if str(target) not in _BLOCK_USE.findall(line):
            lines.append(line)
    return replace(block, lines=tuple(lines))


def _join(function: _Function, at: int) -> _Function:
    first, second = function.blocks[at : at + 2]
    own = tuple(
        line
        for line in first.lines
        if not _SUCCESSORS.match(line) and str(second.number) not in _BLOCK_USE.findall(line)
    )
    lines = tuple(line for line in second.lines if not line.lstrip().startswith("liveins:"))
    successors = tuple(line for line in lines if _SUCCESSORS.match(line))
    code = tuple(line for line in lines if not _SUCCESSORS.match(line))
    joined = replace(first, lines=(*successors, *own, *code))
    return replace(function, blocks=(*function.blocks[:at], joined, *function.blocks[at + 2 :]))


def _reachable(function: _Function) -> _Function:
    """The function without blocks that nothing leads to."""
    if not function.blocks:
        return function
    by_number = {block.number: block for block in function.blocks}
    waiting, seen = [function.blocks[0].number], {function.blocks[0].number}
    while waiting:
        for number in by_number[waiting.pop()].successors:
            if number in by_number and number not in seen:
                seen.add(number)
                waiting.append(number)
    return replace(function, blocks=tuple(block for block in function.blocks if block.number in seen))


def _from_nowhere(line: str) -> tuple[str, ...]:
    """The line's definitions of virtual registers, of no value."""
    match = _DEFINITIONS.match(line)
    return tuple(f"    {name} = IMPLICIT_DEF" for name in _DEFINED.findall(match[1])) if match else ()
