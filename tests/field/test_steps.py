"""Steps that fail in unusual ways, return what cannot be kept, block, or are unusual functions."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import InvalidOperation
from typing import Any, Final

import pytest

from outlast import (
    Context,
    DefinitionError,
    NonRetryable,
    Outlast,
    Retry,
    RunFailed,
    Status,
    Step,
    StepContext,
    StepFailed,
    ValueNotStorable,
    WorkerOptions,
    step,
    workflow,
)
from outlast.model.failures import type_name
from support.field_apps import forgetful, run_of
from support.tcp_proxy import TcpProxy

# Errors.


class Declined(Exception):
    """It cannot be built again from its arguments."""

    def __init__(self, *, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status


class Holding(Exception):
    """It holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__("it holds a lock and a socket")
        self.lock = threading.Lock()
        self.socket = socket.socket()

    def close(self) -> None:
        self.socket.close()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raised(kind: str) -> Exception:
    match kind:
        case "declined":
            return Declined(status=402, detail="card stolen")
        case "holding":
            error = Holding()
            error.close()
            return error
        case "mute":
            return Mute()
        case "invalid":
            return InvalidOperation("bad amount")
        case _:
            return ValueError("x")


MESSAGES: Final = {
    "declined": "402: card stolen",
    "holding": "it holds a lock and a socket",
    "mute": "<its message could not be made: RuntimeError>",
    "invalid": "bad amount",
    "value": "x",
}


@pytest.mark.parametrize("is_awaited", [True, False], ids=["awaited", "plain"])
async def test_any_error_is_kept_as_text_and_readable_everywhere(database_url: str, is_awaited: bool) -> None:
    async def raise_awaited(kind: str) -> None:
        raise _raised(kind)

    def raise_plainly(kind: str) -> None:
        raise _raised(kind)

    @workflow("failing")
    async def failing(ctx: Context, kind: str) -> None:
        function = raise_awaited if is_awaited else raise_plainly
        await ctx.step("fail", functools.partial(lambda kind, s: function(kind), kind), retry=False)

    async with forgetful(database_url, failing) as app:
        await app.start_many(failing, list(MESSAGES), ids=list(MESSAGES))
        await app.drain()

        assert {run.status for run in (await app.list()).runs} == {Status.FAILED}
        for kind, message in MESSAGES.items():
            with pytest.raises(RunFailed) as failed:
                await app.result(kind, timeout="0s")
            assert failed.value.failure.type == type_name(StepFailed)
            (cause,) = failed.value.failure.inner
            assert (cause.type, cause.message) == (type_name(type(_raised(kind))), message)
            assert function_name(is_awaited) in cause.traceback
            assert (await run_of(app, kind, journal=True)).failure == failed.value.failure


def function_name(is_awaited: bool) -> str:
    return "raise_awaited" if is_awaited else "raise_plainly"


async def test_a_failing_task_group_fails_its_run_and_keeps_every_error(database_url: str) -> None:
    """The first failure ends the group, as it does in asyncio; what the other step came to is in the journal."""
    undone: list[object] = []

    def fail(error: Exception) -> None:
        raise error

    @workflow("group")
    async def group(ctx: Context) -> None:
        await ctx.step("before", lambda s: "reserved", compensate=lambda s, result: undone.append(result))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.step("a", lambda s: fail(ValueError("a")), retry=False))
            tasks.create_task(ctx.step("b", lambda s: fail(KeyError("b")), retry=False))

    async with forgetful(database_url, group) as app:
        run = await app.start(group)
        await app.drain()

        found = await run_of(app, run.id, journal=True)
    assert found.status is Status.FAILED
    assert undone == ["reserved"]
    assert found.failure is not None
    assert found.failure.type == "ExceptionGroup"
    first = found.failure.inner[0]
    assert (first.type, first.inner[0].type) in {
        (type_name(StepFailed), "ValueError"),
        (type_name(StepFailed), "KeyError"),
    }
    payloads = {entry.name: entry.payload or "" for entry in found.journal if entry.phase == "failed"}
    assert ('"ValueError"' in payloads["a"], '"KeyError"' in payloads["b"]) == (True, True)


