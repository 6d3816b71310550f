"""A worker alone in its process, from its start to a signal.

The first SIGTERM or SIGINT ends it in peace: running steps may end within the worker's `shutdown_timeout`, then its runs are
handed back and the process exits with 0. The second hands back at once and exits with 1. A third does not even hand back:
the runs go on elsewhere once the lease is over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType, MappingProxyType
from typing import Any, Final

from outlast.app import Outlast

logger: Final = logging.getLogger("outlast.serving")

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

LAST_GRACE: Final = 5.0
"""Seconds that handing back may take after the second signal."""


class Signals:
    """What the signals of this process ask for. The handlers run even while a step blocks the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.stop: asyncio.Event = asyncio.Event()
        self.count: int = 0
        self.on_first: Callable[[], object] = self.stop.set
        self.on_second: Callable[[], object] = self.stop.set
        self._loop = loop

    @contextmanager
    def handled(self) -> Generator[None, None, None]:
        """Handle SIGTERM and SIGINT; outside of the main thread, where Python cannot, leave them alone."""
        if threading.current_thread() is not threading.main_thread():
            logger.debug("Not in the main thread: signals are left to whoever handles them there.")
            yield
            return
        former = {number: signal.signal(number, self._arrived) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        # Unbuffered: a handler may interrupt a write, and a buffered one cannot be entered twice.
        os.write(2, f"Got signal {signal.Signals(number).name}.\n".encode())
        match self.count:
            case 1:
                self._loop.call_soon_threadsafe(self.on_first)
            case 2:
                self._loop.call_soon_threadsafe(self.on_second)
                _exit_after(LAST_GRACE)
            case _:
                os._exit(1)


async def work(app: Outlast, announce: Callable[[str], object], options: Mapping[str, Any] = _NOTHING) -> int:
    """Run the application's worker until a signal; return the exit code. `announce` is told when it works. `options`, by
    their names in `WorkerOptions`, take the place of the app's own."""
    chosen = replace(app.worker_options, **options)
    signals = Signals(asyncio.get_running_loop())
    with signals.handled():
        me = asyncio.current_task()
        assert me is not None

        def stop() -> None:
            # What is being opened may swallow a cancellation (asyncio.wait_for does before Python 3.12): that is not all.
            signals.stop.set()
            me.cancel()

        signals.on_first = stop
        try:
            async with app.working(chosen):
                signals.on_first, signals.on_second = signals.stop.set, app.hurry
                announce(f"Database: {app.place}. Workflows: {app.registered}.")
                announce(f"{app!r} works in process {os.getpid()}. SIGTERM or Ctrl-C ends it.")
                await signals.stop.wait()
                announce("Stopping: waiting for running steps, then handing runs back. Once more to hand back at once.")
        except asyncio.CancelledError:
            if signals.count == 0:
                raise
    return 0 if signals.count < 2 else 1


def _exit_after(seconds: float) -> None:
    timer = threading.Timer(seconds, os._exit, args=(1,))
    timer.daemon = True
    timer.start()
