"""Everything in which databases differ: the methods of `Dialect` are the whole list.

What is not on it is written once, in portable statements. A new entry is a design decision: say why in its docstring.
No shared statement returns rows from a write (MySQL has no RETURNING), and correctness never rests on skipping locked
rows alone (SQLite has no row locks): each change is conditional on the state it expects, and its count is looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final

from sqlalchemy import ColumnElement, FromClause, Insert, Table, Update, update
from sqlalchemy.types import TypeEngine

from outlast.ports.operation import Op, Result, Statement
from outlast.stores.tables import Query, Tables

RIGHTS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
"""What an application's role needs on every table of outlast but that of the migrations, which it only reads. More than some
of them need today, so that a later version needs no more. Held by tests/contract/test_rights.py."""


MOST_BYTES: Final = 1_000_000_000
"""The longest text of SQLite; PostgreSQL's is a little longer."""


class Trouble(StrEnum):
    """A failure that says nothing about the operation itself."""

    BUSY = "busy"
    """The database refused because of others (deadlock, serialization, lock); nothing of the transaction was done."""

    HELD = "held"
    """The database waited for somebody's lock for as long as it may; nothing of the transaction was done."""

    LOST = "lost"
    """The connection broke or the server is away. What had been sent may or may not have been done."""


class Dialect(ABC):
    """One kind of database."""

    name: ClassVar[str]
    """SQLAlchemy's name for it, which is also how a caller's transaction shows its kind."""

    other_names: ClassVar[frozenset[str]] = frozenset()
    """Further names under which the same kind of database goes."""

    has_schemas: ClassVar[bool]
    """Our tables live in a schema of their own; where there are none, their names have a prefix."""

    has_arrays: ClassVar[bool]
    """Many rows travel as arrays inside one statement: the hot writes are one round trip (`stores.arrays`)."""

    has_ranges_in_joins: ClassVar[bool] = True
    """A join reads a range of an index for each row of its other side. Where it reads all that is equal in the first column
    instead, signals are looked for one wait after the other (`stores.rows.news`)."""

    has_transactional_ddl: ClassVar[bool] = True
    """A migration that fails leaves nothing. Where each definition commits by itself, it is one that can be repeated."""

    has_notices: ClassVar[bool] = True
    """Processes hear of what others make ready, as soon as that is committed. Where they do not, a claim looks for what it
    has left out because others had it locked, so that its worker looks again (`ports.store.Claim.passed_by`)."""

    in_the_way: ClassVar[str] = "Other transactions were in the way"
    """What a caller is told who gave up waiting for others."""

    @abstractmethod
    def now(self) -> ColumnElement[int]:
        """Return the database's clock in microseconds: one value within a statement, never one from before a wait for
        another statement's lock. Index conditions use it, so it MUST NOT count as volatile."""

    @abstractmethod
    def insert_if_absent(self, table: Table) -> Insert:
        """Return an insert that leaves an existing key alone and raises nothing. It matches 1 row when it inserts one, and
        any other number when it does not."""

    def inserted(self, table: Table) -> ColumnElement[bool] | None:
        """Return "this row is one that the last `insert_if_absent` of this transaction made", to be asked of rows which that
        insert named. Then many rows are inserted by one statement. None where that is no gain: a statement is no round trip
        there, and each insert's count tells."""
        return None

    def update_many(
        self, table: Table, names: Mapping[str, TypeEngine[Any]], count: int
    ) -> tuple[Update, FromClause] | None:
        """Return an update of `table`, and `count` rows of parameters that are joined to it: `name_of_0` and so on for each
        of `names`. The caller adds how, which MUST be by the key: it is read for one row after the other, whatever the
        statistics say. None where a statement is no round trip, so that rows go one by one."""
        return None

    @abstractmethod
    def is_among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """Return "column is one of the texts in parameter `name`", as one statement whatever their number."""

    @abstractmethod
    def listed(self, values: Iterable[str]) -> object:
        """Return the texts in the form that `is_among` takes as its parameter."""

    @abstractmethod
    def claim_lock(self, select: Query) -> Query:
        """Lock the selected rows and leave out those that another transaction has locked."""

    def lock_at_once(self, select: Query) -> Query | None:
        """Lock the selected rows, be refused at once when another transaction has locked one, made it without having ended
        included. None where writers exclude each other anyway."""
        return None

    def by_index(self, select: Query, table: Table, index: str) -> Query:
        """Have rows read in the order of this index, where the planner might take another one and lock what it reads."""
        return select

    def update_of_waiting(self, runs: Table) -> Update:
        """Return an update of runs whose conditions find them by their waits' topic.

        Where a statement locks what it reads, it MUST come to the runs by the waits, or it locks all of them.
        """
        return update(runs)

    @abstractmethod
    def topic_locks(self, tables: Tables, topics: Iterable[str], *, shared: bool) -> Statement | None:
        """Take the topics' locks until the transaction ends; None where writers exclude each other anyway."""

    @abstractmethod
    def write_lock(self, tables: Tables) -> Statement | None:
        """Become the writer in a transaction that the caller began, before any statement reads the time: where writers wait
        for the whole database, a time that was read before that wait would be older than what was committed meanwhile.
        None where a statement reads the time after its locks, or where locks are by row."""

    @abstractmethod
    def notice(self, tables: Tables, what: ColumnElement[str]) -> ColumnElement[Any]:
        """Return an expression that tells listening processes, once the transaction commits; a plain null elsewhere.

        It stands in a statement that runs anyway, so that a wake-up costs no round trip.
        """

    @abstractmethod
    def isolation(self) -> Statement | None:
        """Read the isolation of the running transaction, as the database writes it."""

    @abstractmethod
    def check_server(self) -> Op[None]:
        """Raise an OutlastError when the server is too old or set up in a way that breaks a promise."""

    def most_at_once(self) -> Op[int | None]:
        """Read how many bytes a statement may have; None where a text has a limit but a statement has none. Raises an
        OutlastError when that is too little."""
        yield from ()
        return None

    def too_big(self, text: str, most: int | None) -> str | None:
        """Return why a text cannot be stored for its size, and what to do; None for any other."""
        if len(text) * 4 < MOST_BYTES or len(text.encode(errors="surrogatepass")) < MOST_BYTES:
            return None
        return "no database takes a text of a gigabyte. Store less (a reference to where the data lies)"

    @abstractmethod
    def migration_lock(self, name: str) -> Statement | None:
        """Let one migrating process pass; None where the transaction itself does."""

    def has_migration_lock(self, answer: object) -> bool:
        """Tell by what the lock's statement answered whether it was got."""
        return True

    def migration_unlock(self, name: str) -> Statement | None:
        """Let the next process pass; None where the end of the transaction does."""
        return None

    @abstractmethod
    def schema_present(self, name: str) -> Statement | None:
        """Tell whether the schema exists, whether this role may make tables in it (or make it), and the role's name; None
        where there are no schemas."""

    def check_rights(self, tables: Tables) -> Op[None]:
        """Raise DatabaseUnavailable when this role may not do with the tables what outlast does. They MUST be there: this is
        for the start, where somebody sees it, and not for the first run. A server that only reads is not asked: whoever
        only looks at runs may use a replica. SQLite has no roles."""
        yield from ()

    @abstractmethod
    def tables_present(self, tables: Tables) -> Statement:
        """Return the names of those of our tables that exist, bare (without schema)."""

    def garbles(self, present: Result) -> str | None:
        """Tell by the answer to `tables_present` why texts would not arrive on that connection as they are, in words for
        behind "a connection", with what to do; None where they do."""
        return None

    @abstractmethod
    def whereabouts(self) -> Statement:
        """Return the name of the database that a connection is on, for messages: on SQLite its file, "" for memory."""

    def is_aborted(self, error: BaseException) -> bool:
        """Tell whether a statement was refused only because an earlier one of its transaction had failed."""
        return False

    def refusal(self, error: BaseException) -> str | None:
        """Explain a refusal that no waiting mends, such as of a password, of a certificate or of a right that a role lacks;
        None for any other error."""
        return None

    def absent(self, error: BaseException) -> str | None:
        """Return the whole name of the table that a statement did not find, where a connection may be switched to another
        database and then finds none of ours; None for any other error, and where it cannot be switched."""
        return None

    def only_reads(self, error: BaseException) -> bool:
        """Tell whether a write was refused because the server takes none; it may be about to become the primary."""
        return False

    @abstractmethod
    def is_conflict(self, error: BaseException) -> bool:
        """Tell whether the database refused a transaction for what others did at the same time, so that the same one, begun
        again, may go through. Not what a caller asked for: that it does not wait, or no longer than so."""

    @abstractmethod
    def trouble(self, error: BaseException) -> Trouble | None:
        """Classify a driver's error, wrapped by SQLAlchemy or not; None when it is about the operation itself."""


def needed_rights(tables: Tables) -> Sequence[tuple[Table, str]]:
    """Return each right that a role needs: the table, and what it does there."""
    return [(table, right) for table in tables.all if table is not tables.migrations for right in RIGHTS]


def unwrapped(error: BaseException) -> Sequence[BaseException]:
    """Return the error and what SQLAlchemy or a driver wrapped, outermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        original: BaseException | None = getattr(current, "orig", None)
        current = original if original is not None else current.__cause__
    return chain
