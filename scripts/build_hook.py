"""hatchling's build hook: what is generated is there before files are collected."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build_loaded_tool
import build_second_checker
import compile_checker
from generate_protos import REPOSITORY, generate


class BuildHook(BuildHookInterface):  # pyright: ignore
    """The modules of the gRPC contract, the library by which LLVM's tools are loaded once, both checkers, and the maker
    of certificates, built.

    An editable installation waits for no compiled checker: its sources change.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generate(REPOSITORY)
        if self.target_name != "wheel":
            return
        built = [build_loaded_tool.build(), *build_second_checker.build()]
        if version == "editable":
            return
        if any([*built, compile_checker.build()]):
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
