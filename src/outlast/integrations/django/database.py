"""One database, reached in two ways: by Django's connections, and by connections of ours where a worker is at home."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Final, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from outlast.integrations.django.location import SUPPORTED, url_of
from outlast.integrations.django.road import DjangoRoad, RelayedRoad, SensitiveRoad
from outlast.integrations.django.transactions import DjangoTransactions
from outlast.ports.clock import Clock
from outlast.ports.database import MakeOp, Notice
from outlast.stores.basis import Basis, make_basis
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.stores.dialects.base import Dialect
from outlast.stores.dialects.mysql import MySQL
from outlast.stores.dialects.postgresql import PostgreSQL
from outlast.stores.dialects.sqlite import SQLite

T = TypeVar("T")

_DIALECTS: Final[Mapping[str, type[Dialect]]] = {"sqlite": SQLite, "postgresql": PostgreSQL, "mysql": MySQL}


class DjangoSource:
    """What the app of this integration passes to Outlast as its database."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def open_outlast(self, name: str, clock: Clock | None) -> DjangoDatabase:
        """Return the database; nothing is connected yet."""
        return DjangoDatabase(self._alias, name, clock)


class DjangoDatabase(SqlDatabase):
    """An alias of DATABASES.

    Blocking callers, and awaiting ones on any loop, go over Django's connections. The exception is `home`, the loop on which
    the app was opened: a worker is there, which lives longer than requests and listens, so it has connections of ours.
    """

    def __init__(self, alias: str, name: str, clock: Clock | None) -> None:
        self.alias = alias
        self.home: asyncio.AbstractEventLoop | None = None
        self._name = name
        self._clock = clock
        basis = basis_of(alias, name, clock)
        road = DjangoRoad(alias, basis)

        def on_this_loop() -> SqlDatabase:
            return SqlDatabase(basis, RelayedRoad(SensitiveRoad(road)), road, listener=None, separate=on_this_loop)

        super().__init__(
            basis, SensitiveRoad(road), road, listener=None, separate=on_this_loop, own=DjangoTransactions(alias)
        )

    @cached_property
    def _at_home(self) -> SqlDatabase:
        url = url_of(self.alias).render_as_string(hide_password=False)
        return open_database(url, schema=self._name, clock=self._clock)

    def is_home(self) -> bool:
        """Tell whether the running loop is the one on which the app was opened."""
        return self.home is not None and asyncio.get_running_loop() is self.home

    def too_big(self, text: str) -> str | None:
        # Who was opened has asked the server, which is the same one.
        return self._at_home.too_big(text) if self.home is not None else super().too_big(text)

    async def open(self) -> None:
        if self.is_home():
            self.place: str = self._at_home.place
        await (self._at_home.open() if self.is_home() else super().open())

    async def close(self) -> None:
        if self.is_home():
            await self._at_home.close()

    async def run(self, make: MakeOp[T], *, repeatable: bool = True, patience: float = 30.0, waits: bool = True) -> T:
        run = self._at_home.run if self.is_home() else super().run
        return await run(make, repeatable=repeatable, patience=patience, waits=waits)

    async def listen(self, notice: Notice) -> None:
        if self.is_home():
            await self._at_home.listen(notice)

    def can_migrate_beside(self) -> bool:
        return False  # `manage.py migrate` makes tables, and an atomic block is no place for it.

    def separate(self) -> SqlDatabase:
        return self._at_home.separate() if self.is_home() else super().separate()


def basis_of(alias: str, name: str, clock: Clock | None = None) -> Basis:
    """Return tables and dialect of an alias. Raises ImproperlyConfigured where outlast has no store."""
    vendor = connections[alias].vendor
    dialect = _DIALECTS.get(vendor)
    if dialect is None:
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] is {vendor}, on which outlast has no store. Name another one in OUTLAST['DATABASE']; "
            f"outlast works on {', '.join(SUPPORTED)}."
        )
    return make_basis(name, dialect, clock)
