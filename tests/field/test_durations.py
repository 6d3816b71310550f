"""Times: what they are written as, whose clock counts, and that they are neither shortened, restarted nor missed."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from outlast import (
    Context,
    InvalidDuration,
    Outlast,
    Retry,
    RetryAfter,
    RunTimedOut,
    Signal,
    Status,
    StepContext,
    WorkerOptions,
    workflow,
)
from outlast.testing import ManualClock
from support.field_apps import forgetful, run_of
from support.probing import Tables, until_awaited

never = Signal("never", None)

SECONDS: Final = {
    "90s": 90,
    "42m30s": 2_550,
    "1h": 3_600,
    "1.5h": 5_400,
    "36h": 129_600,
    "P1DT2H": 93_600,
    "1500ms": 1.5,
}


async def test_a_duration_is_waited_for_in_full(database_url: str) -> None:
    @workflow("sleeper")
    async def sleeper(ctx: Context, duration: str) -> None:
        await ctx.sleep("pause", duration)

    clock = ManualClock()
    async with forgetful(database_url, sleeper, clock=clock) as app:
        await app.start_many(sleeper, list(SECONDS), ids=list(SECONDS))
        await app.drain()
        for duration, seconds in sorted(SECONDS.items(), key=lambda item: item[1]):
            due = clock.set(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds) - timedelta(microseconds=1))
            await app.drain()
            assert (await run_of(app, duration)).status is Status.SUSPENDED, (duration, due)
            clock.advance(timedelta(microseconds=1))
            await app.drain()
            assert (await run_of(app, duration)).status is Status.COMPLETED, duration


Waits = Callable[[Context], Awaitable[object]]

PASSED: Final[dict[str, Waits]] = {
    "a negative sleep": lambda ctx: ctx.sleep("it", timedelta(seconds=-5)),
    "a negative text": lambda ctx: ctx.sleep("it", "-5s"),
    "a sleep of nothing": lambda ctx: ctx.sleep("it", "0s"),
    "a sleep until long ago": lambda ctx: ctx.sleep_until("it", datetime.min.replace(tzinfo=UTC)),
    "a wait that has passed": lambda ctx: ctx.wait_for("it", ctx.signal(never), timeout="-5s"),
    "a wait of nothing": lambda ctx: ctx.wait_for("it", ctx.signal(never), timeout="0s"),
    "a timer that has passed": lambda ctx: ctx.first("it", ctx.timer(timedelta(days=-1))),
    "asyncio, negative": lambda ctx: asyncio.sleep(-5),
    "asyncio, nothing": lambda ctx: asyncio.sleep(0),
    "asyncio, a timeout that has passed": lambda ctx: _late(asyncio.wait_for(_nothing(), -5)),
}
ENDLESS: Final[dict[str, Waits]] = {
    "the end of dates": lambda ctx: ctx.sleep_until("it", datetime.max.replace(tzinfo=UTC)),
    "a timer at the end of dates": lambda ctx: ctx.first("it", ctx.timer(datetime.max.replace(tzinfo=UTC))),
    "a hundred years": lambda ctx: ctx.sleep("it", timedelta(days=36_525)),
    "no timeout": lambda ctx: ctx.wait_for("it", ctx.signal(never)),
}
REFUSED: Final[dict[str, Waits]] = {
    "the longest timedelta": lambda ctx: ctx.sleep("it", timedelta.max),
    "the shortest timedelta": lambda ctx: ctx.sleep("it", timedelta.min),
    "400 years": lambda ctx: ctx.sleep("it", timedelta(days=146_100)),
    "400 years in a timeout": lambda ctx: ctx.wait_for("it", ctx.signal(never), timeout=timedelta(days=146_100)),
    "400 years in a timer": lambda ctx: ctx.first("it", ctx.timer(timedelta(days=146_100))),
    "not a number": lambda ctx: ctx.sleep("it", "nan"),
    "infinity": lambda ctx: ctx.sleep("it", "inf"),
    "two units, one unknown": lambda ctx: ctx.sleep("it", "1m 5x"),
    "a bare number": lambda ctx: ctx.sleep("it", "5"),
    "a float": lambda ctx: ctx.sleep("it", math.nan),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "asyncio, not a number": lambda ctx: asyncio.wait_for(_nothing(), math.nan),
    "asyncio, infinity": lambda ctx: asyncio.sleep(math.inf),
    "asyncio, 400 years": lambda ctx: asyncio.sleep(146_100 * 86_400),
    "asyncio, a timeout of infinity": lambda ctx: asyncio.wait_for(_nothing(), math.inf),
}


def _nothing() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def _late(waiting: Awaitable[object]) -> None:
    with pytest.raises(TimeoutError):
        await waiting


@workflow("odd")
async def odd(ctx: Context, name: str) -> str:
    try:
        await {**PASSED, **ENDLESS, **REFUSED}[name](ctx)
    except InvalidDuration:
        return "refused"
    except ValueError as error:  # asyncio's own, from Python 3.13 on
        return "refused" if "NaN" in str(error) else "wrong"
    return "passed"


async def test_odd_durations_pass_at_once_or_wait_or_are_refused(database_url: str) -> None:
    """The worker goes on with other runs, whatever somebody waits for."""
    names = [*PASSED, *ENDLESS, *REFUSED]
    async with forgetful(database_url, odd) as app:
        await app.start_many(odd, names, ids=names)
        await app.drain()
        await app.start(odd, "a sleep of nothing", id="one more")
        await app.drain()

        told = {
            str(run.id): run.output if run.status is Status.COMPLETED else "waits" for run in (await app.list()).runs
        }
    assert told == (
        dict.fromkeys(PASSED, "passed")
        | dict.fromkeys(ENDLESS, "waits")
        | dict.fromkeys(REFUSED, "refused")
        | {"one more": "passed"}
    )


async def test_a_sleep_that_passes_at_once_is_journaled(database_url: str) -> None:
    async with forgetful(database_url, odd) as app:
        run = await app.start(odd, "a negative sleep")
        await app.drain()

        (entry,) = (await run_of(app, run.id, journal=True)).journal
    assert (entry.name, entry.phase) == ("it", "done")


@pytest.mark.parametrize("delay", ["nan", "inf", timedelta.max, math.nan, math.inf], ids=repr)
async def test_a_step_that_asks_for_an_odd_delay_gives_up(database_url: str, delay: timedelta) -> None:
    def fail(s: StepContext) -> None:
        raise RetryAfter(delay)

    @workflow("odd-delay")
    async def odd_delay(ctx: Context) -> None:
        await ctx.step("it", fail)

    async with forgetful(database_url, odd_delay) as app:
        run = await app.start(odd_delay)
        await app.drain()

        failure = (await run_of(app, run.id)).failure
    assert failure is not None
    assert "gave up after 1 attempt" in failure.message


@pytest.mark.parametrize("timeout", ["nan", "inf", "-5s", "0s", timedelta.max, math.nan, 5], ids=repr)
async def test_an_odd_timeout_of_a_run_is_refused_and_starts_nothing(timeout: timedelta) -> None:
    async with forgetful("sqlite://", odd) as app:
        with pytest.raises(InvalidDuration):
            await app.start(odd, "a sleep of nothing", timeout=timeout)
        assert (await app.list()).runs == ()


# A deadline is fixed once.


async def _sleep(ctx: Context) -> None:
    await ctx.sleep("it", "10s")


async def _asyncio_sleep(ctx: Context) -> None:
    await asyncio.sleep(10)


async def _timeout(ctx: Context) -> None:
    await ctx.wait_for("it", ctx.signal(never), timeout="10s")


async def _timer(ctx: Context) -> None:
    await ctx.first("it", ctx.signal(never), ctx.timer("10s"))


async def _asyncio_timeout(ctx: Context) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await ctx.wait_for("it", ctx.signal(never))


async def _retry(ctx: Context) -> None:
    def fail_once(s: StepContext) -> None:
        if s.attempt == 1:
            raise ConnectionError

    await ctx.step("it", fail_once, retry=Retry(delay="10s"))


DEADLINES: Final[dict[str, Waits]] = {
    "sleep": _sleep,
    "asyncio sleep": _asyncio_sleep,
    "timeout": _timeout,
    "timer": _timer,
    "asyncio timeout": _asyncio_timeout,
    "retry": _retry,
}


async def test_a_deadline_does_not_start_again_with_another_worker(database_url: str) -> None:
    """Something else in each run keeps it going, so that it is replayed four times before the deadline."""
    replays: Counter[str] = Counter()

    async def tick(ctx: Context) -> None:
        for number in range(10):
            await ctx.sleep(f"tick-{number}", "2s")

    @workflow("patient")
    async def patient(ctx: Context, what: str) -> None:
        replays.update([what])
        ticking = asyncio.create_task(tick(ctx))
        await DEADLINES[what](ctx)
        ticking.cancel()

    clock = ManualClock()
    async with forgetful(database_url, patient, clock=clock) as app:
        await app.start_many(patient, list(DEADLINES), ids=list(DEADLINES))
        await app.drain()
        for pause in ("2s", "2s", "2s", "2s", "1999ms"):
            clock.advance(pause)
            await app.drain()
            assert {run.status for run in (await app.list()).runs} == {Status.SUSPENDED}
        assert replays == dict.fromkeys(DEADLINES, 5)

        clock.advance("1ms")
        await app.drain()

        assert {run.status for run in (await app.list()).runs} == {Status.COMPLETED}


async def test_the_timeout_of_a_run_counts_from_its_start_whoever_works_on_it(database_url: str) -> None:
    @workflow("patient", timeout="10s")
    async def patient(ctx: Context) -> None:
        await ctx.step("first", lambda s: None)
        await ctx.sleep("a-minute", "60s")

    clock = ManualClock()
    async with forgetful(database_url, patient, clock=clock) as app:
        run = await app.start(patient)
        clock.advance("6s")
        await app.drain()
        clock.advance("2s")
        await app.drain()
        assert (await run_of(app, run.id)).status is Status.SUSPENDED

        clock.advance("2s")
        await app.drain()

        with pytest.raises(RunTimedOut, match="10s"):
            await run.result(timeout="0s")
        assert (await run_of(app, run.id)).finished_at == datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)


# Whose clock, and when somebody looks.


async def test_the_clock_of_a_workers_host_does_not_matter(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ten minutes fast, then ten minutes slow; the database's clock counts."""
    finish = asyncio.Event()
    read = time.time

    async def last(s: StepContext) -> None:
        await finish.wait()

    @workflow("sleeper")
    async def sleeper(ctx: Context) -> datetime:
        now = ctx.now()
        await asyncio.gather(ctx.sleep("pause", "30s"), ctx.step("step", last))
        return now

    tables = Tables(postgres_url)
    options = WorkerOptions(lease="15s", poll="50ms")
    monkeypatch.setattr(time, "time", lambda: read() + 600)
    async with Outlast(postgres_url, workflows=[sleeper], worker=options) as fast:
        run = await fast.start(sleeper)
        await until_awaited(lambda: _is_waiting(fast, run.id), "the sleep to be recorded")
        monkeypatch.setattr(time, "time", lambda: read() - 600)
        async with Outlast(postgres_url, workflows=[sleeper], worker=options) as slow:
            other = await slow.start(sleeper)
            await until_awaited(lambda: _is_waiting(slow, other.id), "the other sleep to be recorded")

            entries = tables("select due_at - recorded_at from {journal} where name = 'pause' and phase = 'open'")
            ages = tables("select extract(epoch from clock_timestamp()) * 1000000 - created_at from {runs}")
            leases = tables("select lease_until - extract(epoch from clock_timestamp()) * 1000000 from {workers}")
            lapses = tables("select lapses from {runs}")
            finish.set()
    assert entries == [(30_000_000,)] * 2
    assert all(0 < age < 20_000_000 for (age,) in ages)
    assert len(leases) == 2
    assert all(0 < left <= 15_000_000 for (left,) in leases)
    assert lapses == [(0,)] * 2


