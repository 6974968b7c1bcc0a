"""Mutations of proved allocations, one class for each rule of the design, and edits that change nothing.

Each class makes edits of a subject, in random order, as a lazy iterator; the edit of a class names the rules of which
the audit must give at least one when it refutes it. Some edits of most classes change nothing (a copy that nobody
reads is dropped): ``mutants.verdict`` tells them apart by argument.
"""

from __future__ import annotations

from mutants import equivalent, headers, implicit, instructions, memories, moves, operands, places, repeats
from mutants.subject import Edit, Mutation, Subject, read_again

CLASSES: dict[str, Mutation] = {
    m.name: m
    for part in (operands, moves, instructions, headers, memories, implicit, places, repeats, equivalent)
    for m in part.CLASSES
}

__all__ = ["CLASSES", "Edit", "Mutation", "Subject", "read_again"]
