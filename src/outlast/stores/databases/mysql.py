"""MySQL and MariaDB: how their connections are made, and the roads over them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import ssl
from collections.abc import Generator, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Engine, create_engine, event, text

from outlast.errors import DatabaseUnavailable, DriverMissing, InvalidArgument
from outlast.model.connections import ConnectionOptions, Credentials
from outlast.ports.clock import Clock
from outlast.ports.operation import Statement
from outlast.ports.transactions import Transactions
from outlast.stores.basis import make_basis
from outlast.stores.databases import mysql_pool
from outlast.stores.databases.credentials import fresh, fresh_blocking
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.mysql_link import RESET, WIRE, MySQLLink, Session
from outlast.stores.databases.pooled_road import PooledRoad
from outlast.stores.databases.raw_pools import PoolRoad, RawPool
from outlast.stores.databases.sqlalchemy_roads import AsyncEngineRoad, EngineRoad, Limits, OnThreads
from outlast.stores.dialects.base import Dialect
from outlast.stores.dialects.mysql import MySQL, refused_for_good

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

CONNECTIONS: Final = 10
"""The most connections of one event loop. A worker needs two; callers that all start or send at once share the rest."""

_CONNECT_TIMEOUT: Final = 10
_ACCESS_DENIED: Final = 1045
_IDLE: Final = 20
"""Seconds after which the server ends a connection of ours that says nothing."""
_MODES: Final = "STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_SETTINGS: Final = ", ".join(
    (
        # A process that is stopped in the middle of a transaction keeps its locks no longer than this. MySQL has no such
        # limit for transactions alone.
        f"wait_timeout = {_IDLE}",
        # A caller may keep the transaction open in which it cancelled a run or sent a signal. A worker has other runs to
        # write for meanwhile. The least that there is.
        "innodb_lock_wait_timeout = 1",
        f"sql_mode = '{_MODES}'",
        # Lists of ids are looked up one by one, however many, and whatever the statistics say.
        "eq_range_index_dive_limit = 0",
    )
)
_ON_MARIADB: Final = "/*M! , idle_transaction_timeout = 10, in_predicate_conversion_threshold = 0 */"
_ON_LATER_MARIADB: Final = "/*M!110402 , innodb_snapshot_isolation = 0 */"
# Else a statement waits for the rows that it looks at and does not want, which others have changed.
_ON_MYSQL: Final = "/*!80000 , range_optimizer_max_mem_size = 0 */"
_READ_COMMITTED: Final = "set session transaction isolation level read committed"
OURS: Final = Session(
    (_READ_COMMITTED, f"set session {_SETTINGS} {_ON_MARIADB} {_ON_LATER_MARIADB} {_ON_MYSQL}"), _IDLE
)
_CLEAN: Final = (
    # Said after each use, so all at once. READ COMMITTED as on PostgreSQL, and in no other transaction's way for what it
    # has only looked at. What a process that is paused inside a step has locked, another that has taken its run over
    # waits for.
    "set names utf8mb4, session autocommit = 1, session wait_timeout = 60, "
    "session sql_mode = concat(@@sql_mode, ',STRICT_TRANS_TABLES') "
    "/*M! , session tx_isolation = 'READ-COMMITTED' */ /*!80000 , session transaction_isolation = 'READ-COMMITTED' */"
)
GIVEN: Final = Session((_CLEAN,), 60)
"""Connections that the application writes on: its statements are not ours."""

LIMITS: Final = Limits(begin=Statement(text(mysql_pool.LIMIT)), end=Statement(text(mysql_pool.NO_LIMIT)))
"""The same limits on connections of the application's, for one transaction."""

_TLS: Final = frozenset(
    {"ssl", "ssl_ca", "ssl_cert", "ssl_key", "ssl_check_hostname", "ssl_verify_cert", "ssl_disabled"}
)
_OTHER: Final = frozenset({"charset", "unix_socket", "connect_timeout"})


def mysql_database(url: URL, options: ConnectionOptions, *, prefix: str, clock: Clock | None) -> SqlDatabase:
    """Return the database behind a URL: asyncmy for awaiting callers, PyMySQL for blocking ones."""
    return _connected_database(Connector(url, options), prefix=prefix, clock=clock)


def _connected_database(connector: Connector, *, prefix: str, clock: Clock | None) -> SqlDatabase:
    basis = make_basis(prefix, MySQL, clock)

    def over(limit: int) -> SqlDatabase:
        return SqlDatabase(
            basis,
            PooledRoad(basis.dialect, connector.connect, WIRE, limit=limit),
            EngineRoad(basis.dialect, connector.blocking_engine, disposes=True),
            listener=None,
            separate=lambda: over(limit=2),
            own=GivenConnections(basis.dialect, connector),
        )

    return over(CONNECTIONS)


