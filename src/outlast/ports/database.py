"""A database: runs operations as transactions, and says when something may have changed.

There is one awaiting side and one blocking side over the same data; an application uses whichever fits its colour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from outlast.errors import DatabaseBusy
from outlast.ports.operation import Op
from outlast.ports.store import Store
from outlast.ports.transactions import Transactions

T = TypeVar("T")
MakeOp = Callable[[], Op[T]]
Notice = Callable[[str], None]


class HeldUp(DatabaseBusy):
    """Another transaction holds what an op needs, and nobody waits for that. Others may go through meanwhile."""


class Database(Protocol):
    """One application's connection to its data.

    `run` and `run_blocking` take a function that makes the op: a transient failure (serialization, deadlock, busy,
    connection lost before COMMIT was sent) runs a new one. `repeatable` says that the op may also run again when it is
    unknown whether COMMIT took effect; without it DatabaseUnavailable is raised then, and HeldUp as soon as the database has
    waited for somebody's lock as long as it may. Both raise DatabaseUnavailable when the database stays away
    for longer than `patience` seconds.
    """

    @property
    def store(self) -> Store:
        """The verbs in this database's dialect."""
        ...

    @property
    def place(self) -> str:
        """What to call it in messages. MUST hold no password."""
        ...

    @property
    def is_lasting(self) -> bool:
        """False when the data ends with the connection: a database in memory."""
        ...

    def too_big(self, text: str) -> str | None:
        """Return why a text cannot be stored for its size, and what to do; None for any other. Known once it is open."""
        ...

    async def open(self) -> None:
        """Connect and check the server. Loop-bound parts are made on first use in each loop."""
        ...

    async def close(self) -> None:
        """Close what `open` and later use opened, on the awaiting side, and stop listening."""
        ...

    def close_blocking(self) -> None:
        """Close the blocking side."""
        ...

    async def run(self, make: MakeOp[T], *, repeatable: bool = True, patience: float = 30.0, waits: bool = True) -> T:
        """Run an op as one transaction of our own. `waits`: where another transaction holds what it needs, try again;
        without it HeldUp is raised at once."""
        ...

    def run_blocking(self, make: MakeOp[T], *, repeatable: bool = True, patience: float = 30.0) -> T:
        """Run an op as one transaction of our own, blocking."""
        ...

    async def join(self, tx: object, make: MakeOp[T], *, read_committed: bool = False) -> T:
        """Run an op inside the caller's transaction, whatever kind it is; never commits and never retries.

        Raises NotATransaction for a root handle, IsolationRefused when `read_committed` is asked for and not given.
        """
        ...

    def join_blocking(self, tx: object, make: MakeOp[T], *, read_committed: bool = False) -> T:
        """Run an op inside the caller's blocking transaction."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Transactions over connections of ours, for an application that gives none of its own."""
        ...

    async def mark(self, tx: object) -> None:
        """Mark the application's transaction at its beginning, for `join_marked`. Raises NotATransaction as `join` does, and
        where it cannot reach our tables."""
        ...

    def mark_blocking(self, tx: object) -> None:
        """Mark a blocking transaction."""
        ...

    async def join_marked(self, tx: object, make: MakeOp[T]) -> T:
        """Run an op inside the transaction that was marked, at its end.

        MUST raise TransactionEnded when it is not that transaction any more, whatever the application did: its rows would be
        committed apart from ours. Raises TransactionAborted when the database takes nothing more in it.
        """
        ...

    def join_marked_blocking(self, tx: object, make: MakeOp[T]) -> T:
        """Run an op inside the blocking transaction that was marked."""
        ...

    def is_conflict(self, error: BaseException) -> bool:
        """Tell whether this is the database's word that others were in the way of a transaction (a deadlock, what it could
        not serialize), wrapped by a library or not. Nothing of that one is done, and the same one may go through."""
        ...

    def after_commit(self, tx: object, action: Callable[[], object]) -> bool:
        """Call `action`, on whichever thread that happens, once the caller's transaction is committed, and never when it or
        the savepoint in which the caller is now is rolled back.

        Only some kinds of transaction tell. With the others nothing is called, and `listen` finds what was committed. False
        when neither will happen: then somebody has to look.
        """
        ...

    def is_open(self, tx: object) -> bool:
        """Tell whether the caller's transaction has not ended yet, as far as that is known without asking the server. For
        kinds that do not tell of their commit; False when it cannot be known."""
        ...

    async def migrate(self) -> tuple[int, ...]:
        """Bring the tables up to date under a lock; return the versions applied, none when nothing was to do."""
        ...

    def migrate_blocking(self) -> tuple[int, ...]:
        """The same, blocking."""
        ...

    def can_migrate_beside(self) -> bool:
        """Whether `migrate` would go through now, without waiting for a transaction that the caller may have open."""
        ...

    async def schema_version(self) -> tuple[int, int]:
        """Return which version the tables have (0: there are none), and which one this code needs."""
        ...

    def schema_version_blocking(self) -> tuple[int, int]:
        """The same, blocking."""
        ...

    def migration_statements(self, since: int) -> tuple[str, ...]:
        """Return what `migrate` would execute on tables of this version, as text."""
        ...

    async def check_schema(self) -> None:
        """Raise SchemaBehind when the tables are older than this code."""
        ...

    def check_schema_blocking(self) -> None:
        """The same, blocking."""
        ...

    async def listen(self, notice: Notice) -> None:
        """Call `notice` on the running loop whenever another process may have made work: "ready", or "stop".

        Best effort: a poll backs it up. On PostgreSQL LISTEN/NOTIFY, reconnecting by itself; on SQLite a look at the
        file's change counter.
        """
        ...

    def separate(self) -> Database:
        """Return another handle on the same data for use on another thread's loop (the lease's renewal)."""
        ...
