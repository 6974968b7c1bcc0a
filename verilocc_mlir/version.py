"""The version: a module that imports nothing, so that every part may ask for it."""

from __future__ import annotations

__version__ = "0.2.0"
