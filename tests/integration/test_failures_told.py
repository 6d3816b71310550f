"""What somebody reads whose run failed, or does not end."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import re
import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast import (
    BlockingHandle,
    CompensationContext,
    CompensationFailed,
    Context,
    Handle,
    Outlast,
    ResultTimeout,
    Retry,
    RetryAfter,
    RunFailed,
    Signal,
    Status,
    step,
    workflow,
)
from outlast.client import untaken
from support.colours import Ask, parked, result_of
from support.probing import until_awaited


def _line_of(code: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.strip() == code)
    return number


@step(retry=Retry(attempts=1))
async def look_up(name: str) -> str:
    known: dict[str, str] = {}
    return known[name]


@workflow("by-step")
async def by_step(ctx: Context, name: str) -> str:
    return await look_up(name)


@workflow("at-once")
async def at_once(ctx: Context) -> str:
    raise KeyError("missing")


@step(retry=Retry(attempts=3, delay="1h", jitter="none"))
async def buggy() -> None:
    raise KeyError("nope")


@workflow("retrying")
async def retrying(ctx: Context) -> None:
    await buggy()


@workflow("asleep")
async def asleep(ctx: Context) -> None:
    await ctx.sleep("a-day", "1d")


@workflow("approved")
async def approved(ctx: Context, order: str) -> None:
    await ctx.wait_for("approval", ctx.signal(approval, key=order), timeout="1d")


@workflow("limited", timeout="2d")
async def limited(ctx: Context, order: str) -> None:
    await ctx.wait_for("approval", ctx.signal(approval, key=order))


@workflow("undoing")
async def undoing(ctx: Context) -> None:
    await ctx.step("book", lambda s: "booked", compensate=unbook)
    ctx.fail("the shop is closed")


async def unbook(s: CompensationContext, booked: str) -> None:
    raise RetryAfter("1h", "not now")


@workflow("not-undone")
async def not_undone(ctx: Context) -> None:
    await ctx.step("reserve", lambda s: "reserved")
    await ctx.step("book", lambda s: "booked", compensate=give_up, compensate_retry=Retry(attempts=2, delay="1ms"))
    ctx.fail("the hotel is closed")


def give_up(s: CompensationContext, booked: str) -> None:
    raise ConnectionError("the desk is closed too")


approval = Signal("approval", str)


WORKFLOWS = [by_step, at_once, retrying, asleep, approved, limited, undoing, not_undone]


@asynccontextmanager
async def opened(folder: Path, *, worker: bool = True) -> AsyncGenerator[Outlast]:
    app = Outlast(f"sqlite:///{folder}/runs.db", workflows=WORKFLOWS, worker=worker)
    try:
        async with app:
            yield app
    finally:
        await asyncio.to_thread(app.blocking.close)


async def test_a_failed_run_says_where_in_the_code_it_failed(tmp_path: Path, ask: Ask) -> None:
    """The traceback of RunFailed showed files of the library alone: the code had run elsewhere, at another time."""
    async with opened(tmp_path) as app:
        run = await ask(app, "start", at_once)

        with pytest.raises(RunFailed) as raised:
            await result_of(run)

    shown = "".join(traceback.format_exception(raised.value))
    line = _line_of('raise KeyError("missing")')
    assert f'  File "{__file__}", line {line}, in at_once\n    raise KeyError("missing")\n' in shown
    assert pickle.loads(pickle.dumps(raised.value)).__notes__ == raised.value.__notes__


async def test_a_failed_step_is_shown_with_the_line_in_the_step_and_the_one_that_asked_for_it(
    tmp_path: Path, ask: Ask
) -> None:
    async with opened(tmp_path) as app:
        run = await ask(app, "start", by_step, "nope")

        with pytest.raises(RunFailed) as raised:
            await result_of(run)

    (note,) = raised.value.__notes__
    asked, failed = _line_of("return await look_up(name)"), _line_of("return known[name]")
    assert note.splitlines()[1:] == [
        f'  File "{__file__}", line {asked}, in by_step',
        "    return await look_up(name)",
        f'  File "{__file__}", line {failed}, in look_up',
        "    return known[name]",
    ]


async def test_a_run_that_could_not_be_undone_says_which_step_was_not_and_where_that_failed(
    tmp_path: Path, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    """It named the entry of the journal, and showed the line of the run's failure alone."""
    async with opened(tmp_path) as app:
        run = await ask(app, "start", not_undone, id="one")

        with pytest.raises(CompensationFailed) as raised:
            await result_of(run)

    failed, undoing = (
        _line_of('ctx.fail("the hotel is closed")'),
        _line_of('raise ConnectionError("the desk is closed too")'),
    )
    gave_up = "The compensation of step 'book' gave up after 2 attempts: ConnectionError: the desk is closed too"
    assert str(raised.value) == (
        "Run 'one' ended as compensation_failed: outlast.errors.WorkflowFailed: the hotel is closed; undoing gave up: "
        f"{gave_up}. Somebody has to look: app.get(id, journal=True) shows what was undone."
    )
    (note,) = raised.value.__notes__
    assert note.splitlines()[1:] == [
        f'  File "{__file__}", line {failed}, in not_undone',
        '    ctx.fail("the hotel is closed")',
        f'  File "{__file__}", line {undoing}, in give_up',
        '    raise ConnectionError("the desk is closed too")',
    ]
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert told == (
        f"Run 'one' ended as compensation_failed: outlast.errors.WorkflowFailed: the hotel is closed ({__file__}:{failed}); "
        f"outlast.errors.StepFailed: {gave_up} ({__file__}:{undoing})"
    )


