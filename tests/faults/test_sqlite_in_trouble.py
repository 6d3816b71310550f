"""A SQLite file that somebody else keeps locked, and a disk that is full: work waits, and goes on."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Context, DatabaseBusy, DatabaseUnavailable, Outlast, StepContext, WorkerOptions, step, workflow
from outlast.stores.databases import sqlite_connection
from outlast.stores.databases.database import SqlDatabase
from outlast.worker import claiming, flusher, starting
from support.probing import until_seen

calls: Counter[str] = Counter()
OPTIONS = WorkerOptions(poll="50ms", lease="5m")
PAGES_OF_A_RESULT = 400


@step
async def small(s: StepContext, number: int) -> int:
    calls[s.idempotency_key] += 1
    return number


@step
def large(s: StepContext, number: int) -> str:
    calls[s.idempotency_key] += 1
    return "x" * PAGES_OF_A_RESULT * 4096


@workflow("growing")
async def growing(ctx: Context, number: int) -> int:
    await small(number)
    return len(await large(number))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on an answer after a moment, as otherwise after seconds."""
    calls.clear()
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT", 0.05)
    monkeypatch.setattr(flusher, "_PATIENCE", 0.2)
    monkeypatch.setattr(claiming, "_PATIENCE", 0.2)
    monkeypatch.setitem(SqlDatabase.run.__kwdefaults__ or {}, "patience", 0.4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outlast.db"


@contextlib.contextmanager
def write_lock(path: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        yield
        connection.execute("rollback")


async def test_a_file_that_stays_locked_costs_no_step(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A backup, or a caller that keeps its transaction open, for longer than anybody waits."""
    async with Outlast(f"sqlite:///{path}", workflows=[growing], worker=OPTIONS) as app:
        runs = [await app.start(growing, number) for number in range(20)]
        with write_lock(path):
            await until_seen(lambda: "does not answer" in caplog.text, "the worker to notice")
            with pytest.raises(DatabaseUnavailable, match="in the way"):
                await app.cancel(runs[0].id)

        assert [await run.result(timeout="30s") for run in runs] == [PAGES_OF_A_RESULT * 4096] * 20
    assert set(calls.values()) == {1}
    assert len(calls) == 40


async def test_who_forgets_tx_inside_a_transaction_is_told_so(path: Path) -> None:
    """The call waited for the very transaction it was made in, and said only that the database did not answer."""
    app = Outlast(f"sqlite:///{path}", workflows=[growing])
    await app.migrate()

    with write_lock(path), pytest.raises(DatabaseBusy, match=r"one write lock\. If it is yours, .* pass it as tx="):
        await app.start(growing, 1)

    await app.close()


async def test_who_forgets_tx_beside_a_worker_is_told_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_PATIENCE", 0.2)
    async with Outlast(f"sqlite:///{path}", workflows=[growing], worker=OPTIONS) as app:
        with write_lock(path), pytest.raises(DatabaseUnavailable, match="pass it as tx="):
            await app.start(growing, 1)


async def test_a_full_disk_costs_no_step(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Outlast(f"sqlite:///{path}", workflows=[growing], worker=OPTIONS) as app:
        await app.start_and_wait(growing, 0)
        writer: Any = app._database
        connection = writer._blocking_road._writer._connected()
        ((pages,),) = connection.execute("pragma page_count").fetchall()
        connection.execute(f"pragma max_page_count = {pages + PAGES_OF_A_RESULT // 2}")
        calls.clear()

        run = await app.start(growing, 1)
        await until_seen(lambda: "does not answer" in caplog.text, "the worker to notice")
        assert len(calls) == 2
        connection.execute("pragma max_page_count = 1000000")

        assert await run.result(timeout="30s") == PAGES_OF_A_RESULT * 4096
    assert set(calls.values()) == {1}
