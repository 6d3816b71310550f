"""PostgreSQL: how its connections are made, and the roads over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, Engine, event

from outlast.model.connections import ConnectionOptions
from outlast.ports.clock import Clock
from outlast.ports.transactions import Transactions
from outlast.stores.basis import Basis, make_basis
from outlast.stores.databases.connector import CONNECTIONS, LIMITED, SETTING, Connector, is_installed, setting
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.notifications import Notifications, asyncpg_ear, psycopg_ear
from outlast.stores.databases.pooled_road import PooledRoad
from outlast.stores.databases.postgres_reset import reset_blocking
from outlast.stores.databases.raw_pools import BlockingPoolRoad, PoolRoad, RawPool, acquired_from
from outlast.stores.databases.roads import BlockingRoad, Road
from outlast.stores.databases.sqlalchemy_roads import AsyncEngineRoad, EngineRoad, Limits, OnThreads
from outlast.stores.databases.wire import Wire
from outlast.stores.dialects.base import Dialect
from outlast.stores.dialects.postgresql import PostgreSQL, channel

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

LIMITS: Final = Limits(begin=setting(LIMITED))
"""The same limits on connections of the application's, for one transaction."""

GIVEN: Final[Mapping[str, str]] = {
    "application_name": "outlast-step",
    # What a process that is paused inside a step has locked, another that has taken its run over waits for.
    "idle_in_transaction_session_timeout": "60s",
}
"""The settings of connections that the application writes on: its statements are not ours."""


def postgres_database(url: URL, options: ConnectionOptions, *, schema: str, clock: Clock | None) -> SqlDatabase:
    """Return the database behind a URL: asyncpg or psycopg for awaiting callers, psycopg for blocking ones."""
    return connected_database(Connector(url, options), schema=schema, clock=clock)


def connected_database(connector: Connector, *, schema: str, clock: Clock | None) -> SqlDatabase:
    """Return the database over connections of ours."""
    basis = make_basis(schema, PostgreSQL, clock)

    def over(limit: int) -> SqlDatabase:
        return SqlDatabase(
            basis,
            PooledRoad(basis.dialect, connector.connect, connector.wire, limit=limit),
            EngineRoad(basis.dialect, connector.blocking_engine, disposes=True, limits=_limits(connector)),
            listener=_notifications(basis, connector),
            separate=lambda: over(limit=2),
            own=GivenConnections(basis.dialect, connector),
        )

    return over(CONNECTIONS)


def async_engine_database(
    engine: AsyncEngine, options: ConnectionOptions, *, schema: str, clock: Clock | None
) -> SqlDatabase:
    """Return the database of an application's AsyncEngine. Blocking callers get connections of ours to the same place."""
    basis = make_basis(schema, PostgreSQL, clock)
    connector = Connector(engine.url, options)

    def over() -> SqlDatabase:
        return SqlDatabase(
            basis,
            AsyncEngineRoad(basis.dialect, engine, limits=_limits(connector) or LIMITS),
            EngineRoad(basis.dialect, connector.blocking_engine, disposes=True, limits=_limits(connector)),
            listener=_notifications(basis, connector),
            own=GivenConnections(basis.dialect, connector),
            # Another loop cannot use the engine.
            separate=lambda: connected_database(connector, schema=schema, clock=clock),
        )

    return over()


def engine_database(engine: Engine, options: ConnectionOptions, *, schema: str, clock: Clock | None) -> SqlDatabase:
    """Return the database of an application's Engine. Awaiting callers use it on threads."""
    basis = make_basis(schema, PostgreSQL, clock)
    connector = Connector(engine.url, options)

    def over() -> SqlDatabase:
        road = EngineRoad(basis.dialect, lambda: engine, disposes=False, limits=_limits(connector) or LIMITS)
        return SqlDatabase(basis, OnThreads(road), road, listener=_notifications(basis, connector), separate=over)

    return over()


def pool_database(raw: RawPool, options: ConnectionOptions, *, schema: str, clock: Clock | None) -> SqlDatabase:
    """Return the database of a pool of the application's. What the pool is no good for, another loop or colour, the lease's
    renewal and listening, gets connections of ours to the same place."""
    basis = make_basis(schema, PostgreSQL, clock)
    credentials = options.credentials or raw.credentials
    connector = Connector(raw.url, replace(options, credentials=credentials), more=raw.more)
    # Nothing can be set on its connections for good.
    wire = Wire(connector.wire.execute, SETTING)
    if raw.is_blocking:
        blocking: BlockingRoad = BlockingPoolRoad(basis.dialect, raw.pool, wire)
        road: Road = OnThreads(blocking)
    else:
        road = PoolRoad(basis.dialect, acquired_from(raw.pool), wire)
        blocking = EngineRoad(basis.dialect, connector.blocking_engine, disposes=True, limits=_limits(connector))
    return SqlDatabase(
        basis,
        road,
        blocking,
        listener=_notifications(basis, connector),
        own=GivenConnections(basis.dialect, connector),
        separate=lambda: connected_database(connector, schema=schema, clock=clock),
    )


def _limits(connector: Connector) -> Limits | None:
    begin = connector.limits
    return None if begin is None else Limits(begin)


def _notifications(basis: Basis, connector: Connector) -> Notifications | None:
    """Return what hears of new work, if anything is to be heard and somebody is installed who can: else the poll does."""
    direct = connector.direct()
    if direct is None or not is_installed(direct.driver):
        return None
    ear = asyncpg_ear if direct.driver == "asyncpg" else psycopg_ear
    return Notifications(ear(direct.connect), channel(basis.tables))


class GivenConnections:
    """Transactions for an application that has none of its own: of the driver where they are awaited, else of an engine over
    psycopg."""

    def __init__(self, dialect: Dialect, connector: Connector) -> None:
        self._awaiting = PooledRoad(dialect, partial(connector.connect, GIVEN), connector.wire, limit=CONNECTIONS)
        self._blocking = EngineRoad(dialect, partial(_given_engine, connector), disposes=True)
        self.transactions: Transactions = Transactions(
            awaiting=self._awaiting.transaction, blocking=self._blocking.begin, is_sure=True
        )  # fmt: skip

    async def close(self) -> None:
        self._blocking.close()
        await self._awaiting.close()

    def close_blocking(self) -> None:
        # Those that a worker has at this moment are closed when it gives them back, and it makes new ones.
        self._blocking.close()


def _given_engine(connector: Connector) -> Engine:
    engine = connector.blocking_engine(GIVEN)
    event.listen(engine, "reset", reset_blocking)
    return engine
