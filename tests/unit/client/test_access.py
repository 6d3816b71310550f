from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast.client.access import Access, Local
from outlast.errors import SchemaBehind, WrongColour
from outlast.model.ids import RunId
from support.fake_database import FakeDatabase


async def test_the_tables_are_looked_at_until_they_are_right_and_then_no_more() -> None:
    """A process that found old tables goes on by itself once they are migrated: nobody restarts it."""
    database: Any = FakeDatabase(behind=True)
    access = Access(database, migrates=False)

    with pytest.raises(SchemaBehind):
        await access.ready("get")
    database.behind = False
    await access.ready("get")
    await access.ready("get")

    assert database.asked == ["open", "check", "open", "check"]


async def test_old_tables_are_migrated_where_that_is_wanted() -> None:
    database: Any = FakeDatabase(behind=True)

    await Access(database, migrates=True).ready("get")

    assert database.asked == ["open", "check", "migrate", "check"]


async def test_first_calls_of_one_moment_open_once() -> None:
    database: Any = FakeDatabase(behind=True)
    access = Access(database, migrates=True)

    await asyncio.gather(*(access.ready("get") for _ in range(20)))

    assert database.asked == ["open", "check", "migrate", "check"]


def test_the_blocking_side_does_the_same() -> None:
    database: Any = FakeDatabase(behind=True)

    with pytest.raises(SchemaBehind):
        Access(database, migrates=False).ready_blocking("get")
    access = Access(database, migrates=True)
    access.ready_blocking("get")
    access.ready_blocking("get")

    assert database.asked == ["check", "check", "migrate", "check"]


async def test_a_blocking_call_where_a_loop_runs_names_the_awaited_form() -> None:
    database: Any = FakeDatabase()

    with pytest.raises(WrongColour, match=r"await app\.get\(\.\.\.\)"):
        Access(database, migrates=False).ready_blocking("get")

    assert database.asked == []


def test_one_app_serves_several_loops_one_after_the_other() -> None:
    database: Any = FakeDatabase()
    access = Access(database, migrates=False)

    asyncio.run(access.ready("get"))
    access.forget()
    asyncio.run(access.ready("get"))

    assert database.asked == ["open", "check", "open", "check"]


def test_a_worker_on_a_closed_loop_is_not_asked() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    called: list[str] = []
    worker: Any = object()

    Local(worker, loop).call(lambda: called.append("called"))

    assert called == []


async def test_the_end_of_a_transaction_that_nothing_tells_of_is_looked_for() -> None:
    """On such a handle, of a database that tells nobody either, a run waited for the worker's next look."""
    woken = asyncio.Event()

    class Worker:
        wake = staticmethod(woken.set)

    worker: Any = Worker()
    database: Any = FakeDatabase(opens=[True, True, True, False])
    access = Access(database, migrates=False)
    access.local = Local(worker, asyncio.get_running_loop())

    access.wake(tx=object())
    assert not woken.is_set()

    await woken.wait()
    assert database.opens == []


async def test_a_stop_in_such_a_transaction_is_told_after_it_too() -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    class Worker:
        def stop_requested(self, run_id: str) -> None:
            told.put_nowait(run_id)

        def wake(self) -> None: ...

    worker: Any = Worker()
    database: Any = FakeDatabase(opens=[True, False])
    access = Access(database, migrates=False)
    access.local = Local(worker, asyncio.get_running_loop())

    access.stop_requested(RunId("r"), tx=object())

    assert await told.get() == "r"
    assert database.opens == []
