"""PostgreSQL: how its connections are made, and the roads over them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, Engine, create_engine, text

from outlast.errors import DatabaseUnavailable, DriverMissing
from outlast.ports.clock import Clock
from outlast.ports.operation import Statement
from outlast.stores.basis import Basis, make_basis
from outlast.stores.databases.asyncpg_road import AsyncpgRoad
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.notifications import Notifications
from outlast.stores.databases.sqlalchemy_roads import AsyncEngineRoad, EngineRoad, OnThreads
from outlast.stores.dialects.postgresql import PostgreSQL, channel, refused_for_good

if TYPE_CHECKING:
    import asyncpg
    from sqlalchemy.ext.asyncio import AsyncEngine

    Connection = asyncpg.Connection[asyncpg.Record]

CONNECTIONS: Final = 10
"""The most connections of one event loop. A worker needs two; callers that all start or send at once share the rest."""

SETTINGS: Final[Mapping[str, str]] = {
    "application_name": "outlast",
    # Every statement here goes by an index, one row after the other. With statistics that are behind (a table that grew
    # since the last ANALYZE) the planner would at times rather read whole tables. Held by tests/plans.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    # A process that is stopped in the middle of a transaction keeps its locks no longer than this.
    "idle_in_transaction_session_timeout": "10s",
    # A caller may keep the transaction open in which it cancelled a run or sent a signal. A worker has other runs to write
    # for meanwhile. Held by tests/faults/test_callers_transactions.py.
    "lock_timeout": "500ms",
}
_LIMITED: Final = ("idle_in_transaction_session_timeout", "lock_timeout")
LIMITS: Final = Statement(
    text("select " + ", ".join(f"set_config('{name}', '{SETTINGS[name]}', true)" for name in _LIMITED))
)
"""The same limits on connections of the application's, for one transaction."""

_CONNECT_TIMEOUT: Final = 10.0


def postgres_database(url: URL, *, schema: str, clock: Clock | None) -> SqlDatabase:
    """Return the database behind a URL: asyncpg for awaiting callers, psycopg for blocking ones."""
    basis = make_basis(schema, PostgreSQL, clock)
    connector = Connector(url)

    def over(limit: int) -> SqlDatabase:
        return SqlDatabase(
            basis,
            AsyncpgRoad(basis.dialect, connector.connect, limit=limit),
            EngineRoad(basis.dialect, connector.blocking_engine, disposes=True),
            listener=_notifications(basis, connector),
            separate=lambda: over(limit=2),
        )

    return over(CONNECTIONS)


def async_engine_database(engine: AsyncEngine, *, schema: str, clock: Clock | None) -> SqlDatabase:
    """Return the database of an application's AsyncEngine. Blocking callers get connections of ours to the same place."""
    basis = make_basis(schema, PostgreSQL, clock)
    connector = Connector(engine.url)

    def over() -> SqlDatabase:
        return SqlDatabase(
            basis,
            AsyncEngineRoad(basis.dialect, engine, limits=LIMITS),
            EngineRoad(basis.dialect, connector.blocking_engine, disposes=True),
            listener=_notifications(basis, connector),
            # Another loop cannot use the engine.
            separate=lambda: postgres_database(engine.url, schema=schema, clock=clock),
        )

    return over()


def engine_database(engine: Engine, *, schema: str, clock: Clock | None) -> SqlDatabase:
    """Return the database of an application's Engine. Awaiting callers use it on threads."""
    basis = make_basis(schema, PostgreSQL, clock)
    connector = Connector(engine.url)

    def over() -> SqlDatabase:
        road = EngineRoad(basis.dialect, lambda: engine, disposes=False, limits=LIMITS)
        return SqlDatabase(basis, OnThreads(road), road, listener=_notifications(basis, connector), separate=over)

    return over()


def _notifications(basis: Basis, connector: Connector) -> Notifications | None:
    # An application on another driver works by polling.
    return Notifications(connector.connect, channel(basis.tables)) if _is_installed("asyncpg") else None


class Connector:
    """Makes connections of ours to one database."""

    def __init__(self, url: URL) -> None:
        query = dict(url.query)
        # SQLAlchemy's URLs for asyncpg write it so; both drivers know the usual name.
        if "ssl" in query:
            query["sslmode"] = query.pop("ssl")
        self._url = url.set(drivername="postgresql", query=query)

    async def connect(self) -> Connection:
        driver = _asyncpg()
        try:
            connection: Connection = await driver.connect(
                self._url.render_as_string(hide_password=False),
                timeout=_CONNECT_TIMEOUT,
                server_settings=dict(SETTINGS),
                statement_cache_size=256,
                max_cached_statement_lifetime=0,
            )
        except driver.PostgresError as error:
            refusal = refused_for_good(error)
            if refusal is None:
                raise
            raise DatabaseUnavailable(refusal) from error
        return connection

    def blocking_engine(self) -> Engine:
        if not _is_installed("psycopg"):
            raise DriverMissing(
                "Blocking calls on PostgreSQL need psycopg. Install it with: pip install 'outlast[postgres]'"
            )
        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        return create_engine(
            self._url.set(drivername="postgresql+psycopg"),
            # The encoding is asyncpg's; a role or a database may have another one set.
            connect_args={"options": options, "client_encoding": "utf8", "connect_timeout": int(_CONNECT_TIMEOUT)},
            pool_size=CONNECTIONS,
            max_overflow=0,
        )


def _asyncpg() -> ModuleType:
    if not _is_installed("asyncpg"):
        raise DriverMissing("PostgreSQL needs asyncpg. Install it with: pip install 'outlast[postgres]'")
    return importlib.import_module("asyncpg")


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