async def test_a_failure_of_old_is_told_as_one(tmp_path: Path, ask: Ask) -> None:
    """A run was started again under its id after its code was mended, and the old failure came back as if it were new."""
    async with opened(tmp_path) as app:
        first = await ask(app, "start", at_once, id="one")
        with pytest.raises(RunFailed) as raised:
            await result_of(first)
        assert str(raised.value) == "Run 'one' ended as failed: KeyError: 'missing'"
        run = await app.get("one")
        assert run is not None
        assert run.finished_at is not None

        with pytest.raises(RunFailed) as again:
            await ask(app, "start_and_wait", at_once, id="one")

    assert str(again.value) == (
        "Run 'one' ended as failed: KeyError: 'missing'. That was recorded at "
        f"{run.finished_at:%Y-%m-%d %H:%M:%S} UTC, before this start: nothing ran now. "
        "Start it under another id to run it again."
    )


async def _late(run: Handle[Any] | BlockingHandle[Any], timeout: str = "1ms") -> ResultTimeout:
    """Wait too short. While the worker of this process has the run, nobody looks how it stands: then once more."""
    while True:
        with pytest.raises(ResultTimeout) as late:
            await result_of(run, timeout=timeout)
        if late.value.status is not None:
            return late.value


@pytest.mark.parametrize(
    "started, waits_for",
    [
        (retrying, r"attempt 2 of step 'buggy' at {at}, after KeyError: 'nope' \({file}:\d+\)"),
        (asleep, "the end of sleep 'a-day' at {at}"),
        ((approved, "o-1"), r"signal approval\[o-1\], or the deadline of 'approval' at {at}"),
        ((limited, "o-1"), r"signal approval\[o-1\], or its own timeout at {at}"),
    ],
    ids=["retry", "sleep", "signal", "timeout"],
)
async def test_who_waits_too_short_is_told_what_the_run_waits_for(
    started: Any, waits_for: str, tmp_path: Path, ask: Ask
) -> None:
    """A step that failed was tried again hours later, and nothing but the journal said so."""
    async with opened(tmp_path) as app:
        run = await ask(app, "start", *(started if isinstance(started, tuple) else (started,)))
        await parked(app, run.id)
        found = await app.get(run.id)
        assert found is not None
        assert found.due_at is not None
        expected = waits_for.format(at=f"{found.due_at:%Y-%m-%d %H:%M:%S} UTC", file=re.escape(__file__))

        late = await _late(run)

    assert re.fullmatch(expected, late.waits_for)
    assert f"and is suspended. It waits for {late.waits_for}. Only this waiting has ended" in str(late)


async def _undone_later(app: Outlast, run_id: str) -> None:
    async def is_put_off() -> bool:
        run = await app.get(run_id)
        return run is not None and run.status is Status.COMPENSATING and run.worker is None

    await until_awaited(is_put_off, "the undoing to be put off")


async def test_a_run_that_is_undone_again_later_is_told_with_the_reason(tmp_path: Path, ask: Ask) -> None:
    async with opened(tmp_path) as app:
        run = await ask(app, "start", undoing)
        await _undone_later(app, run.id)

        late = await _late(run)

    assert re.match(r"attempt 2 of compensation '\$compensate:book' at .*RetryAfter: not now", late.waits_for)


async def test_who_only_looks_reads_no_journal(tmp_path: Path, ask: Ask) -> None:
    async with opened(tmp_path) as app:
        run = await ask(app, "start", asleep)
        await parked(app, run.id)

        late = await _late(run, timeout="0s")

    assert (late.status, late.waits_for) == (Status.SUSPENDED, "")
    assert "see what it waits for with app.get(id, journal=True)" in str(late)


async def test_waiting_for_what_no_worker_takes_is_logged_once(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`result()` without a timeout waited in silence, for ever, where nobody had begun a worker."""
    monkeypatch.setattr(untaken, "PATIENCE", 0.0)
    monkeypatch.setattr(untaken, "QUIET", math.inf)
    async with opened(tmp_path, worker=False) as app:
        for run_id in ("one", "two"):
            run = await ask(app, "start", at_once, id=run_id)
            with pytest.raises(ResultTimeout):
                await result_of(run, timeout="60ms")

    (told,) = [record for record in caplog.records if record.name == "outlast.client"]
    assert told.levelno == logging.WARNING
    assert told.getMessage() == (
        "No worker has taken run 'one' yet, whose result has been awaited for 0 s: is one running that registers its "
        "workflow, 'at-once' version 1?"
    )


async def test_nothing_is_logged_before_a_worker_could_have_taken_the_run(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(untaken, "PATIENCE", math.inf)
    async with opened(tmp_path, worker=False) as app:
        run = await ask(app, "start", at_once)
        with pytest.raises(ResultTimeout):
            await result_of(run, timeout="30ms")

    assert [record for record in caplog.records if record.name == "outlast.client"] == []


async def test_a_list_tells_what_its_runs_wait_for(tmp_path: Path, ask: Ask) -> None:
    """`waiting_for` was empty in every list, which reads as "waits for nothing"."""
    async with opened(tmp_path) as app:
        for order in ("o-1", "o-2"):
            await ask(app, "start", approved, order, id=order)
            await parked(app, order)
        await ask(app, "start", asleep, id="asleep")
        await parked(app, "asleep")

        page = await ask(app, "list")
        alone = await ask(app, "get", "o-1")

    assert {run.id: run.waiting_for for run in page.runs} == {
        "o-1": ("approval[o-1]",),
        "o-2": ("approval[o-2]",),
        "asleep": (),
    }
    assert alone.waiting_for == ("approval[o-1]",)
