"""What differs between drivers on a road of pooled connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from outlast.ports.operation import Result, Span, Statement

BEGIN: Final[Mapping[Span, str | None]] = {
    "write": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "read": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "alone": None,
}


@dataclass(frozen=True, slots=True)
class Wire:
    """How a transaction begins, as its first statement asks for, and how one statement is executed.

    The texts of `begin` have no arguments and travel in one round trip; None where a statement that stands alone needs
    nothing around it.
    """

    execute: Callable[[Any, Statement], Awaitable[Result]]
    begin: Mapping[Span, str | None]


def beginning_with(settings: Mapping[str, str]) -> Mapping[Span, str | None]:
    """Return beginnings that set what lasts for the transaction, in the same round trip. Nothing stands alone then."""
    texts = "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())
    write, read = (f"{BEGIN[span]}; {texts}" for span in ("write", "read"))
    return {"write": write, "read": read, "alone": write}


class OpenTransaction:
    """One op's transaction on a connection: it begins as the op's first statement asks for."""

    def __init__(self, connection: Any, wire: Wire) -> None:  # noqa: ANN401 - a driver's connection
        self.connection = connection
        self.may_be_committed = False
        self._wire = wire
        self._has_begun = False
        self._is_open = False

    async def execute(self, statement: Statement) -> Result:
        if not self._has_begun:
            self._has_begun = True
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
