"""A contract type for import-linter: modules that may import nothing of this project but what is listed.

import-linter's own ``forbidden`` lists what is refused, so that a new package is allowed until somebody thinks of it.
"""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils
from importlinter.domain.helpers import module_expressions_to_modules


class AllowOnlyContract(Contract):
    """Direct imports of ``source_modules`` stay within each of them, or are of ``allowed_modules``.

    Packages from outside the project are not looked at. A package is allowed with all that it holds.
    """

    type_name = "allow_only"

    source_modules: Any = fields.ListField(subfield=fields.ModuleExpressionField())
    allowed_modules: Any = fields.ListField(subfield=fields.ModuleExpressionField())
    ignore_imports: Any = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at every import of every source module."""
        del verbose
        removal = contract_utils.remove_ignored_imports_and_report(
            graph=graph, ignore_imports=self.ignore_imports, unmatched_alerting=contract_utils.AlertLevel.ERROR
        )
        illegal = sorted(
            (importer, imported)
            for source in module_expressions_to_modules(graph, self.source_modules, as_packages=False)
            for importer in _with_descendants(graph, source.name)
            for imported in graph.find_modules_directly_imported_by(importer)
            if not graph.is_module_squashed(imported)
            and imported not in _with_descendants(graph, source.name)
            and imported not in self._allowed(graph)
        )
        return ContractCheck(
            kept=not illegal,
            warnings=list(removal.warnings),
            ignored_import_count=removal.ignored_import_count,
            metadata={"illegal": illegal},
        )

    def _allowed(self, graph: ImportGraph) -> set[str]:
        return {module.name for module in module_expressions_to_modules(graph, self.allowed_modules, as_packages=True)}

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import that is not allowed."""
        for importer, imported in check.metadata["illegal"]:
            output.print_error(f"- {importer} imports {imported}")


def _with_descendants(graph: ImportGraph, name: str) -> set[str]:
    return {name} | graph.find_descendants(name)
