"""All kinds of handles, and the one that a value is of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from outlast.errors import NotATransaction
from outlast.stores.databases.kinds.asyncpg_kind import ASYNCPG
from outlast.stores.databases.kinds.django_kind import DJANGO
from outlast.stores.databases.kinds.kind import Kind, Transaction, told
from outlast.stores.databases.kinds.mysql_kinds import AIOMYSQL, ASYNCMY, PYMYSQL
from outlast.stores.databases.kinds.psycopg_kind import PSYCOPG
from outlast.stores.databases.kinds.sqlalchemy_kinds import SQLALCHEMY_CONNECTION, SQLALCHEMY_SESSION
from outlast.stores.databases.kinds.sqlite_kinds import AIOSQLITE, SQLITE3
from outlast.stores.databases.loaded import is_a
from outlast.stores.dialects.base import Dialect

KINDS: Final[tuple[Kind, ...]] = (
    SQLALCHEMY_SESSION,
    SQLALCHEMY_CONNECTION,
    ASYNCPG,
    PSYCOPG,
    SQLITE3,
    AIOSQLITE,
    PYMYSQL,
    ASYNCMY,
    AIOMYSQL,
    DJANGO,
)


def recognise(tx: object, dialect: Dialect) -> Transaction:
    """Return the transaction behind `tx`. Raises NotATransaction when it is none, or is on another kind of database."""
    transaction = _transaction(tx)
    if transaction is None:
        raise NotATransaction(f"tx= is {told(tx)}, which is no transaction. {_hint(tx)}")
    if transaction.database not in {dialect.name, *dialect.other_names}:
        raise NotATransaction(
            f"tx= is {transaction.what} on {transaction.database}, but this app's database is {dialect.name}; "
            "one transaction cannot span both."
        )
    return transaction


def after_commit(tx: object, action: Callable[[], object]) -> bool:
    """Call `action` once the transaction behind `tx` is committed. Return whether its kind tells of that."""
    return any(kind.after_commit is not None and kind.after_commit(tx, action) for kind in KINDS)


def is_open(tx: object) -> bool:
    """Tell whether the transaction behind `tx` has not ended yet, as far as that is known here."""
    return any(kind.is_open is not None and kind.is_open(tx) for kind in KINDS)


def _transaction(tx: object) -> Transaction | None:
    for kind in KINDS:
        transaction = kind.recognise(tx)
        if transaction is not None:
            return transaction
    return None


def _hint(tx: object) -> str:
    """Return what to pass instead."""
    for kind in KINDS:
        for (module, name), hint in kind.roots.items():
            if is_a(tx, module, name):
                return hint
    handles = "; ".join(kind.handles for kind in KINDS)
    return f"Pass what your own statements in that transaction go through: {handles}."
