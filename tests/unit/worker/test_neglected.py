"""Runs that nobody gets on with: how often they are looked at, and what is told."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from outlast.errors import DatabaseUnavailable
from outlast.ports.store import Unclaimed
from outlast.worker import neglected
from outlast.worker.neglected import Neglected
from support.worker_fakes import FakeDatabase, until


class World:
    """A worker's care for neglected runs, over a database that answers as the test says."""

    def __init__(self, **answers: object) -> None:
        self.database = FakeDatabase(**answers)
        self.free = 7
        self.looks = 0
        self.is_stopping = False
        self.workflows = {("order", 2): None, ("order", 3): None}
        place: Any = self
        self.care = Neglected(place, lambda: self.free)

    @property
    def time(self) -> World:
        return self

    def now(self) -> int:
        return 1_000

    def look(self) -> None:
        self.looks += 1


async def test_each_workflow_that_nobody_has_is_told_once_at_each_look(caplog: pytest.LogCaptureFixture) -> None:
    world = World(unclaimed=(Unclaimed("order", 1, 12), Unclaimed("gone", 1, 1)))
    await world.care.tell_of_unclaimed(timedelta(minutes=5))

    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    first, second = caplog.messages
    assert "12 runs of workflow 'order' version 1 have been due for over 5m" in first
    assert "registered: order version 2, order version 3" in first
    assert "app.list(workflow='order', version=1)" in first
    assert "'gone'" in second


async def test_the_first_look_comes_soon_and_the_others_every_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the other way about: a workflow whose name was misspelt was told of when nobody looked on any more."""
    overdue: list[int] = []
    world = World()
    world.database.store.unclaimed = lambda _, *, overdue: ("unclaimed", (overdue,))  # type: ignore[method-assign]
    world.database.answers["unclaimed"] = lambda us: overdue.append(us) or ()
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 3:
            world.is_stopping = True

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await world.care.run()

    assert pauses == [10, 300, 300, 300]
    assert overdue == [10_000_000, 300_000_000, 300_000_000, 300_000_000]


async def test_held_runs_are_tried_in_groups_as_large_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neglected, "_PAUSE", 0)
    left = iter([7, 7, 2, 0])
    world = World(retry_held=lambda *_: next(left))

    await world.care.retry_held()

    assert world.looks == 3
    assert len(world.database.asked_for("retry_held")) == 4


async def test_held_runs_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neglected, "_PAUSE", 0)
    world = World()
    world.free = 0
    trying = asyncio.ensure_future(world.care.retry_held())
    await asyncio.sleep(0)
    assert world.database.log == []

    world.free = 1
    await trying

    assert len(world.database.log) == 1


@pytest.mark.parametrize("error", [DatabaseUnavailable("away"), RuntimeError("odd")])
async def test_an_error_costs_one_look_and_no_more(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neglected, "FIRST_LOOK", 0)
    monkeypatch.setattr(neglected, "LOOK_EVERY", 0)
    world = World(retry_held=error, unclaimed=error)
    caring = asyncio.ensure_future(world.care.run())

    await until(lambda: len(world.database.asked_for("unclaimed")) == 3)

    caring.cancel()
    assert len(world.database.asked_for("retry_held")) == 1
