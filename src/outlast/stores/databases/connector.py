"""Makes connections of ours to one PostgreSQL database, with either driver and in both colours."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import URL, Engine, create_engine, event, text
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect

from outlast.errors import DatabaseUnavailable, DriverMissing, InvalidArgument
from outlast.model.connections import ConnectionOptions, ProvideCredentials
from outlast.ports.operation import Statement
from outlast.stores.databases import (
    asyncpg_connection,
    asyncpg_statements,
    psycopg_connection,
    psycopg_statements,
)
from outlast.stores.databases.credentials import fresh, fresh_blocking
from outlast.stores.databases.urls import PostgresTarget, parse_url
from outlast.stores.databases.wire import BEGIN, Wire, beginning_with
from outlast.stores.dialects.postgresql import refused_for_good

if TYPE_CHECKING:
    import asyncpg
    import psycopg

CONNECTIONS: Final = 10
"""The most connections of one event loop. A worker needs two; callers that all start or send at once share the rest."""

NAMED: Final[Mapping[str, str]] = {"application_name": "outlast"}
PLANNED: Final[Mapping[str, str]] = {
    # Every statement here goes by an index, one row after the other. With statistics that are behind (a table that grew
    # since the last ANALYZE) the planner would at times rather read whole tables. Held by tests/plans.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
LIMITED: Final[Mapping[str, str]] = {
    # A process that is stopped in the middle of a transaction keeps its locks no longer than this.
    "idle_in_transaction_session_timeout": "10s",
    # A caller may keep the transaction open in which it cancelled a run or sent a signal. A worker has other runs to write
    # for meanwhile. Held by tests/faults/test_callers_transactions.py.
    "lock_timeout": "500ms",
}
SETTINGS: Final[Mapping[str, str]] = {**NAMED, **PLANNED, **LIMITED}
"""The settings of connections that are ours alone."""
SETTING: Final = beginning_with({**PLANNED, **LIMITED})
"""How a transaction begins that finds none of these settings on its connection. They cost 20 us in the round trip of BEGIN;
as calls of set_config it would be 40."""

_DIALECT: Final[Any] = psycopg_dialect.dialect()  # type: ignore[no-untyped-call]  # untyped in SQLAlchemy
_CONNECT_TIMEOUT: Final = 10.0
_MET_TYPES: Final = "select cast(null as bigint[]), cast(null as integer[]), cast(null as boolean[])"
_NOTHING: Final[Mapping[str, Any]] = {}
_INSTALL: Final = "Install it with: pip install 'outlast[postgres]'"


def setting(settings: Mapping[str, str]) -> Statement:
    """Return a statement that sets these until the transaction ends."""
    return Statement(
        text("select " + ", ".join(f"set_config('{name}', '{to}', true)" for name, to in settings.items()))
    )


class Connector:
    """Connections to the database behind a URL, as the options say."""

    def __init__(self, url: URL, options: ConnectionOptions, *, more: Mapping[str, Any] = _NOTHING) -> None:
        """`more` are arguments of asyncpg's that a URL cannot hold."""
        self._wants = url.get_driver_name() if "+" in url.drivername else None
        self._options = options
        self._more = more
        query = dict(url.query)
        # SQLAlchemy's URLs for asyncpg write it so; both drivers know the usual name.
        if "ssl" in query:
            query["sslmode"] = query.pop("ssl")
        self._url = url.set(drivername="postgresql", query=query)

    @property
    def driver(self) -> Literal["asyncpg", "psycopg"]:
        """What awaiting callers use: the driver that the URL names, else asyncpg where it is installed."""
        if self._wants == "psycopg" or (self._wants != "asyncpg" and not is_installed("asyncpg")):
            return "psycopg"
        return "asyncpg"

    @property
    def wire(self) -> Wire:
        begin = SETTING if self._options.transaction_pooling else BEGIN
        execute = asyncpg_statements.execute if self.driver == "asyncpg" else psycopg_statements.execute_awaiting
        return Wire(execute, begin)

    @property
    def limits(self) -> Statement | None:
        """What a blocking transaction sets as it begins, where nothing can be set on the connection."""
        return setting({**PLANNED, **LIMITED}) if self._options.transaction_pooling else None

    def direct(self) -> Connector | None:
        """Return what makes the connections on which is listened; None when nothing is to be heard."""
        to = self._options.listens_to
        options = replace(self._options, transaction_pooling=False, listen=None)
        if to is True:
            return self
        return Connector(postgres_url(to), options) if isinstance(to, str) else None

    async def connect(self, settings: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401 - of either driver
        """Return a new connection of the driver's, with these settings, else SETTINGS."""
        connect = self._connect_asyncpg if self.driver == "asyncpg" else self._connect_psycopg
        try:
            return await connect(settings or SETTINGS)
        except Exception as error:
            if self._options.credentials is None or refused_for_good(error) is None:
                raise
        # They may have been replaced between the answer and its use.
        return await connect(settings or SETTINGS)

    async def _connect_asyncpg(self, settings: Mapping[str, str]) -> asyncpg.Connection[asyncpg.Record]:
        driver = _module("asyncpg", "PostgreSQL needs asyncpg, or psycopg.")
        self._look_for_files()
        connection: asyncpg.Connection[asyncpg.Record] = await driver.connect(
            (await self._current_url()).render_as_string(hide_password=False),
            timeout=_CONNECT_TIMEOUT,
            connection_class=asyncpg_connection.held_class(),
            server_settings=self._startup(settings),
            statement_cache_size=0 if self._options.transaction_pooling else 256,
            max_cached_statement_lifetime=0,
            **self._more,
        )
        if self._options.transaction_pooling:
            # asyncpg asks the server about types when it first meets them, and changes a setting of the connection for that
            # time. Here it meets them where everything is taken back.
            await connection.execute("BEGIN")
            await connection.fetch(_MET_TYPES)
            await connection.execute("ROLLBACK")
        return connection

    def _look_for_files(self) -> None:
        """Say which file of TLS is not there: asyncpg's error names none, and is that of a server's socket too."""
        for option in ("sslrootcert", "sslcert", "sslkey"):
            named = self._url.query.get(option)
            if isinstance(named, str) and named != "system" and not Path(named).is_file():
                raise DatabaseUnavailable(f"There is no file {named}, which {option}= of the database's URL names.")

    async def _connect_psycopg(self, settings: Mapping[str, str]) -> psycopg.AsyncConnection[Any]:
        _module("psycopg", "PostgreSQL needs asyncpg, or psycopg.")
        # Not as a URL: libpq reads some characters of a password and of options in a way of its own.
        _, parameters = _DIALECT.create_connect_args(await self._current_url())
        prepares = not self._options.transaction_pooling
        return await psycopg_connection.connect({**parameters, **self._arguments(settings)}, prepares=prepares)

    def blocking_engine(self, settings: Mapping[str, str] | None = None) -> Engine:
        """Return an engine over psycopg for blocking callers."""
        driver = _module("psycopg", "Blocking calls on PostgreSQL need psycopg.")
        arguments = self._arguments(settings or SETTINGS)
        if self._options.transaction_pooling:
            arguments["prepare_threshold"] = None
        url = self._url.set(drivername="postgresql+psycopg")
        engine = create_engine(url, connect_args=arguments, pool_size=CONNECTIONS, max_overflow=0)
        provide = self._options.credentials
        if provide is not None:
            event.listen(engine, "do_connect", _asking(provide, driver))
        return engine

    async def _current_url(self) -> URL:
        provide = self._options.credentials
        if provide is None:
            return self._url
        given = await fresh(provide)
        return self._url.set(password=given.password, username=given.user or self._url.username)

    def _arguments(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return psycopg's arguments beside the URL."""
        startup = self._startup(settings)
        # The encoding is asyncpg's; a role or a database may have another one set.
        arguments: dict[str, Any] = {"client_encoding": "utf8", "connect_timeout": int(_CONNECT_TIMEOUT)}
        arguments["application_name"] = startup.pop("application_name")
        asked = self._url.query.get("options", "")
        options = [asked] if isinstance(asked, str) and asked else list(asked)
        options += [f"-c {name}={value}" for name, value in startup.items()]
        if options:
            arguments["options"] = " ".join(options)
        return arguments

    def _startup(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return what is set as the connection is made. A pooler lets the name pass and refuses the rest."""
        pooled = self._options.transaction_pooling
        return {name: value for name, value in settings.items() if not pooled or name in NAMED}


def _asking(provide: ProvideCredentials, driver: Any) -> Callable[..., object]:  # noqa: ANN401 - psycopg, if installed
    """Return SQLAlchemy's way to a new connection, with credentials of the moment."""

    def connect(_dialect: object, _record: object, arguments: list[Any], parameters: dict[str, Any]) -> object:
        def attempt() -> object:
            given = fresh_blocking(provide)
            user = {} if given.user is None else {"user": given.user}
            return driver.connect(*arguments, **{**parameters, "password": given.password, **user})

        try:
            return attempt()
        except driver.OperationalError as error:
            if refused_for_good(error) is None:
                raise
        return attempt()

    return connect


def postgres_url(text: str) -> URL:
    """Read the URL of a direct connection."""
    target = parse_url(text)
    if not isinstance(target, PostgresTarget):
        raise InvalidArgument("ConnectionOptions(listen=...) is the URL of a PostgreSQL database, or False.")
    return target.url


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _module(name: str, need: str) -> ModuleType:
    if not is_installed(name):
        raise DriverMissing(f"{need} {_INSTALL}")
    return importlib.import_module(name)