async def test_every_member_of_a_group_is_kept_and_a_final_one_ends_the_attempts(database_url: str) -> None:
    calls: Counter[str] = Counter()

    def fail(s: StepContext, *errors: Exception) -> None:
        calls.update([s.step])
        raise ExceptionGroup("outer", [ExceptionGroup("inner", errors), KeyError("k")])

    @workflow("group")
    async def group(ctx: Context) -> None:
        with suppress(StepFailed):
            await ctx.step("mixed", lambda s: fail(s, NonRetryable("card stolen"), ValueError("v")))
        await ctx.step("ordinary", lambda s: fail(s, ValueError("v")), retry=Retry(attempts=3, delay="0s"))

    async with forgetful(database_url, group) as app:
        run = await app.start(group)
        await app.drain()

        failure = (await run_of(app, run.id)).failure
    assert calls == {"mixed": 1, "ordinary": 3}
    assert failure is not None
    (outer,) = failure.inner
    assert [part.type for part in outer.inner] == ["ExceptionGroup", "KeyError"]
    assert [(part.type, part.message) for part in outer.inner[0].inner] == [("ValueError", "v")]


async def test_an_error_raised_from_a_final_one_is_final(database_url: str) -> None:
    calls: list[int] = []

    def fail(s: StepContext) -> None:
        calls.append(s.attempt)
        raise RuntimeError("wrap") from NonRetryable("card stolen")

    @workflow("wrapped")
    async def wrapped(ctx: Context) -> None:
        await ctx.step("charge", fail, retry=5)

    async with forgetful(database_url, wrapped) as app:
        run = await app.start(wrapped)
        await app.drain()

        failure = (await run_of(app, run.id)).failure
    assert calls == [1]
    assert failure is not None
    assert (failure.inner[0].message, failure.inner[0].inner[0].message) == ("wrap", "card stolen")


# Results.


async def test_a_result_whose_write_was_lost_is_written_again_and_not_made_again(
    postgres_url: str, postgres_proxy: TcpProxy
) -> None:
    calls: list[int] = []
    cut: list[bool] = [True, False]

    @step
    async def charge(s: StepContext) -> str:
        calls.append(s.attempt)
        if len(calls) == 2:
            await asyncio.to_thread(postgres_proxy.wait_for_cut)
        # The message with the result: it does not arrive; or it does, and its answer does not.
        postgres_proxy.cut_at(b"the-charge", delivered=cut.pop())
        return "the-charge"

    @workflow("order")
    async def order(ctx: Context) -> list[str]:
        return [await charge(), await charge.named("again")()]

    async with Outlast(postgres_proxy.url(postgres_url), workflows=[order], worker=WorkerOptions(poll="100ms")) as app:
        run = await app.start(order)

        assert await run.result(timeout="20s") == ["the-charge"] * 2
        await asyncio.to_thread(postgres_proxy.wait_for_cut)
        journal = (await run_of(app, run.id, journal=True)).journal
    assert calls == [1, 1]
    assert cut == []
    assert [(entry.name, entry.attempts) for entry in journal] == [("charge", 1), ("again", 1)]


async def _forgotten() -> None: ...


UNSTORABLE: Final[dict[str, Callable[[], object]]] = {
    "file": lambda: open(__file__),  # noqa: PTH123, SIM115
    "lock": threading.Lock,
    "generator": lambda: (number for number in range(3)),
    "coroutine": _forgotten,
    "class": lambda: Declined,
}


async def test_a_result_that_cannot_be_kept_fails_at_once_and_names_its_place(database_url: str) -> None:
    made: dict[str, Any] = {}

    def make(kind: str) -> dict[str, object]:
        assert kind not in made
        made[kind] = UNSTORABLE[kind]()
        return {"it": made[kind]}

    @workflow("unstorable")
    async def unstorable(ctx: Context, kind: str) -> None:
        await ctx.step("make", lambda s: make(kind))

    async with forgetful(database_url, unstorable) as app:
        await app.start_many(unstorable, list(UNSTORABLE), ids=list(UNSTORABLE))
        await app.drain()
        failures = {str(run.id): run.failure for run in (await app.list()).runs}

    assert sorted(failures) == sorted(UNSTORABLE)
    for failure in failures.values():
        assert failure is not None
        (cause,) = failure.inner
        assert cause.type == type_name(ValueNotStorable)
        assert "result of step 'make'['it']" in cause.message
    for kind in ("file", "coroutine"):
        made[kind].close()


# Threads.


