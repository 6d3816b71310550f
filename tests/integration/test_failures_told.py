"""What somebody reads whose run failed, or does not end."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast import Context, InvalidArgument, Outlast, Retry, RunFailed, step, workflow
from support.colours import Ask, result_of


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


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Outlast]:
    app = Outlast(f"sqlite:///{folder}/runs.db", workflows=[by_step, at_once])
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


async def test_waiting_inside_of_a_transaction_is_refused_with_what_to_do(tmp_path: Path, ask: Ask) -> None:
    """It was a bare TypeError: start_and_wait() got an unexpected keyword argument 'tx'."""
    async with opened(tmp_path) as app:
        with pytest.raises(InvalidArgument, match=r"takes no tx=.*Call start\(\.\.\., tx=tx\), and result\(\)"):
            await ask(app, "start_and_wait", at_once, id="one", tx=object())

        assert await app.get("one") is None
