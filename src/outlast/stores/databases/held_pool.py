"""Connections of one event loop, held open, used last in, first out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from outlast.errors import DatabaseUnavailable


class Held(Protocol):
    """What the pool asks of a driver's connection."""

    def is_closed(self) -> bool:
        """Tell whether it can serve no more."""
        ...

    def terminate(self) -> None:
        """Break it, without a word to the server."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:
        """Take leave of the server."""
        ...


C = TypeVar("C", bound=Held)


class HeldPool(Generic[C]):
    """At most `limit` connections. Nothing is sent to a connection between two uses: each use leaves it clean.

    It closes with its loop, also when nobody closes it: the loop ends the asynchronous generators it has seen.
    """

    def __init__(self, connect: Callable[[], Awaitable[C]], limit: int) -> None:
        self._connect = connect
        self._room = asyncio.Semaphore(limit)
        self._idle: list[C] = []
        self._is_closed = False
        self._end: AsyncGenerator[None, None] | None = None
        self._connecting: set[asyncio.Future[C]] = set()

    async def take(self) -> C:
        """Return a connection of the caller's own, to be given back or dropped."""
        if self._end is None and not self._is_closed:
            self._end = self._closed_with_loop()
            await anext(self._end)
        await self._room.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            if self._is_closed:
                raise DatabaseUnavailable("The database was closed.")
        except BaseException:
            self._room.release()
            raise
        return await self._connected()

    async def _connected(self) -> C:
        """Return a new connection. When its caller goes away meanwhile, it is finished for the next one: a driver that is
        cut short while it connects leaves a future behind, of which asyncio complains in the log."""
        connecting = asyncio.ensure_future(self._connect())
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            self._connecting.add(connecting)
            connecting.add_done_callback(self._keep)
            raise
        except BaseException:
            self._room.release()
            raise

    def _keep(self, connecting: asyncio.Future[C]) -> None:
        self._connecting.discard(connecting)
        if connecting.cancelled() or connecting.exception() is not None:
            self._room.release()
        else:
            self.give(connecting.result())

    def give(self, connection: C) -> None:
        """Take back a connection that has no transaction open."""
        if self._is_closed:
            connection.terminate()
        else:
            self._idle.append(connection)
        self._room.release()

    def drop(self, connection: C) -> None:
        """Take back a connection that nothing is known about any more; the server rolls back what was open."""
        connection.terminate()
        self._room.release()

    def drop_idle(self) -> None:
        """Forget the connections that wait for use: one was found broken, so they probably are too."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    async def close(self) -> None:
        """Take leave of the server. What is in use is broken off when it is given back."""
        self._is_closed = True
        end, self._end = self._end, None
        if end is not None:
            await end.aclose()

    async def _closed_with_loop(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._is_closed = True
            idle, self._idle = self._idle, []
            try:
                for connection in idle:
                    with contextlib.suppress(Exception):
                        await connection.close(timeout=2)
            finally:
                # Should whoever closes go away meanwhile.
                for connection in idle:
                    connection.terminate()
