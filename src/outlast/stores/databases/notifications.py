"""LISTEN on a connection of its own, which comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from outlast.ports.database import Notice
from outlast.stores.databases.asyncpg_pool import Connect

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

_log = logging.getLogger("outlast.database")
_FIRST_DELAY: Final = 0.05
_LONGEST_DELAY: Final = 5.0


class Notifications:
    """Hears what other processes say in the statements that make work.

    What was said while the connection was away is lost, so after each return it calls "ready" and "stop" itself.
    """

    def __init__(self, connect: Connect, channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._task: asyncio.Task[None] | None = None

    async def listen(self, notice: Notice) -> None:
        await self.close()
        listening = asyncio.Event()
        self._task = asyncio.create_task(self._keep_listening(notice, listening.set), name="outlast-listen")
        # Done when it listens, or when that has to wait for the database; the poll covers the time between.
        listened = asyncio.create_task(listening.wait())
        await asyncio.wait([listened, self._task], timeout=2, return_when=asyncio.FIRST_COMPLETED)
        listened.cancel()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _keep_listening(self, notice: Notice, listening: Callable[[], None]) -> None:
        delay = _FIRST_DELAY
        is_return = False
        while True:
            try:
                connection = await self._connect()
                try:
                    lost = asyncio.Event()
                    await self._add(connection, notice, lost)
                    listening()
                    if is_return:
                        notice("ready")
                        notice("stop")
                    is_return, delay = True, _FIRST_DELAY
                    await lost.wait()
                finally:
                    connection.terminate()
            except Exception as error:  # noqa: BLE001 - whatever it is, the poll finds work and listening is tried again
                _log.info(
                    "Not listening for wake-ups: %s: %s; trying again in %.2f s.", type(error).__name__, error, delay
                )
                is_return = True
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY)

    async def _add(self, connection: Connection, notice: Notice, lost: asyncio.Event) -> None:
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(self._channel, lambda _connection, _pid, _channel, payload: notice(str(payload)))