async def _is_waiting(app: Outlast, run_id: str) -> bool:
    names = {entry.name for entry in (await run_of(app, run_id, journal=True)).journal}
    return "pause" in names


async def test_a_timer_does_not_wait_for_a_long_poll(database_url: str) -> None:
    @workflow("nap")
    async def nap(ctx: Context) -> None:
        await ctx.sleep("nap", "300ms")

    async with Outlast(database_url, workflows=[nap], worker=WorkerOptions(poll="10m")) as app:
        run = await app.start(nap)
        await run.result(timeout="10s")


async def test_a_timer_of_another_process_is_seen_by_the_next_poll(shared_database_url: str) -> None:
    """The process that set it has gone: whoever is idle finds it."""

    @workflow("nap")
    async def nap(ctx: Context) -> None:
        await ctx.sleep("nap", "300ms")

    async with Outlast(shared_database_url, workflows=[nap], worker=WorkerOptions(poll="200ms")) as idle:
        async with Outlast(shared_database_url, workflows=[nap], worker=False) as other:
            run = await other.start(nap)
            await other.drain()

        await idle.result(run.id, timeout="10s")


# Many at once.


async def test_many_timers_of_one_moment_end_once_each(shared_database_url: str) -> None:
    ended: Counter[str] = Counter()

    @workflow("sleeper")
    async def sleeper(ctx: Context, until: datetime) -> None:
        await ctx.sleep_until("noon", until)
        await ctx.step("work", lambda s: ended.update([s.run_id]))

    noon = datetime.now(UTC) + timedelta(seconds=2)
    options = WorkerOptions(concurrency=20, poll="50ms")
    async with (
        Outlast(shared_database_url, workflows=[sleeper], worker=options) as one,
        Outlast(shared_database_url, workflows=[sleeper], worker=options),
    ):
        runs = await one.start_many(sleeper, [noon] * 300)
        await asyncio.gather(*(run.result(timeout="30s") for run in runs))

    assert ended == {run.id: 1 for run in runs}


async def test_what_is_more_urgent_does_not_wait_behind_many_timers(database_url: str) -> None:
    order: list[int] = []

    @workflow("sleeper")
    async def sleeper(ctx: Context, number: int) -> None:
        await ctx.sleep("until-noon", "12h")
        order.append(number)

    @workflow("urgent")
    async def urgent(ctx: Context, number: int) -> None:
        order.append(number)

    clock = ManualClock()
    async with forgetful(database_url, sleeper, urgent, clock=clock) as app:
        await app.start_many(sleeper, range(150), priority=1)
        await app.drain()
        clock.advance("13h")
        await app.start_many(urgent, range(1000, 1005))
        await app.drain()

    assert sorted(order[:5]) == list(range(1000, 1005))
    assert len(order) == 155
