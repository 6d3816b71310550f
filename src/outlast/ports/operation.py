"""An operation is a generator of statements.

A store's verb returns an `Op[T]`: a generator that yields `Statement`s, is sent a `Result` for each, and returns a `T`. It
does no I/O itself, so one body serves an awaiting connection, a blocking one and the caller's own transaction, and a test
can stop before any statement or interleave two operations.

One op is one transaction, or joins the caller's. An op decides by what a statement returned, never by catching a database
error, because PostgreSQL refuses everything after an error in a transaction. Retrying an op means asking for a new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

T = TypeVar("T")

Params: TypeAlias = Mapping[str, object]
Span: TypeAlias = Literal["write", "read", "alone", "session"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement. `sql` is opaque here; to the stores it is SQLAlchemy Core. A sequence of `params` runs the statement
    once for each, in order, as one call to the driver; `Result.affected` is then the sum.

    `span` counts on an op's first statement and says what the op needs around it when no caller's transaction is there:
    "write" a transaction; "read" one snapshot for several statements that write nothing; "alone" nothing, because the op
    is this one statement, atomic by itself (should another follow, it is on its own too); "session" a connection that ends
    with the op, on which each statement commits by itself.
    """

    sql: Any
    params: Params | Sequence[Params] = field(default_factory=dict[str, object])
    span: Span = "write"


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement returned: rows as sequences by position, and how many rows it matched (-1: not told)."""

    rows: Sequence[Sequence[Any]] = ()
    affected: int = -1


Op: TypeAlias = Generator[Statement, Result, T]
Execute: TypeAlias = Callable[[Statement], Result]
ExecuteAwaiting: TypeAlias = Callable[[Statement], Awaitable[Result]]


def pump(op: Op[T], execute: Execute) -> T:
    """Run an op to its end on a blocking connection."""
    try:
        statement = next(op)
        while True:
            statement = op.send(execute(statement))
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        op.close()


async def pump_awaiting(op: Op[T], execute: ExecuteAwaiting) -> T:
    """Run an op to its end on an awaiting connection."""
    try:
        statement = next(op)
        while True:
            statement = op.send(await execute(statement))
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        op.close()
