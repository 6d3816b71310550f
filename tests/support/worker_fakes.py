"""Stand-ins for what a worker works with: a database that answers when a test lets it, and an engine that is a script."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from outlast.engine.decision import Parked, Progress, RunFacts, State, StepCall, Working
from outlast.model.ids import RunId, WorkerId
from outlast.model.journal import Kind, Phase, Record
from outlast.model.options import OnCancel, Retry
from outlast.model.run import Status, Stop
from outlast.model.signal import StoredSignal
from outlast.ports.store import Batch, Claim, ClaimedRun, ClaimRequest, FlushOutcome, Lease, Reaped, Renewal
from outlast.ports.transactions import Transactions
from outlast.worker.bodies import Bodies
from outlast.worker.databasetime import DatabaseTime
from outlast.worker.granting import Ask, Grant
from outlast.worker.parked import ParkedRuns
from outlast.worker.steps import Ending, Report
from outlast.worker.workplace import Workplace

LEASE = Lease(WorkerId("w-1"), 1)


def record(seq: int, name: str = "a", kind: Kind = Kind.STEP) -> Record:
    return Record(seq, kind, Phase.DONE, name)


@dataclass
class FakeStep:
    """A step's function that ends when the test says so, and what the engine is told about it."""

    name: str
    flags: list[str] = field(default_factory=list[str])

    def call(
        self,
        invoke: Callable[..., Any] = lambda: None,
        *,
        is_async: bool = True,
        timeout: timedelta | None = None,
        on_cancel: OnCancel = "finish",
        is_transactional: bool = False,
    ) -> StepCall:
        return StepCall(
            name=self.name,
            kind=Kind.STEP,
            attempt=1,
            invoke=invoke,
            is_async=is_async,
            timeout=timeout,
            on_cancel=on_cancel,
            stop_flag=lambda: self.flags.append("stop"),
            is_transactional=is_transactional,
        )


def progress(
    state: State | None = None,
    *,
    records: Sequence[Record] = (),
    calls: Sequence[StepCall] = (),
    status: Status = Status.RUNNING,
    custom_status: str | None = None,
) -> Progress:
    return Progress(tuple(records), tuple(calls), state or Working(None), status, custom_status)


PARKED = Parked(Status.SUSPENDED, None, ())


class ScriptedExecution:
    """Answers each `run` with the next item of a script; an exception in it is raised."""

    def __init__(self, *script: Progress | Exception) -> None:
        self._script = deque(script)
        self.told: list[tuple[Any, ...]] = []
        self.is_closed = False

    def will(self, *more: Progress | Exception) -> None:
        self._script.extend(more)

    def resume(
        self,
        *,
        signals: Sequence[StoredSignal] = (),
        topics: Collection[str] | None = None,
        read_at: int | None = None,
        stop: Stop | None = None,
        lapses: int = 0,
    ) -> None:
        self.told.append(("resume", tuple(signals), stop, lapses))

    def run(self) -> Progress:
        answer = self._script.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def step_returned(self, call: StepCall, value: object) -> None:
        self.told.append(("returned", call.name, value))

    def step_raised(self, call: StepCall, error: BaseException) -> None:
        self.told.append(("raised", call.name, error))

    def step_given_back(self, call: StepCall) -> None:
        self.told.append(("given back", call.name))

    def step_settled(self, call: StepCall, value: object) -> Record:
        if isinstance(value, Exception):
            raise value
        self.told.append(("settled", call.name, value))
        return record(99, call.name)

    def step_recorded(self, call: StepCall) -> None:
        self.told.append(("recorded", call.name))

    def request_stop(self, stop: Stop) -> None:
        self.told.append(("stop", stop))

    def close(self) -> None:
        self.is_closed = True


class FakeAttempt:
    """An attempt that ends when the test says so."""

    def __init__(self, call: StepCall, report: Report, ask: Ask | None = None) -> None:
        self.call = call
        self._report = report
        self._ask = ask
        self.told: list[str] = []
        self.is_heard = True
        self.granted: Grant | None = None
        self.refused: BaseException | None = None

    def end(self, ending: Ending) -> None:
        self._report(self.call, ending)

    def settle(self, value: object = None) -> None:
        """Ask to commit, as a transactional attempt does when its function has returned."""
        assert self._ask is not None
        self._ask(self, value)

    def grant(self, grant: Grant) -> None:
        self.granted = grant

    def refuse(self, error: BaseException) -> None:
        self.refused = error

    def request_stop(self) -> None:
        self.told.append("stop")

    def cut(self) -> None:
        self.told.append("cut")

    def drop(self) -> None:
        self.told.append("drop")


class FakeSteps:
    """Begins attempts that do nothing; `attempts` by the step's name, in the order they were begun."""

    def __init__(self) -> None:
        self.attempts: dict[str, FakeAttempt] = {}

    def perform(self, run_id: RunId, call: StepCall, report: Report, ask: Ask | None = None) -> FakeAttempt:
        self.attempts[call.name] = attempt = FakeAttempt(call, report, ask)
        return attempt

    def current(self) -> None: ...

    def close(self) -> None: ...


