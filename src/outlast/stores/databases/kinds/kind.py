"""One kind of handle that a caller may pass as `tx=`, and the transaction that is found behind one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from outlast.errors import NotATransaction
from outlast.ports.operation import Execute, ExecuteAwaiting


@dataclass(frozen=True, slots=True)
class BlockingTransaction:
    """A caller's open transaction whose statements are waited for.

    what: names it in messages.
    database: SQLAlchemy's name for the kind of database it is on.
    source: what lives longer and always leads to the same database: an engine, or the connection.
    enter: called once before the first statement; may refuse.
    """

    what: str
    database: str
    source: object
    enter: Callable[[], Execute]


@dataclass(frozen=True, slots=True)
class AwaitingTransaction:
    """The same, awaited."""

    what: str
    database: str
    source: object
    enter: Callable[[], Awaitable[ExecuteAwaiting]]


Transaction: TypeAlias = BlockingTransaction | AwaitingTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What one library calls a transaction.

    handles: what may be passed, in a reader's words.
    recognise: returns the transaction behind a handle of this kind, None for any other value. MUST raise NotATransaction
        when the handle has no transaction open, because each statement of ours would then commit by itself.
    roots: classes of the library, as (module, name), that are mistaken for one; with what to pass instead.
    after_commit: for kinds that tell of their commit: `Database.after_commit` for a handle of this kind, returning False for
        any other value. It MUST forget an action whose savepoint or transaction is rolled back.
    is_open: for kinds that do not: whether the transaction has not ended yet, as far as it is known here. The server MUST
        NOT be asked. None for a value that is not of this kind.
    """

    handles: str
    recognise: Callable[[object], Transaction | None]
    roots: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    after_commit: Callable[[object, Callable[[], object]], bool] | None = None
    is_open: Callable[[Any], bool | None] | None = None


def told(value: object) -> str:
    """Return what a value is, in the words of a message: "a psycopg.Connection"."""
    if value is None:
        return "None"
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    name = kind.__name__ if package == "builtins" else f"{package}.{kind.__qualname__}"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def none_open(value: object, begin: str) -> NotATransaction:
    """Return the error for a handle without a transaction; `begin` says how one is begun."""
    return NotATransaction(
        f"tx= is {told(value)} without an open transaction, so each statement would commit by itself. {begin}"
    )
