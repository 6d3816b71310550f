"""Processes that die or stand still in the middle of a transactional step: the money and the journal always agree."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from outlast import Outlast
from support.callers import blocking_engine
from support.crashing import stride_on
from support.nursery import Nursery
from support.probing import Tables, until
from support.programs import bank

KILLED = -9
START = 1_000_000


class Bank:
    """The tables of the bank, and of outlast beside them."""

    def __init__(self, nursery: Nursery, url: str) -> None:
        self.nursery = nursery
        self.url = url
        self.tables = Tables(url)
        engine = blocking_engine(url)
        with engine.begin() as connection:
            for statement in bank.TABLES:
                connection.execute(text(statement))
            connection.execute(text(f"insert into accounts values ('ours', {START}), ('theirs', 0)"))
        engine.dispose()

    def begin(self, number: int) -> int:
        """Have a process make a transfer and die before its n-th statement (see `stride_on`); return its exit code."""
        before = number * stride_on(self.url)
        child = self.nursery.start(bank.begin, database=self.url, run=f"t-{number}", before=before)
        code = child.wait()
        assert code in {0, KILLED}, child.output
        return code

    def check(self) -> None:
        """Whatever is written of a transfer is written whole: rows, entry, started run and signal."""
        transfers = [run for (run,) in self.tables("select run from transfers order by run")]
        assert len(transfers) == len(set(transfers)), "paid twice"
        assert self._balances() == (START - 5 * len(transfers), 5 * len(transfers))
        if self._has_outlast():
            recorded = "select run_id from {journal} where name = 'move' and phase = 'done' order by run_id"
            assert [run for (run,) in self.tables(recorded)] == transfers
            assert len(self.tables("select id from {runs} where workflow = 'receipt'")) == len(transfers)
            assert len(self.tables("select id from {signals}")) == len(transfers)

    def _balances(self) -> tuple[Any, ...]:
        return tuple(cents for (cents,) in self.tables("select cents from accounts order by id"))

    def _has_outlast(self) -> bool:
        if self.url.startswith("sqlite"):
            return bool(self.tables("select name from sqlite_master where name = 'outlast_signals'"))
        where = "table_schema = 'outlast' and table_name = 'signals'"
        if not self.url.startswith("postgres"):
            # The last one of those that are looked into: each is made by itself.
            where = "table_schema = database() and table_name = 'outlast_signals'"
        return bool(self.tables(f"select 1 from information_schema.tables where {where}"))


@pytest.fixture
def the_bank(nursery: Nursery, shared_database_url: str) -> Bank:
    return Bank(nursery, shared_database_url)


@pytest.mark.every_database
@pytest.mark.time_limit(300)
def test_a_transfer_survives_a_kill_before_any_statement(the_bank: Bank) -> None:
    # One after the other: beside it another one could take its run up, and die with it for as long as a lease lasts.
    codes: list[int] = []
    while not codes or codes[-1] == KILLED:
        codes.append(the_bank.begin(len(codes) + 1))
        the_bank.check()

    # Making the tables, registering, starting, claiming; the step's own transaction alone has nine.
    assert codes.count(KILLED) > 25 // stride_on(the_bank.url)
    the_bank.tables.end_leases()
    runs = [f"t-{number}" for number in range(1, len(codes) + 1)]
    finisher = the_bank.nursery.start(bank.finish, database=the_bank.url, runs=runs)
    assert finisher.wait(timeout=60) == 0, finisher.output

    the_bank.check()
    assert len(the_bank.tables("select run from transfers")) == len(runs)
    assert the_bank.tables("select distinct status from {runs}") == [("completed",)]
    seqs = the_bank.tables("select run_id, seq from {journal} order by run_id, seq")
    for _, rows in itertools.groupby(seqs, lambda row: row[0]):
        assert [seq for _, seq in rows] == [0, 1, 2, 3, 4]


@pytest.mark.every_database
@pytest.mark.time_limit(120)
async def test_a_process_paused_inside_a_step_beyond_its_lease_leaves_no_row_and_no_entry(
    the_bank: Bank, tmp_path: Path
) -> None:
    """On a server another worker takes the run meanwhile, and what the paused one wrote is rolled back with its entry. On
    SQLite it has the file: nobody can take anything, so it goes on as if nothing had been."""
    url, gate = the_bank.url, tmp_path / "gate"
    start = the_bank.nursery.start
    app = Outlast(url, workflows=[bank.transfer, bank.receipt], worker=False)
    async with app:
        first = start(bank.work, database=url, name="first", gate=str(gate), lease="1s")
        await asyncio.to_thread(first.wait_for, "first is ready")
        run = await app.start(bank.transfer, 5, id="t-1")
        await asyncio.to_thread(first.wait_for, "first is inside, attempt 1")
        first.pause()
        second = start(bank.work, database=url, name="second", gate=str(gate), lease="1s")
        if url.startswith("sqlite"):
            await asyncio.to_thread(until, lambda: _lease_is_over(the_bank), "the lease to be over")
        else:
            await asyncio.to_thread(second.wait_for, "second goes on, attempt 2")
            assert await run.result(timeout="30s") == 15
            the_bank.check()
        gate.touch()
        first.resume()
        await asyncio.to_thread(first.wait_for, "first goes on, attempt 1")

        assert await run.result(timeout="30s") == 15
        if not url.startswith("sqlite"):
            # By the renewal or by the step's proof, so perhaps before its function went on.
            await asyncio.to_thread(until, lambda: "lost its lease" in first.output, "the zombie to notice")
        # It is on its feet again, under another name.
        second.kill()
        other = await app.start(bank.transfer, 5, id="t-2")
        assert await other.result(timeout="30s") == 15

    the_bank.check()
    attempts = the_bank.tables("select run, attempt from transfers order by run")
    assert attempts == [("t-1", 1 if url.startswith("sqlite") else 2), ("t-2", 1)]


def _lease_is_over(the_bank: Bank) -> bool:
    (until_us,) = the_bank.tables("select min(lease_until) from {workers}")[0]
    return bool(until_us < time.time_ns() // 1000)