class FakeTimer:
    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakePlace:
    """The part of a workplace that a turn uses, without a loop."""

    def __init__(self) -> None:
        self.steps = self.transactional = FakeSteps()
        self.timers: list[tuple[float, FakeTimer]] = []
        self.is_stopping = False
        self.driving: RunId | None = None

    def call_later(self, seconds: float, look: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(look)
        self.timers.append((seconds, timer))
        return timer

    def call_at(self, at: int, look: Callable[[], None]) -> FakeTimer:
        return self.call_later(at, look)

    def hold_until(self, run_id: RunId) -> int:
        return 30_000_000


class FakeStore:
    """Verbs that return what was asked, for `FakeDatabase` to answer."""

    def __getattr__(self, verb: str) -> Callable[..., tuple[str, tuple[Any, ...]]]:
        return lambda *args, **options: (verb, args)


@dataclass
class Asked:
    """One operation that waits for the test to answer it."""

    verb: str
    args: tuple[Any, ...]
    answer: asyncio.Future[Any]

    @property
    def batch(self) -> Batch:
        batch = self.args[1]
        assert isinstance(batch, Batch)
        return batch

    @property
    def request(self) -> ClaimRequest:
        request = self.args[0]
        assert isinstance(request, ClaimRequest)
        return request


class FakeDatabase:
    """Answers operations: by `answers[verb]` (a value, an exception or a function) at once, otherwise when `next_asked` is
    answered by the test."""

    def __init__(self, **answers: object) -> None:
        self.store = FakeStore()
        self.transactions = Transactions()
        self.answers: dict[str, Any] = {
            "register": Lease(WorkerId("w-1"), 1),
            "renew": Renewal(0, ()),
            "reap": Reaped(0),
            "retire": 0,
            "disown": 0,
            "retry_held": 0,
            **answers,
        }
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self.notice: Callable[[str], None] | None = None
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()

    async def run(self, make: Callable[[], Any], *, repeatable: bool = True, patience: float = 30.0) -> Any:
        verb, args = make()
        self.log.append((verb, args))
        if verb in self.answers:
            answer = self.answers[verb]
            if callable(answer):
                answer = answer(*args)
            if isinstance(answer, BaseException):
                raise answer
            return answer
        asked = Asked(verb, args, asyncio.get_running_loop().create_future())
        self._asked.put_nowait(asked)
        return await asked.answer

    async def next_asked(self, verb: str) -> Asked:
        """Return the next operation that waits for an answer."""
        asked = await self._asked.get()
        assert asked.verb == verb, asked
        return asked

    @property
    def is_quiet(self) -> bool:
        """True when no operation waits for an answer."""
        return self._asked.empty()

    async def listen(self, notice: Callable[[str], None]) -> None:
        self.notice = notice

    def separate(self) -> FakeDatabase:
        other = FakeDatabase(**self.answers)
        other.log = self.log
        return other

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def asked_for(self, verb: str) -> list[tuple[Any, ...]]:
        return [args for asked, args in self.log if asked == verb]


async def until(is_so: Callable[[], object]) -> None:
    """Let the loop pass until something is so."""
    while not is_so():  # noqa: ASYNC110  what is waited for has no event
        await asyncio.sleep(0)


async def passes(count: int = 10) -> None:
    """Let the loop pass some times, so that whatever is ready happens."""
    for _ in range(count):
        await asyncio.sleep(0)


def claimed(run_id: str, *, turns: int = 1, records: tuple[Record, ...] | None = (), **facts: object) -> ClaimedRun:
    given: dict[str, Any] = {
        "workflow": "w", "version": 1, "status": Status.RUNNING, "input": "null", "custom_status": None,
        "created_at": 0, "started_at": 0, "deadline_at": None, "signal_cursor": 0, "lapses": 0, "stop": None,
        "signals": (), **facts,
    }  # fmt: skip
    return ClaimedRun(id=RunId(run_id), turns=turns, records=records, **given)


def claim(*runs: ClaimedRun, now: int = 0, next_due: int | None = None, passed_by: bool = False) -> Claim:
    return Claim(tuple(runs), now, next_due, passed_by)


def flushed(*, started: Sequence[str] = (), lost: Sequence[str] = (), ready: Sequence[str] = ()) -> FlushOutcome:
    return FlushOutcome(
        tuple(map(RunId, started)), 0, 0, tuple(map(RunId, lost)), tuple(map(RunId, ready))
    )  # fmt: skip


def in_callback(function: Callable[[], object]) -> Coroutine[Any, Any, None]:
    """Call a function from a plain callback of the loop, as the worker's own are."""

    async def called() -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def call() -> None:
            function()
            done.set_result(None)

        asyncio.get_running_loop().call_soon(call, context=contextvars.Context())
        await done

    return called()


class ScriptedWorkplace(Workplace):
    """A workplace on the running loop whose executions are scripts by run id, and which notes what it is told."""

    scripts: dict[str, ScriptedExecution]
    heard: list[tuple[Any, ...]]

    def execution(self, facts: RunFacts, records: tuple[Record, ...]) -> Any:
        self.heard.append(("made", facts.id, records))
        return self.scripts[facts.id]


def workplace(database: FakeDatabase, *, concurrency: int = 10, cached: int = 10) -> ScriptedWorkplace:
    loop, context = asyncio.get_running_loop(), contextvars.Context()
    heard: list[tuple[Any, ...]] = []
    workflows: Any = {("w", 1): object()}
    steps = FakeSteps()
    place = ScriptedWorkplace(
        database=database,  # type: ignore[arg-type]  # the part of it that is used
        workflows=workflows,
        default_retry=Retry(),
        concurrency=concurrency,
        loop=loop,
        context=context,
        time=DatabaseTime(None),
        entropy=Random(1),
        steps=steps,  # type: ignore[arg-type]  # the same
        transactional=steps,  # type: ignore[arg-type]  # the same
        bodies=Bodies(loop, context),
        parked=ParkedRuns(cached),
        look=lambda: heard.append(("look",)),
        look_at=lambda at: heard.append(("look at", at)),
        slot_freed=lambda: heard.append(("slot",)),
        run_ended=lambda run_id, outcome: heard.append(("ended", run_id, outcome.status)),
    )
    place.heard = heard
    place.scripts = {}
    return place
