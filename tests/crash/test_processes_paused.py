"""A process that is stopped for longer than its lease, as a machine is that is suspended, and then goes on."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from outlast import Outlast
from support.nursery import Nursery, WarmProcess
from support.probing import Tables, until
from support.programs import paused
from support.programs.ledger import Ledger

RUNS = 25


@pytest.mark.time_limit(120)
def test_a_process_that_was_paused_begins_nothing_of_what_others_have_taken(
    nursery: Nursery, shared_database_url: str, tmp_path: Path
) -> None:
    """It found the answers to its last writes in its sockets and began the next steps: a card was charged once more after
    the order had been completed elsewhere, or after it had been undone."""
    ledger = Ledger(tmp_path / "ledger")
    options = {"database": shared_database_url, "ledger": str(tmp_path / "ledger"), "lease": "1s"}
    with contextlib.closing(Outlast(shared_database_url, workflows=[paused.ticking], worker=False).blocking) as client:
        client.migrate()
        client.start_many(paused.ticking, [None] * RUNS)
        first = nursery.start(paused.serve, **options)
        until(lambda: len(ledger.effects()) > 3 * RUNS, "the runs to be in the middle")
        _pause_between_transactions(first, shared_database_url)
        second = nursery.start(paused.serve, **options)
        tables = Tables(shared_database_url)
        until(lambda: tables("select count(*) from {runs} where finished_at is null") == [(0,)], "the other to end all")

        before = ledger.effects()
        first.resume()
        until(lambda: "lost its lease" in first.output, "the first to hear of it")

        # One may have been on its way to the ledger when the process was stopped.
        assert len(ledger.effects()) <= len(before) + 1
        assert {effect.pid for effect in before} == {first.pid, second.pid}
        # Each step once; one of each run once more, since it was cut short.
        assert len(before) <= RUNS * (paused.STEPS + 1)


def _pause_between_transactions(process: WarmProcess, url: str) -> None:
    """On SQLite nobody could write while a transaction of a paused process stands open."""
    process.pause()
    while url.startswith("sqlite") and not _may_write(url.removeprefix("sqlite:///")):
        process.resume()
        process.pause()


def _may_write(path: str) -> bool:
    with contextlib.closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as connection:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        return True
