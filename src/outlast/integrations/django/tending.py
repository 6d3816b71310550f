"""The connections of Django's async methods in a worker. No request ends there, so nobody else looks after them."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from asgiref.sync import sync_to_async
from django.db import Error, connections

logger: Final = logging.getLogger("outlast.django")

_PAUSE: Final = 1.0


class Tending:
    """Replaces broken connections while a worker runs, and closes them with it. Steps that await Django's methods share one
    thread, and with it one connection for each alias."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Look now and then, from now on. On the worker's loop."""
        self._task = asyncio.create_task(self._run(), name="outlast-django")

    async def end(self) -> None:
        """Look no more, and close what is open."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        await sync_to_async(close_idle)()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE)
            await sync_to_async(mend)()


def mend() -> None:
    """Close this thread's connections that an error has made useless; the next query makes new ones.

    Age does not matter here: a step may be in the middle of reading.
    """
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred and not connection.in_atomic_block:
            if connection.connection is not None and connection.is_usable():
                connection.errors_occurred = False
                continue
            try:
                connection.close()
            except Error:
                logger.debug("A broken connection could not be closed.", exc_info=True)


def close_idle() -> None:
    """Close this thread's connections, but for one with a transaction open: it is somebody else's, such as a test's."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
