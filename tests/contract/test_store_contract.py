"""Our stores pass the suite that every store passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from outlast.ports.clock import Clock
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import Colour
from outlast.testing.store_contract import Case, store_contract
from support.every_statement import EVERY_STATEMENT


@pytest.mark.every_database
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


@pytest.fixture(params=["an Engine", "an AsyncEngine"])
def engine(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Engine | AsyncEngine]:
    if request.param == "an Engine":
        blocking = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
        yield blocking
        blocking.dispose()
    else:
        # Without a pool: the engine is used in one loop after the other.
        url = postgres_url.replace("postgresql://", "postgresql+asyncpg://")
        yield create_async_engine(url, poolclass=NullPool)


@pytest.mark.parametrize("colour", ["awaiting", "blocking"])
@pytest.mark.parametrize("case", EVERY_STATEMENT, ids=str)
def test_an_engine_of_the_application_carries_every_statement(
    case: Case, colour: Colour, engine: Engine | AsyncEngine
) -> None:
    case.check(lambda clock: open_database(engine, clock=clock), colour)