def mysql_async_engine_database(
    engine: AsyncEngine, options: ConnectionOptions, *, prefix: str, clock: Clock | None
) -> SqlDatabase:
    """Return the database of an application's AsyncEngine. Blocking callers get connections of ours to the same place."""
    basis = make_basis(prefix, MySQL, clock)
    connector = Connector(engine.url, options)
    return SqlDatabase(
        basis,
        AsyncEngineRoad(basis.dialect, engine, limits=LIMITS),
        EngineRoad(basis.dialect, connector.blocking_engine, disposes=True),
        listener=None,
        own=GivenConnections(basis.dialect, connector),
        # Another loop cannot use the engine.
        separate=lambda: mysql_database(engine.url, options, prefix=prefix, clock=clock),
    )


def mysql_engine_database(engine: Engine, *, prefix: str, clock: Clock | None) -> SqlDatabase:
    """Return the database of an application's Engine. Awaiting callers use it on threads."""
    basis = make_basis(prefix, MySQL, clock)

    def over() -> SqlDatabase:
        road = EngineRoad(basis.dialect, lambda: engine, disposes=False, limits=LIMITS)
        return SqlDatabase(basis, OnThreads(road), road, listener=None, separate=over)

    return over()


def mysql_pool_database(raw: RawPool, options: ConnectionOptions, *, prefix: str, clock: Clock | None) -> SqlDatabase:
    """Return the database of a pool of the application's. What the pool is no good for, another loop or colour and the
    lease's renewal, gets connections of ours to the same place."""
    basis = make_basis(prefix, MySQL, clock)
    connector = Connector(raw.url, options, **raw.more)
    return SqlDatabase(
        basis,
        PoolRoad(basis.dialect, partial(mysql_pool.lent, raw.pool), mysql_pool.WIRE),
        EngineRoad(basis.dialect, connector.blocking_engine, disposes=True),
        listener=None,
        own=GivenConnections(basis.dialect, connector),
        separate=lambda: _connected_database(connector, prefix=prefix, clock=clock),
    )


class Connector:
    """Makes connections of ours to one database."""

    def __init__(self, url: URL, options: ConnectionOptions, *, tls: ssl.SSLContext | None = None) -> None:
        """`tls` is for what has no form in a URL."""
        if options.transaction_pooling or options.listen:
            raise InvalidArgument(
                "ConnectionOptions(transaction_pooling=..., listen=...) are about PostgreSQL. On MySQL and MariaDB workers "
                "find new work by their poll; leave both out."
            )
        query = {name: value for name, value in url.query.items() if isinstance(value, str)}
        unknown = sorted(set(query) - _TLS - _OTHER)
        if unknown:
            raise InvalidArgument(
                f"outlast does not know the option {unknown[0]!r} of a MySQL URL; for it, pass an SQLAlchemy engine instead "
                f"of a URL. A URL takes {', '.join(sorted(_TLS | _OTHER))}."
            )
        self._url = url
        self._provide = options.credentials
        self._tls = tls or tls_context(query)
        self._socket = query.get("unix_socket")

    async def connect(self, session: Session | None = None) -> MySQLLink:
        """Return a new connection that is set up so, else as OURS says."""
        driver = _driver("asyncmy", "MySQL and MariaDB need asyncmy")
        try:
            try:
                return await self._connect(driver, session or OURS)
            except driver.errors.MySQLError as error:
                if self._provide is None or refused_for_good(error) is None:
                    raise
                # What was given a moment ago may have run out on the way.
                return await self._connect(driver, session or OURS)
        except driver.errors.MySQLError as error:
            refusal = refused_for_good(error)
            if refusal is None:
                raise
            if self._tls is None and error.args[0] == _ACCESS_DENIED:
                refusal += " If it is for want of TLS, add ssl=true to its URL."
            raise DatabaseUnavailable(refusal) from error

    async def _connect(self, driver: ModuleType, session: Session) -> MySQLLink:
        given = None if self._provide is None else await fresh(self._provide)
        arguments = {**self._arguments(), **_as_arguments(given)}
        connection: Any = await driver.connect(**arguments, client_flag=_found_rows(), autocommit=True)
        try:
            link = MySQLLink(connection, driver.cursors.Cursor, session, self._url.database or "")
            await link.say(*session.texts)
            return link
        except BaseException:
            connection.close()
            raise

    def given_engine(self) -> Engine:
        """Return an engine for the application's statements, of which nothing is left when a connection comes back."""
        engine = self.blocking_engine(GIVEN, pool_reset_on_return=None)
        event.listen(engine, "reset", partial(_reset_blocking, self._url.database or ""))
        return engine

    def blocking_engine(self, session: Session = OURS, **options: Any) -> Engine:  # noqa: ANN401 - SQLAlchemy's
        _driver("pymysql", "Blocking calls on MySQL and MariaDB need PyMySQL")
        engine = create_engine(
            "mysql+pymysql://",
            connect_args=self._arguments(),
            pool_size=CONNECTIONS,
            max_overflow=0,
            # Before the server ends them.
            pool_recycle=session.idle // 2,
            **options,
        )
        event.listen(engine, "connect", partial(_set_up_blocking, session))
        if self._provide is not None:
            event.listen(engine, "do_connect", self._connect_blocking)
        return engine

    def _connect_blocking(self, dialect: Any, _record: object, args: Any, arguments: dict[str, Any]) -> Any:  # noqa: ANN401
        """Connect as SQLAlchemy would, with credentials that were given for this connection."""
        assert self._provide is not None
        for attempt in (1, 2):
            given = _as_arguments(fresh_blocking(self._provide))
            try:
                return dialect.connect(*args, **{**arguments, **given})
            except dialect.dbapi.Error as error:
                if attempt == 2 or refused_for_good(error) is None:
                    raise
        raise AssertionError("the second attempt answers or raises")

    def _arguments(self) -> dict[str, Any]:
        """What asyncmy and PyMySQL both take."""
        url = self._url
        arguments: dict[str, Any] = {
            "user": url.username,
            "password": url.password or "",
            "database": url.database or None,
            "charset": "utf8mb4",
            "connect_timeout": _CONNECT_TIMEOUT,
            "program_name": "outlast",
        }
        if self._socket is not None:
            arguments["unix_socket"] = self._socket
        else:
            arguments |= {"host": url.host or "localhost", "port": url.port or 3306}
        if self._tls is not None:
            arguments["ssl"] = self._tls
        return arguments


