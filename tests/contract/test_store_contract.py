"""Our stores pass the suite that every store passes."""

from __future__ import annotations

import pytest

from outlast.ports.clock import Clock
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import Colour
from outlast.testing.store_contract import Case, store_contract


@pytest.mark.parametrize("colour", ["awaiting", "blocking"])
@pytest.mark.parametrize("case", store_contract, ids=str)
def test_every_store_keeps_the_contract_in_both_colours(case: Case, colour: Colour, database_url: str) -> None:
    opened: list[SqlDatabase] = []

    def open_store(clock: Clock | None) -> SqlDatabase:
        # A database in memory lives in one handle.
        if database_url == "sqlite://" and opened:
            return opened[0]
        opened.append(open_database(database_url, clock=clock))
        return opened[-1]

    case.check(open_store, colour)
