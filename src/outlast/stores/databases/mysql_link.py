"""Our own connections to MySQL and MariaDB for awaiting callers: asyncmy's, as `pooled_road` takes them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from outlast.ports.operation import Result, Span, Statement
from outlast.stores.databases.mysql_statements import execute_awaiting
from outlast.stores.databases.wire import Wire

RESET: Final = 0x1F
"""`COM_RESET_CONNECTION` of the protocol: all of the session is as if it were new, but for its database."""


_BEGIN: Final[Mapping[Span, str | None]] = {
    # The session's isolation is READ COMMITTED.
    "write": "START TRANSACTION",
    "read": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY",
    "alone": None,
}
_BEGINNINGS: Final = frozenset(_BEGIN.values())


@dataclass(frozen=True, slots=True)
class Session:
    """What a connection is told when it is made, and after how many seconds without a word the server ends it."""

    texts: tuple[str, ...]
    idle: int


class MySQLLink:
    """One connection. It is taken for closed when it has been idle for so long that the server may end it."""

    def __init__(self, connection: Any, cursors: Any, session: Session, database: str) -> None:  # noqa: ANN401 - asyncmy's
        self.raw = connection
        self._database = database
        self._cursors = cursors
        self._set_up = session.texts
        self._fresh = session.idle / 2
        self._used_at = time.monotonic()
        self._beginning: str | None = None

    async def say(self, *texts: str) -> None:
        """Execute statements without parameters or results."""
        async with self.raw.cursor(self._cursors) as cursor:
            for text in texts:
                await cursor.execute(text)

    async def execute(self, query: str) -> None:
        """Begin or end a transaction. What begins it travels with its first statement, in one round trip."""
        if query in _BEGINNINGS:
            self._beginning = query
        elif self._beginning is not None:
            self._beginning = None  # What never began has no end.
        else:
            await self.say(query)

    async def perform(self, statement: Statement) -> Result:
        beginning, self._beginning = self._beginning, None
        result = await execute_awaiting(self.raw, statement, self._cursors, after=beginning)
        self._used_at = time.monotonic()
        return result

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """Have a transaction open, on which the application works with the driver's connection."""
        await self.say("START TRANSACTION")
        try:
            yield
        except Exception:
            await self._roll_back()
            raise
        except BaseException:
            # Cut short, perhaps in the middle of a statement: the server rolls back what it loses sight of.
            self.terminate()
            raise
        await self.say("COMMIT")
        self._used_at = time.monotonic()

    async def _roll_back(self) -> None:
        if self.raw.connected:
            try:
                await self.say("ROLLBACK")
            except Exception:  # noqa: BLE001 - why it is rolled back is what the caller hears
                self.terminate()

    def is_in_transaction(self) -> bool:
        return bool(self.raw.get_transaction_status())

    async def reset(self) -> None:
        """Leave nothing of the application's behind."""
        await self.raw._execute_command(RESET, b"")  # noqa: SLF001 - the driver has no word for it
        await self.raw._read_ok_packet()  # noqa: SLF001 - as above
        await self.say(*self._set_up)
        await self.raw.select_db(self._database)

    def is_closed(self) -> bool:
        if self.raw.connected and time.monotonic() - self._used_at > self._fresh:
            self.terminate()
        return not self.raw.connected

    def terminate(self) -> None:
        self.raw.close()

    async def close(self, *, timeout: float | None = None) -> None:
        del timeout
        with contextlib.suppress(Exception):
            await self.raw.ensure_closed()


WIRE: Final = Wire(
    MySQLLink.perform,
    _BEGIN,
    attrgetter("raw"),
)
