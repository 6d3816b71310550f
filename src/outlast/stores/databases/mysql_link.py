"""Our own connections to MySQL and MariaDB for awaiting callers: asyncmy's, as `held_pool` takes them."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

from outlast.ports.operation import Result, Statement
from outlast.stores.databases.mysql_statements import execute_awaiting, refuse_oversized

IDLE: Final = 20
"""Seconds after which the server ends a connection that says nothing, so that a process which is stopped in the middle of a
transaction does not keep its locks. MySQL has no such limit for transactions alone."""

_FRESH: Final = IDLE / 2


class MySQLLink:
    """One connection. It is taken for closed when it has been idle for so long that the server may end it."""

    def __init__(self, connection: Any, cursors: Any, most: int) -> None:  # noqa: ANN401 - the driver may be missing
        """`most` is the server's max_allowed_packet."""
        self.raw = connection
        self._cursors = cursors
        self._most = most
        self._used_at = time.monotonic()

    async def say(self, *texts: str) -> None:
        """Execute statements without parameters or results."""
        async with self.raw.cursor(self._cursors) as cursor:
            for text in texts:
                await cursor.execute(text)

    async def execute(self, statement: Statement) -> Result:
        refuse_oversized(statement, self._most)
        result = await execute_awaiting(self.raw, statement, self._cursors)
        self._used_at = time.monotonic()
        return result

    def is_closed(self) -> bool:
        if self.raw.connected and time.monotonic() - self._used_at > _FRESH:
            self.terminate()
        return not self.raw.connected

    def terminate(self) -> None:
        self.raw.close()

    async def close(self, *, timeout: float | None = None) -> None:
        del timeout
        with contextlib.suppress(Exception):
            await self.raw.ensure_closed()
