"""Structured logs: one JSON object a line, on standard error."""

from __future__ import annotations

import io
import json
import logging
import sys
from datetime import datetime, timezone
from typing import TextIO

LOGGER = logging.getLogger("verilocc.service")
_FIELDS = "fields"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        fields: dict[str, object] = {"time": when, "level": record.levelname.lower(), "event": record.getMessage()}
        fields |= getattr(record, _FIELDS, {})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def set_up(level: str = "info", stream: TextIO | None = None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonLines())
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
    # What libraries say of themselves is lines of the same form.
    logging.getLogger().handlers[:] = [handler]


class Printed(io.TextIOBase):
    """A standard error for libraries that print (gRPC does where it cancels a call): at level debug, and in the log's
    form, what they say is kept.
    """

    def write(self, text: str) -> int:
        """Log it, if it is more than white space."""
        if text.strip():
            log("printed", logging.DEBUG, text=text.rstrip())
        return len(text)


def log(event: str, level: int = logging.INFO, **fields: object) -> None:
    """Say what happened, with what belongs to it; no request's text is ever logged."""
    LOGGER.log(level, event, extra={_FIELDS: fields})
