"""Connections of one event loop: raw asyncpg."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from outlast.stores.databases.held_pool import HeldPool

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

Connect = Callable[[], "Awaitable[Connection]"]


class Pool(HeldPool["Connection"]):
    """Of asyncpg's connections as they are: their own statements' cache is what makes them fast."""
