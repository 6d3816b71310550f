"""Transactional attempts on the running loop, over a database and an application that only note what is asked of them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from outlast.engine.decision import StepCall
from outlast.model.ids import RunId
from outlast.ports.store import Batch, FlushOutcome
from outlast.ports.transactions import Transactions
from outlast.worker.certainty import Certainty
from outlast.worker.granting import Asking, Grant
from outlast.worker.steps import Attempt, Ending, Steps
from outlast.worker.transactional import TransactionalSteps
from support.worker_fakes import LEASE, FakeStep, in_callback, record, until

ENTRY = record(0, "pay")


class FakeDatabase:
    """Notes what is asked, and answers a flush and the question after it as the test says."""

    def __init__(self, log: list[str]) -> None:
        self._log = log
        self.store = self
        self.flush_answer: FlushOutcome | Exception = FlushOutcome()
        self.asked_answers: list[bool | Exception] = []
        self.conflicts: list[BaseException] = []
        """Errors that say that others were in the way."""
        self.goes_on = threading.Event()
        """Set unless a test wants what is written to take its time."""
        self.goes_on.set()

    def is_conflict(self, error: BaseException) -> bool:
        return error in self.conflicts

    def flush(self, *_: object) -> FlushOutcome | Exception:
        return self.flush_answer

    def flushed(self, *_: object) -> bool | Exception:
        return self.asked_answers.pop(0)

    async def mark(self, tx: object) -> None:
        self._log.append(f"mark {tx}")

    def mark_blocking(self, tx: object) -> None:
        self._log.append(f"mark {tx}")

    async def join_marked(self, tx: object, make: Callable[[], Any]) -> Any:
        self._log.append(f"write in {tx}")
        await until(self.goes_on.is_set)
        return _answered(make())

    def join_marked_blocking(self, tx: object, make: Callable[[], Any]) -> Any:
        self._log.append(f"write in {tx}")
        self.goes_on.wait()
        return _answered(make())

    async def run(self, make: Callable[[], Any], *, patience: float) -> Any:
        self._log.append("ask")
        return _answered(make())


def _answered(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


class Bench:
    """Transactional steps on the running loop, what they do in order, and what is reported of them."""

    def __init__(self, *, is_blocking: bool, **facts: bool) -> None:
        self.log: list[str] = []
        self.database = FakeDatabase(self.log)
        self.is_blocking = is_blocking
        loop, context = asyncio.get_running_loop(), contextvars.Context()
        self.steps = Steps(loop, context, Certainty(is_needed=False), threads=3)
        source: Any = {"blocking": self._blocking} if is_blocking else {"awaiting": self._awaiting}
        self.gives(**source, **{"is_sure": True, **facts})
        self.reports: asyncio.Queue[Ending] = asyncio.Queue()
        self.asking: asyncio.Queue[Asking] = asyncio.Queue()
        self.is_lost = False

    def gives(self, *, is_sure: bool = True, **facts: Any) -> None:
        """Have the application give such transactions from now on."""
        given = Transactions(is_sure=is_sure, **facts)
        self.room = TransactionalSteps(self.database, given, self.steps, look=lambda: self.log.append("look"))  # type: ignore[arg-type]

    @contextmanager
    def _blocking(self) -> Generator[str]:
        self.log.append("begin")
        try:
            yield "tx"
        except BaseException:
            self.log.append("roll back")
            raise
        self.log.append("commit")

    @asynccontextmanager
    async def _awaiting(self) -> AsyncGenerator[str]:
        with self._blocking() as tx:
            yield tx

    def call(self, inner: Callable[[], object] = lambda: None, name: str = "pay", **options: Any) -> StepCall:
        def blocking(tx: str) -> object:
            self.log.append(f"{name} in {tx}")
            return inner()

        async def awaiting(tx: str) -> object:
            value: Any = blocking(tx)
            return await value if asyncio.iscoroutine(value) else value

        invoke = blocking if self.is_blocking else awaiting
        return FakeStep(name).call(invoke, is_async=not self.is_blocking, is_transactional=True, **options)

    async def begin(self, call: StepCall) -> Attempt:
        begun: list[Attempt] = []

        def perform() -> None:
            begun.append(self.room.perform(RunId("r1"), call, lambda _, end: self.reports.put_nowait(end), self._ask))

        await in_callback(perform)
        return begun[0]

    def _ask(self, asking: Asking, _: object) -> None:
        self.asking.put_nowait(asking)

    async def grant(self) -> None:
        asking = await self.asking.get()
        grant = Grant(RunId("r1"), LEASE, Batch(records=((RunId("r1"), ENTRY),)), ENTRY, self._lose, self._give_back)
        await in_callback(lambda: asking.grant(grant))

    def _lose(self) -> None:
        self.is_lost = True

    def _give_back(self) -> None:
        self.log.append("give back")


@contextmanager
def bench(*, is_blocking: bool, **facts: bool) -> Generator[Bench]:
    made = Bench(is_blocking=is_blocking, **facts)
    try:
        yield made
    finally:
        made.steps.close()


both = pytest.mark.parametrize("is_blocking", [False, True], ids=["awaited", "blocking"])
