"""Whether a caller's transaction is on the database that the app uses, and not on another one with tables of outlast.

Two installations are told apart by the instant at which their tables were made, which stands in the table of migrations.
It is read once from our own database when its tables are checked, and once from each engine or connection that a
transaction is passed from. A copy of a database counts as the same one. Held by tests/integration/test_other_databases.py.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from sqlalchemy import func, select

from outlast.errors import NotATransaction
from outlast.ports.operation import Op, Statement
from outlast.stores.basis import Basis
from outlast.stores.databases.kinds.kind import Transaction
from outlast.stores.tables import Query


class Origin:
    """The installation of one database, and the engines and connections that were found to lead to it."""

    def __init__(self, basis: Basis, place: Callable[[], str]) -> None:
        """`place` names our database in messages."""
        migrations = basis.tables.migrations
        self._basis = basis
        self._place = place
        self._made_at: Query = select(func.min(migrations.c.applied_at))
        self._ours: int | None = None
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def read(self) -> Op[int | None]:
        """Read when the tables were made."""
        found = yield Statement(self._made_at, span="alone")
        made_at: int | None = found.rows[0][0]
        return made_at

    def learn(self, made_at: int | None) -> None:
        """Take this installation for ours."""
        if made_at != self._ours:
            self._ours = made_at
            self._known = weakref.WeakSet()

    def check(self, transaction: Transaction) -> Op[None]:
        """Raise NotATransaction when the caller's transaction is on another installation. Runs on the caller's connection,
        after whatever lock it takes: a read before it might see what a write could not follow."""
        source, what = transaction.source, transaction.what
        if self._knows(source):
            return
        if self._basis.dialect.write_lock(self._basis.tables) is None:
            # An error would spoil the caller's transaction, so it is not tried. A lock has found the tables, see `joining`.
            yield from self.check_tables(transaction)
        made_at = yield from self.read()
        if made_at is not None and type(made_at) is not int:
            raise _altered(what, made_at)
        if made_at != self._ours:
            seen = "which has tables of outlast too: what is written there would not be seen here"
            raise (yield from self._elsewhere(transaction, seen))
        with contextlib.suppress(TypeError):
            # The standard library's connections to SQLite cannot be remembered; asking one of them costs no round trip.
            self._known.add(source)

    def check_tables(self, transaction: Transaction) -> Op[None]:
        """Raise NotATransaction when there are no tables of ours where the caller's transaction is, or when its connection
        garbles texts."""
        what = transaction.what
        found = yield self._basis.dialect.tables_present(self._basis.tables)
        garbled = self._basis.dialect.garbles(found)
        if garbled is not None:
            raise NotATransaction(f"tx= is {what} on a connection {garbled}")
        names = [row[0] for row in found.rows]
        if self._basis.tables.migrations.name not in names:
            ours = [table.name for table in self._basis.tables.all]
            for name in names:
                if name not in ours and any(each in str(name) for each in ours):
                    raise _altered(what, name)
            raise (yield from self._elsewhere(transaction, "which has no tables of outlast"))

    def _elsewhere(self, transaction: Transaction, why: str) -> Op[NotATransaction]:
        found = yield self._basis.dialect.whereabouts()
        theirs = found.rows[0][0] or "in memory"
        is_switched = self._knows(transaction.source) and self._basis.dialect.write_lock(self._basis.tables) is None
        remedy = (
            "Its connection was switched there (USE): switch it back before the call."
            if is_switched
            else "Pass a transaction on the app's own database, or an Outlast(...) on that one."
        )
        return NotATransaction(
            f"tx= is {transaction.what} on another database than this app's, {why}. It is on {theirs}, the app on "
            f"{self._place()}. {remedy}"
        )

    def _knows(self, source: object) -> bool:
        """Tell whether this engine or connection was found to lead here before."""
        try:
            return self._ours is None or source in self._known
        except TypeError:
            return False  # It cannot be remembered.


def _altered(what: str, read: object) -> NotATransaction:
    """Return the error for a connection on which what we store would be misread, wherever it leads."""
    return NotATransaction(
        f"tx= is {what} that was set up to give other values than are stored: outlast reads {read!r} from its tables there. "
        "Pass a connection without codecs, loaders or converters for text and bigint."
    )
