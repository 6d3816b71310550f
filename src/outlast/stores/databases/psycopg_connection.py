"""psycopg's awaiting connections as our pool holds them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from outlast.stores.databases.postgres_reset import RESET

if TYPE_CHECKING:
    import psycopg

_PREPARED: Final = 256
_IDLE: Final = 0
"""`TransactionStatus.IDLE`."""
_LOOK_UP: Final = 60.0
"""Seconds after which a wait looks whether it missed something. It never does: it is told by the event loop."""


async def connect(arguments: Mapping[str, Any], *, prepares: bool) -> psycopg.AsyncConnection[Any]:
    """Return a new connection that begins no transaction by itself. With `prepares` each statement is prepared once for the
    connection, else nothing of a statement stays behind it."""
    made: psycopg.AsyncConnection[Any] = await held_class().connect(
        autocommit=True, prepare_threshold=0 if prepares else None, **arguments
    )
    made.prepared_max = _PREPARED
    # Every whole number travels as one type, so that a statement is prepared once and not once for each size.
    made.adapters.register_dumper(int, importlib.import_module("psycopg.types.numeric").Int8Dumper)
    return made


@cache
def held_class() -> Any:  # noqa: ANN401 - a class over one that may not be installed
    """Return the class of our connections: psycopg's, with what a pool asks of a connection."""
    driver: Any = importlib.import_module("psycopg")
    waiting: Any = importlib.import_module("psycopg.waiting")

    class HeldConnection(driver.AsyncConnection):  # type: ignore[misc]  # its base is known at run time
        async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's own steps
            """Wait for the server. Cancelled, do not wait for the server to hear of that too: it may be frozen, and the
            connection is dropped anyway."""
            options.setdefault("interval", _LOOK_UP)
            return await waiting.wait_async(gen, self.pgconn.socket, *args, **options)

        async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:  # noqa: ANN401 - as psycopg has it
            if params is None:
                # As it is: to prepare BEGIN and COMMIT brings nothing.
                options.setdefault("prepare", False)
            return await driver.AsyncConnection.execute(self, query, params, **options)

        def is_closed(self) -> bool:
            is_closed: bool = self.closed
            return is_closed

        def is_in_transaction(self) -> bool:
            status: int = self.info.transaction_status
            return status != _IDLE

        async def reset(self) -> None:
            """Leave nothing of the application's behind."""
            self.row_factory, self.cursor_factory = driver.rows.tuple_row, driver.AsyncCursor
            await self.execute(RESET)

        def terminate(self) -> None:
            self.pgconn.finish()

        async def close(self, *, timeout: float | None = None) -> None:
            del timeout
            await driver.AsyncConnection.close(self)

    return HeldConnection
