"""Doing things on a loop, and on the thread of Django's async methods behind it, from any other thread."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

T = TypeVar("T")


class Relay:
    """The running loop and the context at this moment, to come back to. The context tells on which thread Django works."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Await something on the loop, from another thread."""
        outcome: Future[T] = Future()

        def begin() -> None:
            self._loop.create_task(make()).add_done_callback(end)

        def end(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        self._loop.call_soon_threadsafe(begin, context=self._context.copy())
        return outcome

    def work(self, work: Callable[[], object]) -> object:
        """Call a function on the thread on which Django works, and return what it returns."""
        value, error = self.submit(partial(sync_to_async(_outcome), work)).result()
        if error is not None:
            raise error
        return value


def _outcome(work: Callable[[], object]) -> tuple[object, BaseException | None]:
    # A coroutine may not raise everything that a function may, such as StopIteration.
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - it is raised where the function was asked for
        return None, error
