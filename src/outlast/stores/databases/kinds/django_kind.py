"""Django's connections, inside of `transaction.atomic()` or with autocommit switched off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from outlast.stores.databases import django_statements
from outlast.stores.databases.kinds.kind import BlockingTransaction, Kind, Transaction, none_open, told
from outlast.stores.databases.kinds.mysql_kinds import IN_TRANSACTION
from outlast.stores.databases.loaded import is_a


def _connection(tx: object) -> Transaction | None:
    connection = _behind(tx)
    if connection is None:
        return None
    if not connection.in_atomic_block and connection.get_autocommit():
        raise none_open(connection, "Wrap the call: `with transaction.atomic(): ...`.")
    return BlockingTransaction(
        told(connection),
        connection.vendor,
        connection,
        lambda: lambda statement: django_statements.execute(connection, statement),
    )


def _after_commit(tx: object, action: Callable[[], object]) -> bool:
    connection = _behind(tx)
    if connection is None or not connection.in_atomic_block:
        return False  # With autocommit switched off Django tells nobody.
    connection.on_commit(action)
    return True


def _is_open(tx: object) -> bool | None:
    connection = _behind(tx)
    if connection is None:
        return None
    driver = connection.connection
    if driver is None:
        return False
    if connection.vendor == "postgresql":
        # Both of psycopg's versions: 0 is idle.
        return (driver.info.transaction_status if hasattr(driver.info, "transaction_status") else 0) != 0
    if connection.vendor == "mysql":
        # PyMySQL knows it, in the place of mysqlclient, which does not tell.
        return bool(getattr(driver, "server_status", 0) & IN_TRANSACTION)
    return bool(getattr(driver, "in_transaction", False))


def _behind(tx: object) -> Any | None:  # noqa: ANN401 - a DatabaseWrapper of Django's
    """Return the connection itself: `django.db.connection` is a proxy for the thread's own."""
    if is_a(tx, "django.utils.connection", "ConnectionProxy"):
        proxy: Any = tx
        attributes = cast("dict[str, Any]", vars(proxy))
        return attributes["_connections"][attributes["_alias"]]
    return tx if is_a(tx, "django.db.backends.base.base", "BaseDatabaseWrapper") else None


DJANGO: Final = Kind(
    handles="a connection of Django's inside of transaction.atomic()",
    recognise=_connection,
    roots={
        ("django.db.transaction", "Atomic"): (
            "Pass the connection that the block is on: `with transaction.atomic(): ... tx=connection`. "
            "The app of outlast.integrations.django needs nothing passed."
        ),
        ("django.db.utils", "ConnectionHandler"): "Pass one of them: `tx=connections['default']`.",
        ("django.db.backends.utils", "CursorWrapper"): "Pass the connection that it is on: `tx=connection`.",
    },
    after_commit=_after_commit,
    is_open=_is_open,
)
