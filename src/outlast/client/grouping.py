"""Group commit for callers: one operation in flight, and whatever is asked for meanwhile goes into the next."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from outlast.errors import DatabaseUnavailable, SchemaBehind

Q = TypeVar("Q")
A = TypeVar("A")


class Grouped(Generic[Q, A]):
    """Answer single questions with grouped operations, on one event loop.

    A lone question is asked at once: nothing waits for company, only for the operation in flight. A caller that goes away
    takes its question back if it has not been asked yet, and changes nothing for the others.
    """

    def __init__(self, perform: Callable[[Sequence[Q]], Awaitable[Sequence[A]]], *, most: int) -> None:
        """`perform` answers at most `most` questions, in their order."""
        self._perform = perform
        self._most = most
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A:
        """Return the answer, or raise what its operation raised."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._task is None:
            # An empty context: this task outlives the caller, whose variables are no business of the callers after it.
            self._task = asyncio.create_task(self._work(), name="outlast-client", context=contextvars.Context())
        return await answer

    async def close(self) -> None:
        """Wait until everything that was asked is answered."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        try:
            while group := self._next_group():
                await self._answer(group)
                # Callers that go on in this pass of the loop ask again before the next group is taken.
                await asyncio.sleep(0)
        finally:
            self._task = None

    def _next_group(self) -> list[tuple[Q, asyncio.Future[A]]]:
        wanted = [(question, answer) for question, answer in self._waiting if not answer.done()]
        group, self._waiting = wanted[: self._most], wanted[self._most :]
        return group

    async def _answer(self, group: list[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._perform([question for question, _ in group])
            told = list(zip(group, answers, strict=True))
        except (DatabaseUnavailable, SchemaBehind) as error:
            _fail(group, error)
        except Exception as error:  # noqa: BLE001 -- it goes to whoever asked
            if len(group) == 1:
                _fail(group, error)
            else:
                # One question that the database refuses must not take its neighbours with it.
                for one in group:
                    await self._answer([one])
        except BaseException:
            # The loop is ending (or this task was cancelled with it): nobody may be left waiting.
            for _, answer in group + self._waiting:
                answer.cancel()
            raise
        else:
            for (_, answer), value in told:
                if not answer.done():
                    answer.set_result(value)


def _fail(group: list[tuple[Q, asyncio.Future[A]]], error: Exception) -> None:
    for _, answer in group:
        if not answer.done():
            answer.set_exception(error)
