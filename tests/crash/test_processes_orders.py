"""Processes that are killed in the middle of an order, wherever that is; another one takes it to its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from support.nursery import Nursery, WarmProcess
from support.probing import Tables
from support.programs import orders
from support.programs.ledger import Effect, Ledger
from support.programs.orders import Ending

KILLED = -9
AT_ONCE = 3
"""Orders that are begun side by side: each spends much of its time waiting."""

STATUS = {"delivered": "completed", "refused": "failed", "lost": "failed"}


@dataclass(frozen=True)
class Shop:
    """A database, the outside world, and processes that work on both."""

    nursery: Nursery
    url: str
    folder: Path

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger")

    @property
    def tables(self) -> Tables:
        return Tables(self.url)

    def begin(self, version: int, ending: Ending, *, die: str | None = None, before: int | None = None) -> int:
        """Have a process of its own begin an order, and return its exit code."""
        child = self.nursery.start(
            orders.begin,
            database=self.url,
            ledger=str(self.folder / "ledger"),
            version=version,
            ending=ending,
            die=die,
            die_before=before,
        )
        code = child.wait()
        assert code in {0, KILLED}, child.output
        return code

    def finish(self, endings: dict[int, Ending]) -> WarmProcess:
        """Let the leases of the dead run out, and have one process take all these orders to their end."""
        self.tables.end_leases()
        child = self.nursery.start(
            orders.finish, database=self.url, ledger=str(self.folder / "ledger"), endings=endings
        )
        assert child.wait(timeout=60) == 0, child.output
        return child

    def recorded(self) -> dict[str, set[str]]:
        """The steps and compensations whose end is in the journals now."""
        found: dict[str, set[str]] = {}
        rows = self.tables(
            "select run_id, name from {journal} where kind in ('step', 'compensation') and phase in ('done', 'failed')"
        )
        for run_id, name in rows:
            found.setdefault(run_id, set()).add(name)
        return found


@pytest.fixture
def shop(nursery: Nursery, shared_database_url: str, tmp_path: Path) -> Shop:
    return Shop(nursery, shared_database_url, tmp_path)


@pytest.mark.time_limit(120)
def test_an_order_survives_a_kill_at_any_point_of_it(shop: Shop) -> None:
    cases = [(ending, point) for ending in get_args(Ending) for point in orders.points_of(ending)]
    endings = {version: ending for version, (ending, _) in enumerate(cases, 1)}

    codes = _side_by_side(lambda version, case: shop.begin(version, case[0], die=case[1]), enumerate(cases, 1))

    assert {case for case, code in zip(cases, codes, strict=True) if code != KILLED} == set()
    _assert_all_end_well(shop, endings)


@pytest.mark.time_limit(180)
def test_an_order_survives_a_kill_before_any_statement(shop: Shop) -> None:
    def begin(number: int) -> int:
        return shop.begin(number, "lost", before=number)

    codes: list[int] = []
    while not codes or KILLED in codes[-AT_ONCE:]:
        codes += _side_by_side(begin, ((number,) for number in range(len(codes) + 1, len(codes) + 1 + AT_ONCE)))

    # Making the tables, registering, starting, claiming, recording, parking three times: it cannot be fewer.
    assert codes.count(KILLED) > 25
    _assert_all_end_well(shop, dict.fromkeys(range(1, len(codes) + 1), "lost"))


def _side_by_side(call: Callable[..., int], arguments: Iterable[tuple[Any, ...]]) -> list[int]:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda each: call(*each), arguments))


def _assert_all_end_well(shop: Shop, endings: dict[int, Ending]) -> None:
    """Finish the orders; then everything about each of them is as if its process had never died, but for a step that was
    cut short: that one was done once more, under the same key."""
    recorded, known = shop.recorded(), len(shop.ledger.effects())

    finisher = shop.finish(endings)

    rows = shop.tables("select id, status, owner, turns, lapses, error from {runs}")
    by_id = {row[0]: row for row in rows}
    assert sorted(by_id) == sorted(orders.id_of(version) for version in endings)
    for version, ending in endings.items():
        run = orders.id_of(version)
        _id, status, owner, _turns, _lapses, error = by_id[run]
        assert (status, owner) == (STATUS[ending], None), (run, error)
        _assert_effects(shop.ledger.effects(run), ending, recorded.get(run, set()), finisher.pid)
    assert shop.tables("select run_id from {waits}") == []
    assert all(effect.pid == finisher.pid for effect in shop.ledger.effects()[known:])


def _assert_effects(effects: list[Effect], ending: Ending, recorded: set[str], finisher: int) -> None:
    called = orders.called_in(ending)
    undone = [f"$compensate:{name}" for name in orders.undone_in(ending)]
    assert {effect.step for effect in effects} == {*called, *undone}
    for name in (*called, *undone):
        mine = [effect for effect in effects if effect.step == name]
        # One key, whoever did it; each attempt once, and one that was cut short once more.
        assert {effect.key for effect in mine} == {f"{mine[0].run}:{name}"}
        assert len(mine) <= (3 if name in orders.FLAWED else 2), mine
        assert mine[-1].done
        # What was recorded is not done again.
        assert name not in recorded or finisher not in {effect.pid for effect in mine}
    assert [step for step, _ in itertools.groupby(effects, lambda effect: effect.step) if step in undone] == undone
