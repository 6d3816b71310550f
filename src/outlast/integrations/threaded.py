"""A worker on a thread, for processes whose main thread belongs to a framework that does not await."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final

from outlast.app import Outlast

logger: Final = logging.getLogger("outlast.worker")


class WorkerThread:
    """A worker that begins when this is made, and hands its runs back when it is told to stop or the process exits.

    within: entered on the thread, around all that the worker does; what it sets in contextvars is what steps see.
    """

    def __init__(
        self, app: Outlast, *, within: Callable[[], AbstractContextManager[object]] = nullcontext[None]
    ) -> None:
        self._app = app
        self._within = within
        self._lock = threading.Lock()
        self._is_told = False
        self._cancel: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._run, name="outlast-worker", daemon=True)
        self._pid = os.getpid()
        self._thread.start()
        _working.add(self)

    @property
    def is_alive(self) -> bool:
        """False when it has ended: it was told to, or could not begin, which the log tells."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Hand over as a deploy does, and return when that is done. May be called again.

        Does nothing in the child of a fork: the thread is the parent's.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            self._is_told = True
            if self._cancel is not None:
                self._cancel()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._within(), suppress(asyncio.CancelledError):
                asyncio.run(self._work())
        except Exception:
            logger.exception("The worker on a thread of this process has ended.")

    async def _work(self) -> None:
        loop, task, told = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
        assert task is not None

        def stop() -> None:
            # What is being opened may swallow a cancellation (asyncio.wait_for does before Python 3.12): that is not all.
            told.set()
            task.cancel()

        with self._lock:
            if self._is_told:
                return
            self._cancel = lambda: loop.call_soon_threadsafe(stop)
        try:
            async with self._app.working():
                await told.wait()
        finally:
            with self._lock:
                self._cancel = None


_working: Final = weakref.WeakSet[WorkerThread]()


def _stop_all() -> None:
    for thread in list(_working):
        thread.stop()


# Called when the main thread has ended, while others can still be started: handing back needs some, and at `atexit` there
# are none any more. Python has that moment for its own pools; should it go, runs that were not handed back go on elsewhere
# when the lease is over. Held by tests/e2e/test_flask_servers.py.
_at_exit: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
_at_exit(_stop_all)