def _as_arguments(given: Credentials | None) -> dict[str, Any]:
    if given is None:
        return {}
    return {"password": given.password} | ({} if given.user is None else {"user": given.user})


def _set_up_blocking(session: Session, connection: Any, _record: object) -> None:  # noqa: ANN401 - PyMySQL's
    with connection.cursor() as cursor:
        for statement in session.texts:
            cursor.execute(statement)


def _reset_blocking(database: str, connection: Any, _record: object, state: Any) -> None:  # noqa: ANN401 - PyMySQL's
    if state.terminate_only:
        return
    connection._execute_command(RESET, b"")  # noqa: SLF001 - the driver has no word for it
    connection._read_ok_packet()  # noqa: SLF001 - as above
    connection.cursorclass = importlib.import_module("pymysql.cursors").Cursor
    _set_up_blocking(GIVEN, connection, None)
    connection.select_db(database)


class GivenConnections:
    """Transactions for an application that has none of its own: asyncmy's where they are awaited, else PyMySQL's."""

    def __init__(self, dialect: Dialect, connector: Connector) -> None:
        self._awaiting = PooledRoad(dialect, partial(connector.connect, GIVEN), WIRE, limit=CONNECTIONS)
        self._blocking = EngineRoad(dialect, connector.given_engine, disposes=True)
        self.transactions: Transactions = Transactions(
            awaiting=self._awaiting.transaction, blocking=self._begin_blocking, is_sure=True
        )  # fmt: skip

    @contextlib.contextmanager
    def _begin_blocking(self) -> Generator[Any]:
        with self._blocking.begin() as connection:
            raw: Any = connection.connection.dbapi_connection
            raw.begin()
            yield raw

    async def close(self) -> None:
        self._blocking.close()
        await self._awaiting.close()

    def close_blocking(self) -> None:
        # Those that a worker has at this moment are closed when it gives them back, and it makes new ones.
        self._blocking.close()


def tls_context(query: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return what the `ssl` options of a URL ask for; None where they ask for nothing.

    `ssl=true` encrypts; with `ssl_ca` the server's certificate is checked too, and its name unless
    `ssl_check_hostname=false`.
    """
    asked = _TLS.intersection(query)
    if not asked or _is_true(query, "ssl_disabled", usual=False) or not _is_true(query, "ssl", usual=True):
        return None
    authority, certificate = query.get("ssl_ca"), query.get("ssl_cert")
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate is not None:
            context.load_cert_chain(certificate, query.get("ssl_key"))
    except OSError as error:  # also what OpenSSL does not understand
        named = ", ".join(f"{name}={query[name]}" for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in query)
        raise InvalidArgument(f"The files of TLS that the URL names cannot be read ({named}): {error}.") from error
    checks_name = _is_true(query, "ssl_check_hostname", usual=authority is not None)
    verifies = _is_true(query, "ssl_verify_cert", usual=authority is not None) or checks_name
    context.check_hostname = checks_name
    context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
    return context


_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _is_true(query: Mapping[str, str], name: str, *, usual: bool) -> bool:
    if name not in query:
        return usual
    said = _WORDS.get(query[name].lower())
    if said is None:
        raise InvalidArgument(f"The option {name} of a MySQL URL is true or false, not {query[name]!r}.")
    return said


def _found_rows() -> int:
    constants = importlib.import_module("asyncmy.constants.CLIENT")
    flag: int = constants.FOUND_ROWS
    return flag


def _driver(module: str, need: str) -> ModuleType:
    if importlib.util.find_spec(module) is None:
        raise DriverMissing(f"{need}. Install it with: pip install 'outlast[mysql]'")
    return importlib.import_module(module)
