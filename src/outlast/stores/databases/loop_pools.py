"""A pool for each event loop, made when the loop first needs it, so one road serves any number of loops and threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from outlast.stores.databases.held_pool import Held, HeldPool

C = TypeVar("C", bound=Held)


class LoopPools(Generic[C]):
    """The pools by their loops. A pool is closed on its own loop alone: by whoever closes these, or when the loop ends.

    A pool stays until one of the two: what came back to a forgotten one would be closed by nobody.
    Held by tests/contract/test_loops.py.
    """

    def __init__(self, connect: Callable[[], Awaitable[C]], limit: int) -> None:
        self._connect = connect
        self._limit = limit
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._pools: dict[asyncio.AbstractEventLoop, HeldPool[C]] = {}
        self._inherited: list[object] = []

    def here(self) -> HeldPool[C]:
        """Return the running loop's pool."""
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._begin_anew()
        with self._lock:
            pool = self._pools.get(loop)
            if pool is None:
                self._forget_ended()
                pool = self._pools[loop] = HeldPool(self._connect, self._limit)
            return pool

    async def close(self) -> None:
        """Close the running loop's pool. On other loops what is idle is dropped, and what is in use goes on."""
        if self._pid != os.getpid():
            self._begin_anew()
        with self._lock:
            mine = self._pools.pop(asyncio.get_running_loop(), None)
            others = list(self._pools.items())
        for loop, pool in others:
            with contextlib.suppress(RuntimeError):  # the loop has ended, maybe this moment
                loop.call_soon_threadsafe(pool.drop_idle)
        if mine is not None:
            await mine.close()

    def _begin_anew(self) -> None:
        """After a fork: the connections are the parent's, kept so that nothing is sent on them, not even a farewell; and a
        thread of the parent may have had the lock."""
        self._inherited.append(self._pools)
        self._pools, self._lock = {}, threading.Lock()
        self._pid = os.getpid()

    def _forget_ended(self) -> None:
        """A pool refers to its loop, which would else stay for as long as these do."""
        self._pools = {loop: pool for loop, pool in self._pools.items() if not loop.is_closed()}
