"""Pools of asyncmy and aiomysql that belong to the application: where they lead, and transactions on their connections."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import URL

from outlast.ports.operation import Result, Statement
from outlast.stores.databases.loaded import is_a, loaded_class
from outlast.stores.databases.mysql_statements import execute_awaiting
from outlast.stores.databases.wire import Wire

_MODULES: Final = ("asyncmy", "aiomysql")
# What connections of ours would need to know as well, and there is no word for it in a URL.
_UNTOLD: Final = ("read_default_file", "read_default_group", "auth_plugin", "auth_plugin_map", "server_public_key", "sock",
                  "password_creator")  # fmt: skip

# MariaDB 11.6.2 and later would else wait for rows that a statement looks at and does not want, which others have changed.
LIMIT: Final = (
    "SET @outlast_waits = @@session.innodb_lock_wait_timeout, @@session.innodb_lock_wait_timeout = 1 "
    "/*M!110402 , @outlast_snapshots = @@session.innodb_snapshot_isolation, "
    "@@session.innodb_snapshot_isolation = 0 */"
)
NO_LIMIT: Final = (
    "SET @@session.innodb_lock_wait_timeout = @outlast_waits "
    "/*M!110402 , @@session.innodb_snapshot_isolation = @outlast_snapshots */"
)
_WRITE: Final = f"{LIMIT}; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION"
_ALONE: Final = "SET autocommit = 1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pool's connections lead, and with which TLS."""

    url: URL
    tls: ssl.SSLContext | None


def place_of(pool: object) -> Place | None:
    """Return where a pool leads; None for anything else, and a Place without a host for one that does not say."""
    if not any(is_a(pool, f"{module}.pool", "Pool") for module in _MODULES):
        return None
    # It has no public word for them.
    said: Mapping[str, Any] = getattr(pool, "_conn_kwargs", None) or {"sock": True}
    if any(said.get(name) for name in _UNTOLD):
        return Place(URL.create("mysql"), None)
    socket = said.get("unix_socket")
    tls = said.get("ssl")
    url = URL.create(
        "mysql",
        username=said.get("user"),
        password=said.get("password") or None,
        host=said.get("host") or "localhost",
        port=said.get("port") or None,
        database=said.get("database") or said.get("db"),
        query={"unix_socket": socket} if socket else {},
    )
    return Place(url, tls if isinstance(tls, ssl.SSLContext) else None)


class LentLink:
    """A connection of the pool's, for one transaction of ours; given back as it came, or closed."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - of either driver
        self._raw = connection
        self._cursors = loaded_class(f"{type(connection).__module__.partition('.')[0]}.cursors", "Cursor")
        self._is_limited = False
        self._is_altered = False

    async def execute(self, query: str) -> None:
        self._is_limited |= query == _WRITE
        self._is_altered |= query == _ALONE
        await _say(self._raw, *query.split("; "))

    async def perform(self, statement: Statement) -> Result:
        return await execute_awaiting(self._raw, statement, self._cursors)

    async def give_back(self) -> None:
        if _is_closed(self._raw):
            return
        if self._is_altered:
            self.terminate()
        elif self._is_limited:
            try:
                if self._raw.get_transaction_status():
                    await _say(self._raw, "ROLLBACK")
                await _say(self._raw, NO_LIMIT)
            except Exception:  # noqa: BLE001 - what happened to the transaction is what the caller hears
                self.terminate()
            except BaseException:
                self.terminate()
                raise

    def terminate(self) -> None:
        self._raw.close()


WIRE: Final = Wire(
    LentLink.perform,
    {
        # Nothing stands alone: whether the application's connections commit by themselves is its own affair.
        "write": _WRITE,
        "read": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY",
        "alone": _WRITE,
        "session": _ALONE,
    },
)


@asynccontextmanager
async def lent(pool: Any) -> AsyncGenerator[LentLink]:  # noqa: ANN401 - of either driver
    """Take a connection of the pool's for one transaction of ours."""
    async with pool.acquire() as connection:
        link = LentLink(connection)
        try:
            yield link
        finally:
            await link.give_back()


@asynccontextmanager
async def begun(pool: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - of either driver
    """Give a connection of the pool's to the application, with a transaction that commits at the end."""
    async with pool.acquire() as connection:
        await connection.begin()
        try:
            yield connection
        except Exception:
            if not _is_closed(connection):
                await connection.rollback()
            raise
        except BaseException:
            # Cut short, perhaps in the middle of a statement: the server rolls back what it loses sight of.
            connection.close()
            raise
        await connection.commit()


async def _say(connection: Any, *texts: str) -> None:  # noqa: ANN401 - of either driver
    async with connection.cursor() as cursor:
        for text in texts:
            await cursor.execute(text)


def _is_closed(connection: Any) -> bool:  # noqa: ANN401 - aiomysql's says closed, asyncmy's connected
    return bool(connection.closed) if hasattr(connection, "closed") else not connection.connected