async def test_a_thread_that_takes_too_long_is_given_up_and_serves_again_later(database_url: str) -> None:
    """Two threads, four runs; the functions raise after all. What they come to is not heard any more."""
    release = threading.Event()
    threads: set[str] = set()

    @step(timeout="200ms", retry=False)
    def block(number: int) -> None:
        threads.add(threading.current_thread().name)
        release.wait(30)
        raise ValueError("too late")

    @step
    def quick(number: int) -> int:
        return number

    @workflow("blocking")
    async def blocking(ctx: Context, number: int) -> int:
        with suppress(StepFailed):
            await block(number)
        return await quick(number)

    async with Outlast(database_url, workflows=[blocking], worker=WorkerOptions(threads=2)) as app:
        runs = await app.start_many(blocking, range(4))
        # Two of them hold the threads, two wait for one; the time of those has not begun.
        first = await _failed(app, [run.id for run in runs], 2)
        assert len(threads) == 2
        release.set()

        assert sorted([await run.result(timeout="20s") for run in runs]) == [0, 1, 2, 3]
        for run_id in first:
            (entry,) = [e for e in (await run_of(app, run_id, journal=True)).journal if e.name == "block"]
            assert "took longer than its timeout" in (entry.payload or "")
            assert "too late" not in (entry.payload or "")
    assert len(threads) == 2


async def _failed(app: Outlast, ids: list[str], count: int) -> list[str]:
    """Return the runs whose step `block` has failed, once there are so many."""
    while True:
        found = [
            run_id
            for run_id in ids
            if any(e.name == "block" and e.phase == "failed" for e in (await run_of(app, run_id, journal=True)).journal)
        ]
        if len(found) >= count:
            return found
        await asyncio.sleep(0.01)


# Unusual functions.


@dataclass
class Adder:
    """Callable, and without a hash."""

    amount: int
    seen: list[int] = field(default_factory=list[int])

    def __call__(self, s: StepContext) -> int:
        return self.amount + 1


class AwaitedAdder:
    async def __call__(self, s: StepContext) -> int:
        return 2

    async def method(self, s: StepContext) -> int:
        return 2


async def add(amount: int, s: StepContext) -> int:
    return amount + 1


async def add_one(s: StepContext) -> int:
    return 2


def logged(function: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    @functools.wraps(function)
    def wrapper(*arguments: object) -> Awaitable[int]:
        return function(*arguments)

    return wrapper


CALLABLES: Final[dict[str, Callable[..., Any]]] = {
    "instance without a hash": Adder(1),
    "instance with an async call": AwaitedAdder(),
    "bound method": AwaitedAdder().method,
    "partial of an async def": functools.partial(add, 1),
    "partial of a partial": functools.partial(functools.partial(add), 1),
    "async def under a decorator": logged(add_one),
    "lambda": lambda s: 2,
    "lambda that returns a coroutine": lambda s: add(1, s),
}


async def test_any_callable_is_called_and_awaited_as_a_step(database_url: str) -> None:
    @workflow("unusual")
    async def unusual(ctx: Context) -> dict[str, object]:
        return {name: await ctx.step(name, function) for name, function in CALLABLES.items()}

    async with forgetful(database_url, unusual) as app:
        run = await app.start(unusual)
        await app.drain()

        assert await run.result(timeout="0s") == dict.fromkeys(CALLABLES, 2)


async def test_any_callable_can_be_declared_as_a_step(database_url: str) -> None:
    declared: dict[str, Step[..., Any]] = {name: step(name=name)(function) for name, function in CALLABLES.items()}

    @workflow("unusual")
    async def unusual(ctx: Context) -> dict[str, object]:
        told = StepContext(ctx.run_id, "told")
        return {name: await (each() if takes_context(each) else each(told)) for name, each in declared.items()}

    async with forgetful(database_url, unusual) as app:
        run = await app.start(unusual)
        await app.drain()

        assert await run.result(timeout="0s") == dict.fromkeys(declared, 2)


def takes_context(declared: Step[..., Any]) -> bool:
    return not declared.name.startswith("lambda")


@pytest.mark.parametrize("function", [Adder, 7, "charge", None, (n for n in ())], ids=lambda f: type(f).__name__)
def test_what_is_no_function_is_refused_where_it_is_declared(function: Callable[..., object]) -> None:
    with pytest.raises(DefinitionError, match="must be a function"):
        step(name="it")(function)


def test_functions_that_yield_are_refused_where_they_are_declared() -> None:
    def yielding() -> Iterator[int]:
        yield 1

    async def awaited_yielding() -> AsyncIterator[int]:
        yield 1

    for function in (yielding, awaited_yielding, functools.partial(yielding)):
        with pytest.raises(DefinitionError, match="yields"):
            step(name="it")(function)
