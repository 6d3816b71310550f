"""LISTEN on a connection of its own, which comes back by itself."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias

from outlast.ports.database import Notice

_log = logging.getLogger("outlast.database")
_FIRST_DELAY: Final = 0.05
_LONGEST_DELAY: Final = 5.0
_SWALLOWED: Final = 0.5
"""Seconds after which a cancellation has been swallowed."""

Ear: TypeAlias = Callable[[str, Notice], AbstractAsyncContextManager[Callable[[], Awaitable[object]]]]
"""Connects and listens to a channel; entered once it does, for a function whose result is awaited until it is cut off."""


class Notifications:
    """Hears what other processes say in the statements that make work.

    What was said while the connection was away is lost, so after each return it calls "ready" and "stop" itself.
    """

    def __init__(self, ear: Ear, channel: str) -> None:
        self._ear = ear
        self._channel = channel
        self._task: asyncio.Task[None] | None = None
        self._pid = os.getpid()

    async def listen(self, notice: Notice) -> None:
        await self.close()
        self._pid = os.getpid()
        listening = asyncio.Event()
        self._task = asyncio.create_task(self._keep_listening(notice, listening.set), name="outlast-listen")
        # Done when it listens, or when that has to wait for the database; the poll covers the time between.
        listened = asyncio.create_task(listening.wait())
        await asyncio.wait([listened, self._task], timeout=2, return_when=asyncio.FIRST_COMPLETED)
        listened.cancel()

    async def close(self) -> None:
        if self._pid != os.getpid():
            # After a fork: the task and its loop are the parent's.
            self._task = None
        task, self._task = self._task, None
        while task is not None and not task.done():
            # More than once: psycopg's notifies() may swallow a cancellation that comes while it reads.
            task.cancel()
            await asyncio.wait([task], timeout=_SWALLOWED)

    async def _keep_listening(self, notice: Notice, listening: Callable[[], None]) -> None:
        delay = _FIRST_DELAY
        is_return = False
        while True:
            try:
                async with self._ear(self._channel, notice) as until_lost:
                    listening()
                    if is_return:
                        notice("ready")
                        notice("stop")
                    is_return, delay = True, _FIRST_DELAY
                    await until_lost()
            except Exception as error:  # noqa: BLE001 - whatever it is, the poll finds work and listening is tried again
                _log.info(
                    "Not listening for wake-ups: %s: %s; trying again in %.2f s.", type(error).__name__, error, delay
                )
                is_return = True
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY)


def asyncpg_ear(connect: Callable[[], Awaitable[Any]]) -> Ear:
    """Return how asyncpg listens: it calls back as it reads."""

    @asynccontextmanager
    async def listening(channel: str, notice: Notice) -> AsyncGenerator[Callable[[], Awaitable[object]]]:
        connection = await connect()
        try:
            lost = asyncio.Event()

            def end(_connection: object) -> None:
                lost.set()

            def hear(_connection: object, _pid: int, _channel: str, said: object) -> None:
                notice(str(said))

            connection.add_termination_listener(end)
            await connection.add_listener(channel, hear)
            yield lost.wait
        finally:
            connection.terminate()

    return listening


def psycopg_ear(connect: Callable[[], Awaitable[Any]]) -> Ear:
    """Return how psycopg listens: somebody has to read."""

    @asynccontextmanager
    async def listening(channel: str, notice: Notice) -> AsyncGenerator[Callable[[], Awaitable[object]]]:
        connection = await connect()

        async def read() -> None:
            async for said in connection.notifies():
                notice(said.payload)

        try:
            await connection.execute(f'LISTEN "{channel}"')
            yield read
        finally:
            connection.terminate()

    return listening
