"""Publishing that stops before any of its statements, or before COMMIT, has done nothing; one that ends has done all."""

from __future__ import annotations

import pytest

from outlast.stores.databases.opening import open_database
from support.programs.publishing import OrderDelivered, OrderPlaced, Thank, fulfil
from support.publications import publishing
from support.stopping import assert_all_or_nothing

EVENTS: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
    "a lone start, then a signal": ((OrderPlaced("7"), OrderDelivered("7", "p-1")), (fulfil,)),
    "two starts": ((OrderPlaced("7"),), (fulfil, Thank)),
    "one id twice": ((OrderPlaced("7"), OrderPlaced("7")), (fulfil,)),
    "everything": (
        (OrderPlaced("7"), OrderPlaced("8"), OrderDelivered("7", "p"), OrderDelivered("8", "q")),
        (fulfil, Thank),
    ),
    "what is there already": ((OrderPlaced("known"), OrderPlaced("7"), OrderDelivered("known", "r")), (fulfil, Thank)),
}


@pytest.mark.parametrize("events, workflows", EVENTS.values(), ids=EVENTS.keys())
async def test_a_stop_before_any_statement_leaves_nothing_and_another_try_does_it_all(
    database_url: str, events: tuple[object, ...], workflows: tuple[object, ...]
) -> None:
    make = publishing(*events, workflows=workflows)
    database = open_database(database_url)
    await database.open()
    await database.migrate()
    await database.run(lambda: publishing(OrderPlaced("known"), OrderDelivered("known", "s"))(database.store))

    assert await assert_all_or_nothing(database, make) > 1

    await database.close()
    database.close_blocking()
