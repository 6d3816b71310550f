"""What differs between drivers on a road of connections of theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from outlast.ports.operation import Result, Span, Statement
from outlast.stores.databases.held_pool import Held

BEGIN: Final[Mapping[Span, str | None]] = {
    "write": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "read": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "alone": None,
}


class Link(Held, Protocol):
    """What a road asks of a connection that it holds: asyncpg's has it, the others are given it."""

    async def execute(self, query: str, /) -> object:
        """Execute text without arguments and rows."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Begin a transaction of the application's, and end it."""
        ...

    def is_in_transaction(self) -> bool: ...

    async def reset(self) -> None:
        """Leave nothing of the application's behind."""
        ...


def _itself(connection: Any) -> Any:  # noqa: ANN401 - a driver's connection
    return connection


@dataclass(frozen=True, slots=True)
class Wire:
    """How a transaction begins, as its first statement asks for, how one statement is executed, and which part of a
    connection the application is given.

    The texts of `begin` have no arguments and travel in one round trip, where the driver can; None where a statement that
    stands alone needs nothing around it.
    """

    execute: Callable[[Any, Statement], Awaitable[Result]]
    begin: Mapping[Span, str | None]
    given: Callable[[Any], Any] = _itself


def beginning_with(settings: Mapping[str, str]) -> Mapping[Span, str | None]:
    """Return beginnings that set what lasts for the transaction, in the same round trip. Nothing stands alone then."""
    texts = "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())
    write, read = (f"{BEGIN[span]}; {texts}" for span in ("write", "read"))
    return {"write": write, "read": read, "alone": write}


class OpenTransaction:
    """One op's transaction on a connection: it begins as the op's first statement asks for."""

    def __init__(self, connection: Any, wire: Wire) -> None:  # noqa: ANN401 - a driver's connection
        self.connection = connection
        self.may_be_committed: bool = False
        self.span: Span | None = None
        self._wire = wire
        self._is_open = False

    async def execute(self, statement: Statement) -> Result:
        if self.span is None:
            self.span = statement.span
            begin = self._wire.begin.get(statement.span)
            if begin is None:
                self.may_be_committed = True
            else:
                self._is_open = True
                await self.connection.execute(begin)
        return await self._wire.execute(self.connection, statement)

    async def commit(self) -> None:
        if self._is_open:
            self.may_be_committed = True
            await self.connection.execute("COMMIT")

    async def roll_back(self) -> None:
        if self._is_open:
            await self.connection.execute("ROLLBACK")
