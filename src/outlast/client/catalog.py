"""The workflows an application registered, by name and version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from outlast.engine.definition import Workflow
from outlast.errors import DefinitionError, InvalidArgument, UnknownWorkflow


class Catalog:
    """Find workflows. Built once; never changes."""

    def __init__(self, workflows: Iterable[Workflow[Any, Any]]) -> None:
        self._versions: dict[str, dict[int, Workflow[Any, Any]]] = {}
        for workflow in workflows:
            versions = self._versions.setdefault(workflow.name, {})
            if workflow.version in versions:
                raise DefinitionError(
                    f"Two workflows are registered as {workflow.name!r} version {workflow.version}. "
                    "Give one of them another name, or a new version if it replaces the other."
                )
            versions[workflow.version] = workflow

    def __iter__(self) -> Iterator[Workflow[Any, Any]]:
        for versions in self._versions.values():
            yield from versions.values()

    def __len__(self) -> int:
        return sum(map(len, self._versions.values()))

    def get(self, name: str, version: int) -> Workflow[Any, Any] | None:
        """Return the workflow of exactly this name and version, if it is registered here."""
        return self._versions.get(name, {}).get(version)

    def find(self, name: str, version: int | None) -> Workflow[Any, Any]:
        """Return the workflow to start: of this version, or of the highest one. Raises UnknownWorkflow."""
        if version is not None and type(version) is not int:
            raise InvalidArgument(f"version is a whole number, as in @workflow(..., version=2); {version!r} is not.")
        versions = self._versions.get(name)
        if not versions:
            raise UnknownWorkflow(name, version, self._known())
        if version is None:
            return versions[max(versions)]
        if version not in versions:
            raise UnknownWorkflow(name, version, self._known())
        return versions[version]

    def in_words(self, most: int = 10) -> str:
        """List names and versions, at most so many of them."""
        known = self._known()
        listed = ", ".join(known[:most]) or "none"
        return listed if len(known) <= most else f"{listed} and {len(known) - most} more"

    def _known(self) -> tuple[str, ...]:
        return tuple(f"{workflow.name} version {workflow.version}" for workflow in self)
