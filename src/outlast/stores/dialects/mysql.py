"""MySQL and MariaDB: row locks without RETURNING, topics as rows to lock, tables whose definition commits by itself.

One dialect serves both. An application may call its MariaDB `mysql://` or `mariadb://`, so nothing here may depend on which
server it is; where their words differ, the statement carries both, in the comments that only one of them executes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Insert,
    SmallInteger,
    Table,
    TextClause,
    Update,
    bindparam,
    column,
    literal_column,
    null,
    select,
    table,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from outlast.errors import DatabaseUnavailable
from outlast.ports.operation import Op, Result, Statement
from outlast.stores.dialects.base import RIGHTS, Dialect, Trouble, needed_rights, unwrapped
from outlast.stores.dialects.mysql_sizes import LEAST, is_too_long, remedy
from outlast.stores.tables import Query, Tables

TOPIC_LOCKS: Final = 4_096
"""Rows of the table of locks, each for the topics that hash to it. Two topics that share one may wait for each other."""

_CHARSET: Final = "utf8mb4"
_OLDEST_MYSQL: Final = (8, 4)
_OLDEST_MARIADB: Final = (10, 6)

_BUSY: Final = frozenset({1213, 1020, 1317, 1969, 3024})
"""deadlock, record changed since the snapshot (MariaDB), query killed, statement too long (both)."""

_HELD: Final = frozenset({1205, 3572})
"""lock wait timeout, lock not waited for. They undo the statement alone; our own transactions are rolled back whole."""

_CONFLICTS: Final = frozenset({1213, 1020, 1205, 3101})
"""deadlock, record changed since the snapshot (MariaDB), lock wait timeout, undone at COMMIT (MySQL's group replication)."""

_LOST: Final = frozenset(
    {
        *(1040, 1203, 1226),  # too many connections: of the server, of the user, of the user by quota
        *(1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3032, 3169, 4031),  # shut down, killed, cut or idle
        *(1047, 1290, 1836),  # not ready in its cluster; read-only, as a primary is that has just become a replica
        *(2002, 2003, 2006, 2012, 2013, 2014, 2026, 2055),  # the client's own words for a link that is not there
    }
)
_HIT: Final = 2
"""The least number in `again` of a row that an insert found there."""

_READ_ONLY: Final = frozenset({1290, 1836})
_DRIVERS: Final = frozenset({"pymysql", "asyncmy", "aiomysql", "MySQLdb", "mysql"})

_REFUSED: Final = frozenset({1044, 1045, 1049, 1130, 1251, 1698, 1819, 1820, 1862, 3118, 4151})
"""wrong password or database, host or way of proving oneself; an account that is locked or whose password is too old."""

_ABSENT: Final = 1146
_QUOTED: Final = re.compile(r"'([^']+)'")

_INSECURE: Final = 3159
_DENIED: Final = frozenset({1142, 1143, 1227})
"""no right on a table, on a column, to a setting."""

_UNLINKED: Final = frozenset({2003, 2026})
_NO_TLS: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|SSL is required")

_SETTINGS: Final = text(
    "select version(), database(), @@sql_mode, (select support from information_schema.engines where engine = 'InnoDB'), "
    "@@character_set_client, @@character_set_connection, @@character_set_results"
)
# Not as @@binlog_format: it is to go some day.
_BINARY_LOG: Final = text("show variables where variable_name in ('log_bin', 'sql_log_bin', 'binlog_format')")
_WHEREABOUTS: Final = text("select database()")
_TABLES: Final = text(
    "select table_name, @@character_set_client, @@character_set_connection, @@character_set_results "
    "from information_schema.tables where table_schema = database()"
)
_BY_STATEMENT: Final = frozenset({("log_bin", "ON"), ("sql_log_bin", "ON"), ("binlog_format", "STATEMENT")})
_ONLY_READS: Final = text("select @@read_only or @@innodb_read_only")
_MOST: Final = text("select @@max_allowed_packet")
_MIGRATION_LOCK: Final = text("select get_lock(:name, 20)")
_MIGRATION_UNLOCK: Final = text("select release_lock(:name)")


class MySQL(Dialect):
    name: ClassVar[str] = "mysql"
    other_names: ClassVar[frozenset[str]] = frozenset({"mariadb"})
    has_schemas: ClassVar[bool] = False
    has_arrays: ClassVar[bool] = False
    has_ranges_in_joins: ClassVar[bool] = False
    has_transactional_ddl: ClassVar[bool] = False
    has_notices: ClassVar[bool] = False

    def now(self) -> ColumnElement[int]:
        # Not unix_timestamp(): it reads a local time, and in the hour that a time zone has twice it reads it wrong.
        return literal_column("timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))", BigInteger)

    def insert_if_absent(self, table: Table) -> Insert:
        return _InsertIfAbsent(table)

    def inserted(self, table: Table) -> ColumnElement[bool]:
        return literal_column(f"{table.name}.again", SmallInteger) < _HIT

    def update_many(self, table: Table, names: Mapping[str, TypeEngine[Any]], count: int) -> tuple[Update, FromClause]:
        rows = [", ".join(f":{name}_of_{place} as {name}" for name in names) for place in range(count)]
        given = text(" union all ".join(f"select {row}" for row in rows))
        return _UpdateMany(table), given.columns(**names).subquery("new")

    def is_among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        # As a list of parameters. `json_table` would make one of them, but MariaDB reads the whole table to change rows that
        # a sub-select names.
        return column.in_(bindparam(name, expanding=True))

    def listed(self, values: Iterable[str]) -> object:
        # Nothing of ours is named by the empty text.
        return tuple(values) or ("",)

    def claim_lock(self, select: Query) -> Query:
        return select.with_for_update(skip_locked=True)

    def lock_at_once(self, select: Query) -> Query | None:
        return select.with_for_update(nowait=True)

    def by_index(self, select: Query, table: Table, index: str) -> Query:
        # There are no indexes of live rows alone, so the planner has others to choose from; and it locks what it reads. With
        # statistics that are behind it would sort a whole table for its first page. Held by tests/plans/test_mysql.py.
        hint = f"force index ({index})"
        return select.with_hint(table, hint, "mysql").with_hint(table, hint, "mariadb")

    def update_of_waiting(self, runs: Table) -> Update:
        # Of a small table the planner reads all, and a transaction that is REPEATABLE READ locks all of that, its end too: a
        # caller's signal then held up every start of anybody. Held by tests/race/test_repeatable_read.py.
        return _UpdateOfWaiting(runs)

    def topic_locks(self, tables: Tables, topics: Iterable[str], *, shared: bool) -> Statement | None:
        # Rows and not GET_LOCK: that belongs to the session, and in a caller's transaction nobody would give it back. In the
        # order of the key, so that two transactions that take several never wait for each other in a circle.
        slots = sorted({topic_slot(topic) for topic in topics})
        if not slots:
            return None
        locks = table(f"{tables.name}_locks", column("id", BigInteger))
        chosen = select(locks.c.id).where(self.is_among(locks.c.id, "slots")).order_by(locks.c.id)
        return Statement(_lock_statement(chosen, shared=shared, name=tables.name), {"slots": tuple(slots)})

    def write_lock(self, tables: Tables) -> Statement | None:
        return None

    def notice(self, tables: Tables, what: ColumnElement[str]) -> ColumnElement[Any]:
        return null()

    def isolation(self) -> Statement | None:
        # In REPEATABLE READ too, whoever looks for waiting runs in order to change them sees what was committed meanwhile:
        # InnoDB reads rows that it locks as they are now. Held by tests/race/test_repeatable_read.py.
        return None

    def check_server(self) -> Op[None]:
        found = yield Statement(_SETTINGS, span="alone")
        version, database, sql_mode, innodb, *charsets = found.rows[0]
        refusal = _too_old(version)
        if refusal is not None:
            raise DatabaseUnavailable(refusal)
        if database is None:
            raise DatabaseUnavailable(
                "The URL names no database, so there is nowhere to put outlast's tables. Add it: mysql://user@host/database."
            )
        if innodb not in {"YES", "DEFAULT"}:
            raise DatabaseUnavailable(
                "outlast's tables need the InnoDB storage engine, which this server does not offer."
            )
        if "STRICT_TRANS_TABLES" not in sql_mode and "STRICT_ALL_TABLES" not in sql_mode:
            raise DatabaseUnavailable(
                "The connection's sql_mode is not strict, so the server would shorten what does not fit instead of refusing "
                f"it. outlast needs STRICT_TRANS_TABLES; sql_mode is {sql_mode!r}."
            )
        refusal = _garbled(charsets)
        if refusal is not None:
            # Found out here, and not by a step whose result cannot be written when its effect is done.
            raise DatabaseUnavailable(f"The connection is one {refusal}")
        logged = yield Statement(_BINARY_LOG, span="alone")
        if {tuple(row) for row in logged.rows} >= _BY_STATEMENT:
            raise DatabaseUnavailable(
                "The server logs statements (binlog_format = STATEMENT), and then it refuses every write of a transaction "
                "that is READ COMMITTED, as outlast's are. Set binlog_format = ROW in its configuration; until it is "
                "started anew SET GLOBAL binlog_format = 'ROW' does for connections that are made from then on."
            )

    def most_at_once(self) -> Op[int | None]:
        found = yield Statement(_MOST, span="alone")
        most: int = found.rows[0][0]
        if most < LEAST:
            raise DatabaseUnavailable(
                f"The server takes at most max_allowed_packet = {most:,} bytes in one statement; outlast needs "
                f"{LEAST:,}, since it sends many short values together. Raise max_allowed_packet."
            )
        return most

    def too_big(self, text: str, most: int | None) -> str | None:
        return remedy(most) if most is not None and is_too_long([text], most) else None

    def migration_lock(self, name: str) -> Statement | None:
        return Statement(_MIGRATION_LOCK, {"name": _lock_name(name)})

    def has_migration_lock(self, answer: object) -> bool:
        return answer == 1

    def migration_unlock(self, name: str) -> Statement | None:
        return Statement(_MIGRATION_UNLOCK, {"name": _lock_name(name)})

    def schema_present(self, name: str) -> Statement | None:
        return None

    def check_rights(self, tables: Tables) -> Op[None]:
        # The server's own lists of rights leave out what comes by a role. To explain a statement takes the rights of the
        # statement, and does nothing; the error that it raises otherwise names the table, and `refusal` what to do.
        only_reads = yield Statement(_ONLY_READS)
        if only_reads.rows[0][0]:
            return
        locks = table(f"{tables.name}_locks", column("id", BigInteger))
        for used, right in (*needed_rights(tables), (locks, "SELECT"), (locks, "UPDATE")):
            yield Statement(_explained(right, used.name, next(iter(used.columns)).name))

    def tables_present(self, tables: Tables) -> Statement:
        return Statement(_TABLES)

    def garbles(self, present: Result) -> str | None:
        return _garbled(present.rows[0][1:]) if present.rows else None

    def whereabouts(self) -> Statement:
        return Statement(_WHEREABOUTS)

    def refusal(self, error: BaseException) -> str | None:
        return next((told for part in unwrapped(error) if (told := refused_for_good(part)) is not None), None)

    def absent(self, error: BaseException) -> str | None:
        for part in unwrapped(error):
            if error_code(part) == _ABSENT:
                named = _QUOTED.search(str(part.args[1]))
                return named[1] if named else ""
        return None

    def is_aborted(self, error: BaseException) -> bool:
        # A statement that fails takes back itself alone; after a deadlock there is no transaction, and no savepoint.
        return False

    def only_reads(self, error: BaseException) -> bool:
        return any(error_code(part) in _READ_ONLY for part in unwrapped(error))

    def is_conflict(self, error: BaseException) -> bool:
        return any(error_code(part) in _CONFLICTS for part in unwrapped(error))

    def trouble(self, error: BaseException) -> Trouble | None:
        for part in unwrapped(error):
            code = error_code(part)
            if code is not None:
                if code in _HELD:
                    return Trouble.HELD
                if code in _BUSY:
                    return Trouble.BUSY
                return Trouble.LOST if code in _LOST else None
            if isinstance(part, OSError):
                return Trouble.LOST
            # Without a code: a connection that was closed under our hands.
            if _driver(part) is not None and type(part).__name__ == "InterfaceError":
                return Trouble.LOST
        return None


@cache
def _explained(right: str, name: str, column: str) -> TextClause:
    statements = {
        "SELECT": "select * from {0} where 1 = 0",
        "INSERT": "insert into {0} select * from {0} where 1 = 0",
        "UPDATE": "update {0} set {1} = {1} where 1 = 0",
        "DELETE": "delete from {0} where 1 = 0",
    }
    return text(f"explain {statements[right].format(name, column)}")


class _InsertIfAbsent(Insert):
    """An insert that changes `again` of a row that is there, and leaves a number there that no new row has.

    The count of a plain "on duplicate key update" that changes nothing depends on a flag of the connection, which some of
    our callers' have and some have not; that of a change is 2 with every one. INSERT IGNORE counts right, but it also
    shortens what does not fit and replaces what the connection's character set cannot say.
    """

    inherit_cache = True


@compiles(_InsertIfAbsent, "mysql")
@compiles(_InsertIfAbsent, "mariadb")
def _compile_insert_if_absent(insert: _InsertIfAbsent, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401
    written: str = compiler.visit_insert(insert, **options)  # type: ignore[no-untyped-call]  # untyped in SQLAlchemy
    return f"{written} ON DUPLICATE KEY UPDATE again = {2 * _HIT + 1} - greatest(again, {_HIT})"


class _UpdateMany(Update):
    """An update of a table joined to rows of parameters, which are gone through one after the other.

    With statistics that are behind, a planner would rather read the whole table once, and lock it.
    Held by tests/plans/test_mysql.py.
    """

    inherit_cache = True


@compiles(_UpdateMany, "mysql")
@compiles(_UpdateMany, "mariadb")
def _compile_update_many(update: _UpdateMany, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401
    written: str = compiler.visit_update(update, **options)
    name = compiler.preparer.format_table(update.table)
    tables = re.fullmatch(rf"UPDATE {re.escape(name)}, (.*? AS new) (SET .*)", written, re.DOTALL)
    assert tables is not None, written
    return f"UPDATE {tables[1]} STRAIGHT_JOIN {name} FORCE INDEX (PRIMARY) {tables[2]}"


def _lock_name(name: str) -> str:
    return f"outlast:{name}:migrations"


class _UpdateOfWaiting(Update):
    """An update of one table that reads another one first, by the index on its topic."""

    inherit_cache = True


@compiles(_UpdateOfWaiting, "mysql")
@compiles(_UpdateOfWaiting, "mariadb")
def _compile_update_of_waiting(update: _UpdateOfWaiting, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401
    written: str = compiler.visit_update(update, **options)
    ordered, count = _TWO_TABLES.subn(r"UPDATE \2 FORCE INDEX (\2_topic) STRAIGHT_JOIN \1 SET", written, count=1)
    assert count == 1, written
    return ordered


_TWO_TABLES: Final = re.compile(r"^UPDATE (\w+), (\w+) SET")

_lock_statements: dict[tuple[str, bool], Query] = {}


def _lock_statement(chosen: Query, *, shared: bool, name: str) -> Query:
    """Return the one statement for an installation and a mode, so that it is compiled once."""
    return _lock_statements.setdefault((name, shared), chosen.with_for_update(read=shared))


def topic_slot(topic: str) -> int:
    """Return the row that is locked for a topic."""
    digest = hashlib.blake2b(topic.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % TOPIC_LOCKS


def error_code(error: BaseException) -> int | None:
    """Return the server's or the client library's number of an error; None for one that is no driver's or has none."""
    if _driver(error) is None or not error.args:
        return None
    code: object = error.args[0]
    return code if isinstance(code, int) and code > 0 else None


def refused_for_good(error: BaseException) -> str | None:
    """Return what to tell a user whose connection was refused in a way that waiting does not mend."""
    code = error_code(error)
    if code in _REFUSED:
        return f"The database refused the connection: {error.args[1]}."
    if code == _INSECURE:
        return f"The database refused the connection: {error.args[1]}. Add ssl=true to its URL, or ssl_ca= to check it too."
    if code in _DENIED:
        return (
            f"The database denied what outlast does: {error.args[1]}. Grant this role {', '.join(RIGHTS)} on the tables of "
            "outlast; to migrate, be a role that may CREATE and ALTER them too."
        )
    if code in _UNLINKED and _NO_TLS.search(str(error)):
        return (
            f"There is no TLS with this server as the URL asks for it: {error.args[1]}. ssl_ca= names the certificate of "
            "the authority that signed the server's own; ssl=true alone checks none."
        )
    return None


def _driver(error: BaseException) -> str | None:
    module = type(error).__module__.partition(".")[0]
    return module if module in _DRIVERS else None


def _garbled(charsets: Sequence[str | None]) -> str | None:
    """Return what is wrong with a connection's character sets, for behind "a connection". None is one without conversion."""
    others = sorted({name for name in charsets if name is not None} - {_CHARSET})
    if not others:
        return None
    return (
        f"in {', '.join(others)}, in which not every text can be sent, or none of it as it is. outlast needs {_CHARSET}: "
        f"with SQLAlchemy add ?charset={_CHARSET} to the engine's URL, with a driver pass charset='{_CHARSET}' to its "
        f'connect() or create_pool(), with Django set "OPTIONS": {{"charset": "{_CHARSET}"}}.'
    )


def _too_old(version: str) -> str | None:
    # MariaDB may put the version of a MySQL in front, for clients that know nothing else: 5.5.5-10.11.6-MariaDB.
    mariadb = re.search(r"(\d+)\.(\d+)\.\d+-MariaDB", version)
    if mariadb:
        if (int(mariadb[1]), int(mariadb[2])) < _OLDEST_MARIADB:
            return f"MariaDB {version} is too old; outlast needs 10.6 or newer, which can skip rows that are locked."
        return None
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _OLDEST_MYSQL:
        return f"MySQL {version} is too old; outlast needs 8.4 or newer (or MariaDB 10.6 or newer)."
    return None
