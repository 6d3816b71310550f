"""PostgreSQL: its own clock, row and advisory locks, rows as arrays, NOTIFY."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Iterable
from typing import Any, ClassVar, Final, cast

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Insert,
    Table,
    Text,
    any_,
    bindparam,
    func,
    literal_column,
    text,
)
from sqlalchemy.dialects.postgresql import insert

from outlast.errors import DatabaseUnavailable, IsolationRefused
from outlast.ports.operation import Op, Result, Statement
from outlast.stores.dialects.base import RIGHTS, Dialect, Trouble, needed_rights, unwrapped
from outlast.stores.tables import Query, Tables

_OLDEST: Final = 130_000
_BUSY: Final = frozenset({"40001", "40P01", "57014"})
"""serialization_failure, deadlock_detected, query_canceled (a statement_timeout)."""

_CONFLICTS: Final = frozenset({"40001", "40P01"})

_HELD: Final = "55P03"
"""lock_not_available, after the lock_timeout."""

_LOST: Final = frozenset(
    {"57P01", "57P02", "57P03", "53300", "25P03", "57P05", "25P02", "25006", "53100", "53200", "58030"}
)
"""admin and crash shutdown, cannot_connect_now, too_many_connections, the idle timeouts; 25P02 follows one of ours.

read_only_sql_transaction (a server that is not the primary any more, or not yet), disk_full, out_of_memory, io_error:
another try, on a new connection, may find it mended. Nothing about the run is wrong.
"""

_EXCLUSIVE = text("select count(pg_advisory_xact_lock(key)) from unnest(cast(:keys as bigint[])) as key")
_SHARED = text("select count(pg_advisory_xact_lock_shared(key)) from unnest(cast(:keys as bigint[])) as key")
_MIGRATION_LOCK = text("select pg_advisory_xact_lock(:key)").bindparams(bindparam("key", type_=BigInteger))
_ISOLATION = text("select current_setting('transaction_isolation')")
# The server keeps UNICODE as somebody has written it. It is the server that says whether it is one of the two: a connection
# with a reading of its own for texts may give the name as anything.
_SETTINGS = text(
    "select current_setting('server_version_num'), current_setting('server_version'), "
    "current_setting('default_transaction_isolation'), current_setting('server_encoding'), "
    "current_setting('client_encoding') in ('UTF8', 'UNICODE'), current_setting('client_encoding')"
)
_SCHEMA = text(
    "select n.oid is not null, case when n.oid is null then has_database_privilege(current_database(), 'CREATE') "
    "else has_schema_privilege(n.oid, 'CREATE') end, current_user "
    "from (select cast(:name as text) as name) wanted left join pg_namespace n on n.nspname = wanted.name"
)
_LACKING = text(
    "select cast(current_user as text), c.relname, string_agg(needed.what, ', ') "
    "from unnest(cast(:names as text[]), cast(:rights as text[])) as needed (name, what) "
    "join pg_class c on c.relname = needed.name join pg_namespace n on n.oid = c.relnamespace and n.nspname = :schema "
    "where not has_table_privilege(c.oid, needed.what) group by c.relname order by c.relname"
)
_WHEREABOUTS: Final = text("select current_database()")
# As text: a caller's connection may read that in a way of its own, and it shows here (`databases.origin`).
_TABLES = text(
    "select c.relname || '', current_setting('client_encoding') in ('UTF8', 'UNICODE'), current_setting('client_encoding') "
    "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname = :name and c.relkind in ('r', 'p')"
)


class PostgreSQL(Dialect):
    name: ClassVar[str] = "postgresql"
    has_schemas: ClassVar[bool] = True
    has_arrays: ClassVar[bool] = True

    def now(self) -> ColumnElement[int]:
        # Not now(): that is the transaction's beginning, and a caller's may lie far back. Not clock_timestamp(): it is
        # volatile, and no index condition may use it.
        return literal_column("cast(extract(epoch from statement_timestamp()) * 1000000 as bigint)", BigInteger)

    def insert_if_absent(self, table: Table) -> Insert:
        return insert(table).on_conflict_do_nothing().inline()

    def is_among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        return column == any_(bindparam(name, type_=ARRAY(Text)))

    def listed(self, values: Iterable[str]) -> object:
        return list(values)

    def claim_lock(self, select: Query) -> Query:
        return select.with_for_update(skip_locked=True)

    def topic_locks(self, tables: Tables, topics: Iterable[str], *, shared: bool) -> Statement | None:
        # Ascending, so that two transactions that take several never wait for each other in a circle.
        keys = sorted({advisory_key(f"{tables.name}:topic:{topic}") for topic in topics})
        return Statement(_SHARED if shared else _EXCLUSIVE, {"keys": keys}) if keys else None

    def write_lock(self, tables: Tables) -> Statement | None:
        return None

    def notice(self, tables: Tables, what: ColumnElement[str]) -> ColumnElement[Any]:
        return func.pg_notify(channel(tables), what)

    def isolation(self) -> Statement | None:
        return Statement(_ISOLATION)

    def check_server(self) -> Op[None]:
        found = yield Statement(_SETTINGS, span="alone")
        number, version, isolation, encoding, *spoken = found.rows[0]
        if int(number) < _OLDEST:
            raise DatabaseUnavailable(f"PostgreSQL {version} is too old; outlast needs 13 or newer.")
        # Both found out here, and not by a step whose result cannot be written when its effect is done.
        held = _plain(encoding)
        if held != "UTF8":
            raise DatabaseUnavailable(
                f"This database's encoding is {held}, which cannot hold every text. outlast needs one with UTF8: "
                "CREATE DATABASE ... TEMPLATE template0 ENCODING 'UTF8'."
            )
        garbled = _garbled(*spoken)
        if garbled is not None:
            raise DatabaseUnavailable(f"The connection is one {garbled}")
        if isolation != "read committed":
            raise IsolationRefused(
                f"default_transaction_isolation is {isolation!r} here, under which a wake-up could be missed. "
                "outlast needs 'read committed': set it for its role, such as "
                "ALTER ROLE app SET default_transaction_isolation = 'read committed'."
            )

    def migration_lock(self, name: str) -> Statement | None:
        return Statement(_MIGRATION_LOCK, {"key": advisory_key(f"{name}:migrations")})

    def schema_present(self, name: str) -> Statement | None:
        return Statement(_SCHEMA, {"name": name})

    def check_rights(self, tables: Tables) -> Op[None]:
        names, rights = zip(*((table.name, right) for table, right in needed_rights(tables)), strict=True)
        found = yield Statement(_LACKING, {"names": list(names), "rights": list(rights), "schema": tables.name})
        if found.rows:
            role = found.rows[0][0]
            lacking = "; ".join(f"{rights} on {tables.name}.{name}" for _, name, rights in found.rows)
            raise DatabaseUnavailable(
                f"The role {role!r} lacks rights that outlast needs: {lacking}. As the owner of the tables: "
                f'GRANT {", ".join(RIGHTS)} ON ALL TABLES IN SCHEMA {tables.name} TO "{role}".'
            )

    def tables_present(self, tables: Tables) -> Statement:
        return Statement(_TABLES, {"name": tables.name})

    def garbles(self, present: Result) -> str | None:
        return _garbled(*present.rows[0][1:]) if present.rows else None

    def whereabouts(self) -> Statement:
        return Statement(_WHEREABOUTS)

    def is_aborted(self, error: BaseException) -> bool:
        return any(_sqlstate(part) == "25P02" for part in unwrapped(error))

    def refusal(self, error: BaseException) -> str | None:
        for part in unwrapped(error):
            is_drivers = type(part).__module__.partition(".")[0] in _DRIVERS
            if (is_drivers or isinstance(part, OSError)) and (told := refused_for_good(part)) is not None:
                return told
        return None

    def only_reads(self, error: BaseException) -> bool:
        return any(_sqlstate(part) == "25006" for part in unwrapped(error))

    def is_conflict(self, error: BaseException) -> bool:
        return any(_sqlstate(part) in _CONFLICTS for part in unwrapped(error))

    def trouble(self, error: BaseException) -> Trouble | None:
        for part in unwrapped(error):
            state = _sqlstate(part)
            if state is not None:
                if state == _HELD:
                    return Trouble.HELD
                if state in _BUSY:
                    return Trouble.BUSY
                return Trouble.LOST if state in _LOST or state.startswith("08") else None
            if isinstance(part, OSError):
                return Trouble.LOST
            # Without a state these two say that there is no connection (any more).
            kind = type(part)
            if (kind.__module__.partition(".")[0], kind.__name__) in _NO_CONNECTION:
                return Trouble.LOST
        return None


_DRIVERS: Final = frozenset({"asyncpg", "psycopg", "psycopg2", "pg8000"})

# libpq does not tell the state of a connection that it did not get; the server's words are English unless it was set up
# otherwise, and then the attempts go on until the patience is over.
_REFUSED_FOR_GOOD: Final = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|(role|database) \".*\" does not exist"
    r"|role \".*\" is not permitted to log in|permission denied for database|invalid \w+ value:"
)
_NO_OPTION: Final = re.compile(
    r"invalid connection option|for connection option|(unrecognized configuration|invalid value for) parameter"
)
_NO_TLS: Final = re.compile(
    r"certificate verify failed|does not match host name|SSL was required|rejected SSL upgrade|alert unknown ca"
    r"|(certificate|private key) file \".*\" does not exist|could not (load|read) (root |private key |certificate )"
)

_NO_CONNECTION: Final = frozenset(
    {
        ("asyncpg", "InterfaceError"),
        ("asyncpg", "InternalClientError"),
        ("psycopg", "OperationalError"),
        ("psycopg", "ConnectionTimeout"),
        ("psycopg_pool", "PoolTimeout"),
        ("psycopg_pool", "PoolClosed"),
        ("psycopg2", "OperationalError"),
        ("psycopg2", "InterfaceError"),
        ("pg8000", "InterfaceError"),
    }
)


def refused_for_good(error: BaseException) -> str | None:
    """Explain a refused connection that no waiting mends; None for any other error."""
    state = _sqlstate(error) or ""
    if (not state or state.startswith("08")) and "startup parameter" in str(error):
        return (
            f"The database refused the connection: {error}. This is how PgBouncer answers. Pass "
            "ConnectionOptions(transaction_pooling=True) as connections=, with listen= and the URL of a direct connection "
            "to be told of new work at once; or give outlast a direct connection altogether."
        )
    if isinstance(error, ssl.SSLCertVerificationError) or (not state and _NO_TLS.search(str(error))):
        return (
            f"There is no TLS with this server as the URL asks for it: {error}. sslrootcert= names the certificate of the "
            "authority that signed the server's own, sslmode= what is checked."
        )
    if type(error).__name__ == "ClientConfigurationError":  # asyncpg's, about an option of the URL
        return f"The URL of the database asks for what cannot be: {error}."
    if state in {"", "42704", "22023"} and _NO_OPTION.search(str(error)):
        # libpq knows options of the client's alone; what asyncpg does not know it takes for a setting of the server's.
        return (
            f"The URL of the database asks for what cannot be: {error}. Is the option written so? With asyncpg a URL takes "
            "settings of the server too, with psycopg (and so in blocking calls) options of libpq alone."
        )
    if state == "42501" and "for database" not in str(error):
        return (
            f"The database denied what outlast does: {error}. As the owner of the tables: GRANT USAGE ON SCHEMA ... TO ...; "
            f"GRANT {', '.join(RIGHTS)} ON ALL TABLES IN SCHEMA ... TO ...; to migrate, be the role that owns them."
        )
    if state.startswith("28") or state in {"3D000", "42501"} or (not state and _REFUSED_FOR_GOOD.search(str(error))):
        return f"The database refused the connection: {error}."
    return None


def _garbled(is_utf8: bool, encoding: str | bytes) -> str | None:
    """Return what is wrong with a connection's encoding, for behind "a connection"."""
    if is_utf8:
        return None
    return (
        f"whose client_encoding is {_plain(encoding)}, in which not every text can be sent, or none of it as it is. outlast "
        "needs UTF8: with SQLAlchemy over psycopg add ?client_encoding=utf8 to the engine's URL, with psycopg pass "
        "client_encoding='utf8' to its connect() or as a pool's kwargs={...}; or take away what sets another one, as SET, "
        "ALTER ROLE, ALTER DATABASE and PGCLIENTENCODING do."
    )


def _plain(told: str | bytes) -> str:
    """Return a setting's text: psycopg reads bytes where the client's encoding is SQL_ASCII."""
    return told.decode() if isinstance(told, bytes) else told


def channel(tables: Tables) -> str:
    """Return the NOTIFY channel of an installation."""
    return f"outlast_{tables.name}"


def advisory_key(name: str) -> int:
    """Hash a name to the signed 64 bits of an advisory lock. A collision costs a wait, never correctness."""
    digest = hashlib.blake2b(f"outlast:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _sqlstate(error: BaseException) -> str | None:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if (
        state is None
        and type(error).__module__.startswith("pg8000.")
        and error.args
        and isinstance(error.args[0], dict)
    ):
        told = cast("dict[str, str]", error.args[0])  # The fields of the server's answer, by their letters.
        return told.get("C")
    return state if isinstance(state, str) else None
