"""What stops a check: a text, or a rule, that is not known or not kept."""

from __future__ import annotations


class Refused(Exception):
    """Something is not known, or not as it must be. A check that raises this has proved nothing.

    Attributes:
        rule: short name of the rule.
        message: what is wrong, in words.
        where: ``"line 12"`` or ``"bb.3"``; empty where no place is meant.
    """

    def __init__(self, rule: str, message: str, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.rule = rule
        self.message = message
        self.where = where

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str, str]]:
        return Refused, (self.rule, self.message, self.where)
