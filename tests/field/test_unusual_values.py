"""Values, errors and rows that answer back: each spoils its own run at most."""

from __future__ import annotations

import sqlite3
import weakref
from pathlib import Path
from typing import Any

import pytest

from outlast import Context, Outlast, RunFailed, Status, WorkerOptions, workflow
from outlast.model.failures import failure_of


class Cart:
    """Something that can be referred to weakly."""


@workflow("returns-a-dead-proxy")
async def returns_a_dead_proxy(ctx: Context) -> str:
    async def look(_: object) -> Any:
        return weakref.proxy(Cart())

    await ctx.step("look", look)
    return "never"


@workflow("returns-at-once")
async def returns_at_once(ctx: Context) -> str:
    return "done"


async def test_a_result_that_cannot_even_be_asked_for_its_class_ends_its_step(database_url: str) -> None:
    """A proxy of something that is gone raised in the callback that took the step's result, and the run was running for
    ever: neither a cancel nor a terminate reached it."""
    async with Outlast(database_url, workflows=[returns_a_dead_proxy], worker=WorkerOptions(poll="50ms")) as app:
        run = await app.start(returns_a_dead_proxy, id="proxy")
        with pytest.raises(RunFailed):
            await run.result(timeout="20s")


class Twisted(Exception):
    """An error whose cause cannot be looked at."""

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise RuntimeError("no cause for you")


def test_an_error_that_hides_its_cause_can_be_described() -> None:
    failure = failure_of(Twisted("plain"))

    assert failure.message == "plain"
    assert failure.inner == ()


async def test_a_row_with_a_status_of_nobody_stops_no_other_run(tmp_path: Path) -> None:
    """Every claim failed on the one row, so no run of any worker began any more."""
    file = tmp_path / "runs.db"
    async with Outlast(f"sqlite:///{file}", workflows=[returns_at_once], worker=False) as app:
        await app.start(returns_at_once, id="damaged")
        await app.start(returns_at_once, id="odd-stop")
        await app.start(returns_at_once, id="healthy")
        other = sqlite3.connect(file)
        with other:
            other.execute("update outlast_runs set status = 'weird' where id = 'damaged'")
            other.execute(
                "update outlast_runs set stop_kind = 'weird', stop_reason = '{}', stop_at = 1 where id = 'odd-stop'"
            )
        other.close()

        await app.drain()

        healthy, odd = await app.get("healthy"), await app.get("odd-stop")
        assert healthy is not None
        assert healthy.status is Status.COMPLETED
        assert odd is not None
        assert odd.status is Status.COMPLETED
