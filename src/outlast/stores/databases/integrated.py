"""A database that an integration opens in its own way: over the connections that its framework keeps."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from outlast.ports.clock import Clock
from outlast.stores.databases.database import SqlDatabase


@runtime_checkable
class Integrated(Protocol):
    """What an integration passes to `Outlast` as its database."""

    def open_outlast(self, name: str, clock: Clock | None) -> SqlDatabase:
        """Return the database; nothing is connected yet. `name` names the schema, or the tables' prefix."""
        ...
