"""What a flush row by row does not say to the database."""

from __future__ import annotations

import pytest

from outlast.model.ids import WorkerId
from outlast.ports.operation import Op, Result
from outlast.ports.store import Batch, FlushOutcome, Lease
from outlast.stores.basis import make_basis
from outlast.stores.dialects.mysql import MySQL
from outlast.stores.sql import SqlStore
from outlast.testing.contract.desk import finished, parked

LEASE = Lease(WorkerId("w"), 1)


def _begins(op: Op[FlushOutcome], turns: int) -> list[str]:
    """Return the first word of each statement of a flush of run `r`, which is in that turn."""
    said: list[str] = []
    try:
        statement = next(op)
        while True:
            text = str(statement.sql)
            said.append(text.split(maxsplit=1)[0])
            is_own = "turns" in text and said[-1] == "SELECT"
            statement = op.send(Result([("r", turns) if is_own else (0, 0)], 1))
    except StopIteration:
        return said


@pytest.mark.parametrize("turns, deletes", [(1, 0), (2, 1)])
def test_a_run_in_its_first_turn_has_no_waits_to_delete(turns: int, deletes: int) -> None:
    """To delete what is not there is a round trip, and on InnoDB it locks the gap in which it would be."""
    store = SqlStore(make_basis("outlast", MySQL, None))

    for write in (finished("r"), parked("r", due_at=9)):
        said = _begins(store.flush(LEASE, Batch(writes=(write,))), turns)
        assert said.count("DELETE") == deletes
        assert "UPDATE" in said
