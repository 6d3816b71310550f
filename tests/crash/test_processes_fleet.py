"""Many processes on one database: they share its runs, they all find its tables made, and none does what another does."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outlast import Outlast
from support.nursery import Nursery
from support.probing import Tables, until
from support.programs import fleet
from support.programs.ledger import Ledger

KILLED = -9
AT_ONCE = 3
RUNS = 500


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return str(tmp_path / "ledger")


@pytest.mark.time_limit(120)
@pytest.mark.parametrize("count", [2, 8])
def test_processes_share_runs_and_do_each_once(
    nursery: Nursery, shared_database_url: str, ledger: str, count: int
) -> None:
    """Reading "pending" and writing "running" in two statements gave a run to two workers. Each worker takes seven at most,
    so all of them claim again and again, and on SQLite all write to one file."""
    workers = [
        nursery.start(fleet.serve, database=shared_database_url, ledger=ledger, concurrency=7) for _ in range(count)
    ]
    for worker in workers:
        worker.wait_for("works")

    client = Outlast(shared_database_url, workflows=[fleet.working], worker=False)
    client.blocking.start_many(fleet.working, range(RUNS), ids=[fleet.run_id(number) for number in range(RUNS)])

    tables = Tables(shared_database_url)
    open_runs = "select count(*) from {runs} where finished_at is null"
    until(lambda: tables(open_runs) == [(0,)], "all runs to end", timeout=90)
    client.blocking.close()
    effects = Ledger(ledger).effects()
    assert Counter(effect.run for effect in effects) == {fleet.run_id(number): 1 for number in range(RUNS)}
    assert tables("select distinct status, owner, turns, lapses from {runs}") == [("completed", None, 1, 0)]
    assert len({effect.pid for effect in effects}) > 1
    assert [worker.output.splitlines()[1:] for worker in workers] == [["works"]] * count


@pytest.mark.time_limit(120)
def test_ten_processes_that_start_together_make_the_tables_once(
    nursery: Nursery, shared_database_url: str, ledger: str
) -> None:
    """Several installed at once: one died, or the version stood there twice and was broken for good."""
    for repetition in range(3):
        schema = f"outlast_{repetition}"
        together = [
            nursery.start(fleet.boot, database=shared_database_url, ledger=ledger, number=number, schema=schema)
            for number in range(10)
        ]

        assert [child.wait() for child in together] == [0] * 10, "\n".join(child.output for child in together)

        tables = Tables(shared_database_url, schema)
        assert tables("select version from {migrations}") == [(1,)]
        assert tables("select count(*) from {runs} where status = 'completed'") == [(10,)]
        later = nursery.start(fleet.boot, database=shared_database_url, ledger=ledger, number=10, schema=schema)
        assert later.wait() == 0, later.output


@pytest.mark.time_limit(120)
def test_a_process_killed_while_it_makes_the_tables_leaves_a_database_that_others_can_use(
    nursery: Nursery, shared_database_url: str, ledger: str
) -> None:
    def kill_and_boot(number: int) -> int:
        schema = f"outlast_{number}"
        first = nursery.start(fleet.make_tables, database=shared_database_url, schema=schema, die_before=number)
        code = first.wait()
        assert code in {0, KILLED}, first.output
        second = nursery.start(fleet.boot, database=shared_database_url, ledger=ledger, number=number, schema=schema)
        assert second.wait() == 0, second.output
        assert Tables(shared_database_url, schema)("select version from {migrations}") == [(1,)]
        return code

    codes: list[int] = []
    with ThreadPoolExecutor(AT_ONCE) as threads:
        while 0 not in codes:
            codes += threads.map(kill_and_boot, range(len(codes) + 1, len(codes) + 1 + AT_ONCE))

    # BEGIN, six tables, the version, COMMIT; and their indexes, but on MySQL and MariaDB, where a table has its own.
    assert codes.count(KILLED) > (12 if shared_database_url.startswith(("sqlite", "postgres")) else 8)
