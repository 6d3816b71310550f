"""Group commit for callers: one operation in flight, and whatever is asked for meanwhile goes into the next.

What waits for another transaction, as a start of an id that a caller has started and not committed, waits beside the others.
A group is asked without waiting for any, and refused when one of it would have to. Then its parts are asked, and theirs, so
that the others are answered in the time of a few statements. Held by tests/faults/test_held_starts.py.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from outlast.errors import DatabaseBusy, DatabaseUnavailable, SchemaBehind
from outlast.ports.database import HeldUp

Q = TypeVar("Q")
A = TypeVar("A")
Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)

_Group: TypeAlias = list[tuple[Q, asyncio.Future[A]]]

_BESIDE: Final = 4
"""Operations that wait for other transactions at once, and parts that are asked at once: each has a connection meanwhile."""

_PATIENCE: Final = 30.0
_PAUSE: Final = 0.01


class Perform(Protocol[Q_contra, A_co]):
    """Answers questions, in their order. Raises HeldUp when another transaction is in the way: at once, or, if it `waits`,
    when the database has waited for that transaction as long as one statement may."""

    def __call__(self, questions: Sequence[Q_contra], /, *, waits: bool) -> Awaitable[Sequence[A_co]]: ...


class Grouped(Generic[Q, A]):
    """Answer single questions with grouped operations, on one event loop.

    A lone question is asked at once: nothing waits for company, only for the operation in flight. A caller that goes away
    takes its question back if it has not been asked yet, and changes nothing for the others.
    """

    def __init__(self, perform: Perform[Q, A], *, most: int, patience: float = _PATIENCE) -> None:
        """`perform` answers at most `most` questions. One that others are in the way of waits for `patience` seconds."""
        self._perform = perform
        self._most = most
        self._patience = patience
        self._waiting: _Group[Q, A] = []
        self._task: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._parts: deque[_Group[Q, A]] = deque()
        self._askers = 0
        """Tasks that ask the parts."""
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

    def _next_group(self) -> _Group[Q, A]:
        wanted = [(question, answer) for question, answer in self._waiting if not answer.done()]
        group, self._waiting = wanted[: self._most], wanted[self._most :]
        return group

    async def _answer(self, group: _Group[Q, A]) -> None:
        try:
            await self._ask(group, waits=False)
        except HeldUp:
            if len(group) == 1:
                self._go_beside(self._wait(group))
            else:
                self._part(group)
        except (DatabaseUnavailable, SchemaBehind) as error:
            _fail(group, error)
        except Exception as error:  # noqa: BLE001 -- it goes to whoever asked
            if len(group) == 1:
                _fail(group, error)
            else:
                # One question that the database refuses must not take its neighbours with it.
                for one in group:
                    await self._answer([one])

    async def _ask(self, group: _Group[Q, A], *, waits: bool) -> None:
        try:
            answers = await self._perform([question for question, _ in group], waits=waits)
        except Exception:
            raise
        except BaseException:
            # The loop is ending (or this task was cancelled with it): nobody may be left waiting.
            for left in (group, self._waiting, *self._parts):
                _drop(left)
            raise
        for (_, answer), value in list(zip(group, answers, strict=True)):
            if not answer.done():
                answer.set_result(value)

    def _part(self, group: _Group[Q, A]) -> None:
        """Have the parts of a group asked, after those that are to be asked already."""
        self._parts.extend(part for at in range(_BESIDE) if (part := group[at::_BESIDE]))
        while self._askers < min(_BESIDE, len(self._parts)):
            self._askers += 1
            self._go_beside(self._ask_parts())

    async def _ask_parts(self) -> None:
        try:
            while self._parts:
                await self._answer(self._parts.popleft())
        finally:
            self._askers -= 1

    def _go_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = _begun(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _wait(self, group: _Group[Q, A]) -> None:
        """Ask a lone question until it is answered, for as long as anybody waits. With many that wait each has its turn."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        try:
            while not group[0][1].done():
                try:
                    async with self._few:
                        await self._ask(group, waits=True)
                except HeldUp as error:
                    if loop.time() >= until:
                        told = DatabaseBusy(f"Other transactions were in the way for {self._patience:g} s: {error}")
                        told.__cause__ = error
                        _fail(group, told)
                    await asyncio.sleep(_PAUSE)
        except Exception as error:  # noqa: BLE001 -- it goes to whoever asked
            _fail(group, error)
        except asyncio.CancelledError:
            _drop(group)
            raise


def _begun(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    # An empty context: the task outlives the caller, whose variables are no business of the callers after it.
    return asyncio.create_task(work, name="outlast-client", context=contextvars.Context())


def _fail(group: _Group[Q, A], error: Exception) -> None:
    for _, answer in group:
        if not answer.done():
            answer.set_exception(error)


def _drop(group: _Group[Q, A]) -> None:
    for _, answer in group:
        answer.cancel()
