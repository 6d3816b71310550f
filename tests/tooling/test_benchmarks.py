"""What the benchmark says of its figures. Nothing is measured here."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from benchmarks.counters import counters_of
from benchmarks.measure import latencies, process_tree_cpu
from benchmarks.plan import PLAN, SYSTEMS, database_of, planned
from benchmarks.probing import probe_of
from benchmarks.report import judge, summarize, tables
from benchmarks.run import names
from benchmarks.targets import TARGETS
from support.probing import connect_mysql


def measured(system: str, workload: str, **figures: float) -> dict[str, Any]:
    return {"round": 1, "system": system, "workload": workload, "figures": figures}


def goal(rows: list[dict[str, Any]], label: str, peer: str | None) -> dict[str, Any]:
    (row,) = [row for row in rows if row["goal"] == label and row["peer"] == peer]
    return row


def test_a_ratio_compares_the_medians_of_all_rounds() -> None:
    ours = [measured("outlast", "w1-queue-1", runs_per_s=value) for value in (900.0, 1400.0, 1500.0)]
    theirs = [measured("dbos", "w1-queue-1", runs_per_s=value) for value in (70.0, 10.0, 80.0)]

    row = goal(judge(summarize([*ours, *theirs])), "W1 by queue, 1 worker, runs/s", "dbos")

    assert row["times"] == pytest.approx(20)
    assert row["needed"] == pytest.approx(1000 / 70)
    assert row["reached"]


def test_a_figure_that_should_be_small_is_better_when_it_is_smaller() -> None:
    found = [measured("outlast", "w3", p50_ms=5.0), measured("dbos", "w3", p50_ms=10.0)]

    row = goal(judge(summarize(found)), "W3 signal to result, p50 ms", "dbos")

    assert row["times"] == pytest.approx(2)
    assert not row["reached"]


def test_growth_has_a_limit_of_its_own() -> None:
    row = goal(judge(summarize([measured("outlast", "w6", stale_growth=1.3)])), "W6 growth, stale statistics", None)

    assert not row["reached"]


def test_the_queue_of_absurd_stands_in_for_its_single_process() -> None:
    found = [measured("outlast", "w1-direct", runs_per_s=1790.0), measured("absurd", "w1-queue-1", runs_per_s=179.0)]

    row = goal(judge(summarize(found)), "W1 in process, runs/s", "absurd")

    assert row["times"] == pytest.approx(10)


def test_a_failed_measurement_is_no_figure() -> None:
    assert tables([{"round": 1, "system": "dbos", "workload": "w3", "error": "it ended with status 1"}]) == ""


def test_every_goal_is_measured_for_outlast_and_for_its_peers() -> None:
    for target in TARGETS:
        assert target.system in PLAN[target.workload]
        for peer in target.reference:
            assert peer in PLAN[target.workload] or (peer == "absurd" and target.workload == "w1-direct")


def test_the_systems_take_turns_in_every_workload_of_a_round() -> None:
    order = [(one.round, one.workload, one.system) for one in planned(["w3"], ["outlast", "dbos"], 2, quick=True)]

    assert order == [(1, "w3", "outlast"), (1, "w3", "dbos"), (2, "w3", "outlast"), (2, "w3", "dbos")]


def test_a_part_of_a_name_stands_for_all_that_begin_so_but_a_whole_name_for_itself() -> None:
    assert names(SYSTEMS)("outlast") == ["outlast"]
    assert names(tuple(PLAN))("w5") == ["w5-single", "w5-bulk"]


def test_latencies_are_given_in_milliseconds() -> None:
    found = latencies([number / 1000 for number in range(1, 102)])

    assert (found["p50_ms"], found["p95_ms"], found["max_ms"]) == (51, 96, 101)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU is read from /proc")
def test_the_cpu_of_a_process_tree_grows_with_its_work() -> None:
    before = process_tree_cpu(os.getpid())
    began = os.times().user
    while os.times().user < began + 0.05:
        pass

    assert process_tree_cpu(os.getpid()) > before


async def test_a_copied_row_differs_only_where_it_is_told_to(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    with sqlite3.connect(file) as connection:
        connection.execute("create table runs (id text, status text)")
        connection.execute("insert into runs values ('a', 'completed'), ('b', 'running')")
    connection.close()

    async with probe_of(f"sqlite:///{file}") as probe:
        await probe.clone("runs", "s.id = 'a'", 3, {"id": "'copy-' || g"})

        assert await probe.count("select count(*) from runs where status = 'completed'") == 4
        assert await probe.column("select id from runs where id like 'copy-%'") == ["copy-1", "copy-2", "copy-3"]


async def test_rows_are_copied_and_read_anew_on_mysql_and_mariadb_too(mysqlish_url: str) -> None:
    async with probe_of(mysqlish_url) as probe:
        await probe.execute(
            "create table runs (number int auto_increment primary key, id varchar(20), status varchar(20))"
        )
        await probe.execute("insert into runs (id, status) values ('a', 'completed'), ('b', 'running')")

        await probe.clone("runs", "s.id = 'a'", 3_000, {"id": "'copy-' || g"})
        await probe.freeze_statistics()
        await probe.analyze()

        assert await probe.count("select count(*) from runs where status = 'completed'") == 3_001
        assert await probe.column("select id from runs where number > 2 order by number limit 1") == ["copy-1"]


async def test_a_server_counts_what_was_measured_and_nothing_of_the_harness(mysqlish_url: str) -> None:
    counters = counters_of(mysqlish_url)
    await counters.open()
    async with probe_of(mysqlish_url) as probe:
        await probe.execute("create table runs (id int primary key)")
        with connect_mysql(mysqlish_url) as connection, connection.cursor() as cursor:
            before = await counters.read()
            for number in range(3):
                cursor.execute(f"insert into runs values ({number})")
            await probe.count("select count(*) from runs")
            after = await counters.read()
    await counters.close()

    assert after["statements"] - before["statements"] == 3
    assert after["commits"] - before["commits"] >= 3
    assert after["wal_bytes"] > before["wal_bytes"]


def test_outlast_is_measured_on_every_database_it_is_for() -> None:
    kinds = {database_of(system) for system in SYSTEMS if system.startswith("outlast")}

    assert kinds == {"postgresql", "mysql", "mariadb", "sqlite"}
    for workload, sizes in PLAN.items():
        if "outlast" in sizes:
            assert {"outlast-mysql", "outlast-mariadb"} <= sizes.keys(), workload
