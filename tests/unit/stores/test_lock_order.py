"""Rows that one statement locks are given in ascending order of their keys: nobody ever waits in a circle for them.

Two statements cannot be stopped half-way, so no race test can meet in the middle of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from outlast.model.ids import WorkerId
from outlast.ports.operation import Op, Result, Statement
from outlast.ports.store import Batch, Lease, NewSignal, Wait
from outlast.stores.basis import make_basis
from outlast.stores.dialects.mysql import MySQL
from outlast.stores.dialects.postgresql import PostgreSQL
from outlast.stores.dialects.sqlite import SQLite
from outlast.stores.rows.writing import Writes
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import finished, new_run, parked

NAMES = ["b", "Z", "a", "é", "_", "10", "9"]
LEASE = Lease(WorkerId("w"), 1)


def _statements(op: Op[Any], *answers: Sequence[Any]) -> list[Statement]:
    """Return the statements of an op, each answered with rows that let it go on."""
    given = iter(answers)
    made: list[Statement] = []
    try:
        made.append(next(op))
        while True:
            made.append(op.send(Result(next(given, ()), 1)))
    except StopIteration:
        return made
    finally:
        op.close()


@pytest.fixture
def postgresql() -> SqlStore:
    return SqlStore(make_basis("outlast", PostgreSQL, None))


def _arrays(statement: Statement) -> Mapping[str, Any]:
    assert isinstance(statement.params, Mapping)
    return statement.params


def test_starts_go_by_id(postgresql: SqlStore) -> None:
    op = postgresql.start([new_run(name) for name in NAMES])

    assert _arrays(next(op))["ids"] == sorted(NAMES)


def test_starts_go_by_id_row_by_row_too() -> None:
    store = SqlStore(make_basis("outlast", SQLite, None))
    found = [(name, "work", 1, "1", "pending", 0) for name in NAMES]

    made = _statements(store.start([new_run(name) for name in NAMES]), [(0, 0)], *([()] * len(NAMES)), found)

    assert [_arrays(statement)["id"] for statement in made[1 : len(NAMES) + 1]] == sorted(NAMES)


def test_starts_and_writes_that_go_together_go_by_id() -> None:
    """Each statement locks its rows in the order in which they stand in it."""
    basis = make_basis("outlast", MySQL, None)
    store = SqlStore(basis)
    starting = store.start([new_run(name) for name in NAMES])
    next(starting)
    inserted: Any = starting.send(Result([(0, 0)])).params
    written: Any = next(Writes(basis).apply(LEASE, [finished(name) for name in NAMES], set(), 0)).params

    assert [row["id"] for row in inserted] == sorted(NAMES)
    assert [written[f"run_id_of_{place}"] for place in range(len(NAMES))] == sorted(NAMES)


def test_a_flush_goes_by_id(postgresql: SqlStore) -> None:
    batch = Batch(
        starts=tuple(new_run(f"new {name}") for name in NAMES), writes=tuple(finished(name) for name in NAMES)
    )

    arrays = _arrays(next(postgresql.flush(LEASE, batch)))

    assert (arrays["write_ids"], arrays["ids"]) == (sorted(NAMES), sorted(f"new {name}" for name in NAMES))


def test_senders_and_parking_runs_lock_topics_in_one_order(postgresql: SqlStore) -> None:
    sending = postgresql.send([NewSignal("s", name, "1", "null") for name in NAMES])
    parking = postgresql.flush(LEASE, Batch(writes=(parked("r", *(Wait(name, 0) for name in reversed(NAMES))),)))

    exclusive, shared = _arrays(next(sending))["keys"], _arrays(next(parking))["keys"]

    assert exclusive == shared == sorted(exclusive)
