"""Group commit for callers: one operation in flight, and whatever is asked for meanwhile goes into the next.

What waits for another transaction, as a start of an id that a caller has started and not committed, waits beside the others.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from outlast.errors import DatabaseBusy, DatabaseUnavailable, SchemaBehind

Q = TypeVar("Q")
A = TypeVar("A")
Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)

_BESIDE: Final = 4
"""Operations that wait for other transactions at once: each has a connection meanwhile."""


class Perform(Protocol[Q_contra, A_co]):
    """Answers questions, in their order. Raises DatabaseBusy at once, unless it `waits`, when another transaction is in the
    way."""

    def __call__(self, questions: Sequence[Q_contra], /, *, waits: bool) -> Awaitable[Sequence[A_co]]: ...


class Grouped(Generic[Q, A]):
    """Answer single questions with grouped operations, on one event loop.

    A lone question is asked at once: nothing waits for company, only for the operation in flight. A caller that goes away
    takes its question back if it has not been asked yet, and changes nothing for the others.
    """

    def __init__(self, perform: Perform[Q, A], *, most: int) -> None:
        """`perform` answers at most `most` questions."""
        self._perform = perform
        self._most = most
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._few = asyncio.Semaphore(_BESIDE)

    async def ask(self, question: Q) -> A:
        """Return the answer, or raise what its operation raised."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._task is None:
            self._task = _begun(self._work())
        return await answer

    async def close(self) -> None:
        """Wait until everything that was asked is answered."""
        while tasks := {*self._beside, *([self._task] if self._task else [])}:
            await asyncio.wait(tasks)

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

    async def _answer(self, group: list[tuple[Q, asyncio.Future[A]]], *, waits: bool = False) -> None:
        try:
            answers = await self._perform([question for question, _ in group], waits=waits)
            told = list(zip(group, answers, strict=True))
        except DatabaseBusy as error:
            if waits:
                _fail(group, error)
            elif len(group) == 1:
                self._go_beside(self._wait(group))
            else:
                for lane in range(_BESIDE):
                    self._go_beside(self._singly(group[lane::_BESIDE]))
        except (DatabaseUnavailable, SchemaBehind) as error:
            _fail(group, error)
        except Exception as error:  # noqa: BLE001 -- it goes to whoever asked
            if len(group) == 1:
                _fail(group, error)
            else:
                # One question that the database refuses must not take its neighbours with it.
                await self._singly(group)
        except BaseException:
            # The loop is ending (or this task was cancelled with it): nobody may be left waiting.
            for _, answer in group + self._waiting:
                answer.cancel()
            raise
        else:
            for (_, answer), value in told:
                if not answer.done():
                    answer.set_result(value)

    def _go_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = _begun(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _singly(self, group: list[tuple[Q, asyncio.Future[A]]]) -> None:
        for one in group:
            await self._answer([one])

    async def _wait(self, group: list[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            async with self._few:
                await self._answer(group, waits=True)
        except asyncio.CancelledError:
            for _, answer in group:
                answer.cancel()
            raise


def _begun(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    # An empty context: the task outlives the caller, whose variables are no business of the callers after it.
    return asyncio.create_task(work, name="outlast-client", context=contextvars.Context())


def _fail(group: list[tuple[Q, asyncio.Future[A]]], error: Exception) -> None:
    for _, answer in group:
        if not answer.done():
            answer.set_exception(error)
