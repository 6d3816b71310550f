"""Processes that die with many runs in hand: another one takes all of them to their end, without help."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import field_programs
from support.nursery import Nursery
from support.probing import Tables
from support.programs.ledger import Ledger

KILLED = -9


@dataclass(frozen=True)
class World:
    """A database, the outside world, and processes that work on both."""

    nursery: Nursery
    url: str
    ledger_path: str

    @property
    def tables(self) -> Tables:
        return Tables(self.url)

    def die(self, workflow: str, count: int, at: str, *, concurrency: int = 100) -> None:
        """Have a process work on so many runs and die at this place."""
        child = self.nursery.start(
            field_programs.begin, database=self.url, ledger=self.ledger_path,
            workflow=workflow, count=count, die=at, concurrency=concurrency,
        )  # fmt: skip
        assert child.wait() == KILLED, child.output

    def finish(self, count: int, *, concurrency: int = 100) -> None:
        """Let the lease of the dead process run out, and have another one take the runs to their end."""
        self.tables.end_leases()
        child = self.nursery.start(
            field_programs.finish, database=self.url, ledger=self.ledger_path, count=count, concurrency=concurrency
        )
        assert child.wait() == 0, child.output

    def effects(self) -> Counter[tuple[str, str]]:
        return Counter((effect.run, effect.step) for effect in Ledger(self.ledger_path).effects())

    def recorded(self) -> set[tuple[str, str]]:
        return {(run, name) for run, name in self.tables("select run_id, name from {journal} where phase = 'done'")}

    def statuses(self) -> Counter[str]:
        return Counter(status for (status,) in self.tables("select status from {runs}"))


@pytest.fixture
def world(nursery: Nursery, shared_database_url: str, tmp_path: Path) -> World:
    return World(nursery, shared_database_url, str(tmp_path / "ledger"))


def test_nothing_is_lost_between_a_step_that_is_recorded_and_the_next_one(world: World) -> None:
    world.die("chain", 50, "second:25")
    recorded = world.recorded()
    assert ("run-0", "first") in recorded

    world.finish(50)

    effects = world.effects()
    assert world.statuses() == {"completed": 50}
    assert {effects[step] for step in recorded} == {1}
    assert {step for _, step in effects} == {"first", "second"}


def test_a_run_whose_code_has_returned_is_ended_without_repeating_its_steps(world: World) -> None:
    """One run at a time: the place of the one that died must become free."""
    world.die("chain", 50, "returned:20", concurrency=1)
    assert world.statuses() == {"completed": 19, "running": 1, "pending": 30}
    recorded = world.recorded()

    world.finish(50, concurrency=1)

    effects = world.effects()
    assert world.statuses() == {"completed": 50}
    assert {effects[step] for step in recorded} == {1}


def test_undoing_goes_on_where_it_was_and_keeps_its_reason(world: World) -> None:
    world.die("unwound", 1, "undo-b:1")
    assert world.statuses() == {"compensating": 1}

    world.finish(1)

    steps = [effect.step for effect in Ledger(world.ledger_path).effects()]
    ((status, error),) = world.tables("select status, error from {runs}")
    assert steps == ["a", "b", "c", "$compensate:c", "$compensate:b", "$compensate:a"]
    assert status == "failed"
    assert "no customer" in error


def test_a_signal_to_end_does_not_change_how_runs_have_ended(world: World) -> None:
    child = world.nursery.start(field_programs.end_by_signal, database=world.url, ledger=world.ledger_path, count=100)
    assert child.wait() == 0, child.output
    assert world.statuses() == {"completed": 100}

    world.finish(100)

    assert world.statuses() == {"completed": 100}
    assert set(world.effects().values()) == {1}
