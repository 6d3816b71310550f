"""A shop whose processes die, and what must be so when others have taken its orders to their end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from support.nursery import Nursery, WarmProcess
from support.probing import Tables
from support.programs import orders
from support.programs.ledger import Effect, Ledger
from support.programs.orders import Ending

KILLED = -9
_STATUS = {"delivered": "completed", "refused": "failed", "lost": "failed"}


def stride_on(url: str) -> int:
    """Return at how many statements one is tried: MariaDB is sent the same ones as MySQL, so every third there."""
    return 3 if url.startswith("mariadb") else 1


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

    def freeze(self, version: int, ending: Ending, *, before: int) -> WarmProcess:
        """Have a process of its own begin an order and freeze."""
        return self.nursery.start(
            orders.freeze,
            database=self.url,
            ledger=str(self.folder / "ledger"),
            version=version,
            ending=ending,
            before=before,
        )

    def finish(self, endings: dict[int, Ending]) -> WarmProcess:
        """Let the leases of the others run out, and have one process take all these orders to their end."""
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

    def finish_and_check(self, endings: dict[int, Ending]) -> None:
        """Finish the orders; then everything about each of them is as if its process had never died, but for a step that
        was cut short: that one was done once more, under the same key."""
        recorded, known = self.recorded(), len(self.ledger.effects())
        for version, ending in endings.items():
            # Whatever was done was done on nothing that can be forgotten.
            for effect in self.ledger.effects(orders.id_of(version)):
                assert orders.seen_by(effect.step, ending) <= recorded.get(effect.run, set()), effect

        finisher = self.finish(endings)

        by_id = {row[0]: row for row in self.tables("select id, status, owner, error from {runs}")}
        for version, ending in endings.items():
            run = orders.id_of(version)
            _id, status, owner, error = by_id[run]
            assert (status, owner) == (_STATUS[ending], None), (run, error)
            _check_effects(self.ledger.effects(run), ending, recorded.get(run, set()), finisher.pid)
        assert self.tables("select run_id from {waits}") == []
        assert all(effect.pid == finisher.pid for effect in self.ledger.effects()[known:])


def _check_effects(effects: list[Effect], ending: Ending, recorded: set[str], finisher: int) -> None:
    called = orders.called_in(ending)
    undone = [f"$compensate:{name}" for name in orders.undone_in(ending)]
    assert {effect.step for effect in effects} == {*called, *undone}
    for name in (*called, *undone):
        mine = [effect for effect in effects if effect.step == name]
        # One key, whoever did it; each attempt once, and one that was cut short once more.
        assert {effect.key for effect in mine} == {f"{mine[0].run}:{name}"}
        assert len(mine) <= most_calls(name), mine
        assert mine[-1].done
        # What was recorded is not done again.
        assert name not in recorded or finisher not in {effect.pid for effect in mine}
    assert [step for step, _ in itertools.groupby(effects, lambda effect: effect.step) if step in undone] == undone


def most_calls(name: str) -> int:
    """How often a step may be done when it was cut short once."""
    return 3 if name in orders.FLAWED else 2
