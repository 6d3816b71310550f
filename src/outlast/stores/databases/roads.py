"""What a road to a database has to do, for both colours."""

from __future__ import annotations

from typing import Protocol, TypeVar

from outlast.ports.database import MakeOp, Notice
from outlast.ports.transactions import Transactions

T = TypeVar("T")


class OutcomeUnknown(Exception):
    """The connection broke while a COMMIT, or a statement that commits by itself, was on its way. `__cause__` says how."""


class Road(Protocol):
    """A way to the database for awaiting callers.

    `transact` runs one op as one transaction and does not try again. It raises what the driver raised, or OutcomeUnknown
    from it when the transaction may have been committed. After an error, and when it is cancelled, nothing of the
    transaction is left open.
    """

    async def transact(self, make: MakeOp[T], *, timeout: float) -> T: ...

    async def close(self) -> None: ...


class BlockingRoad(Protocol):
    """A way to the database for blocking callers, with the same duties."""

    def transact(self, make: MakeOp[T]) -> T: ...

    def close(self) -> None: ...


class OwnTransactions(Protocol):
    """Begins transactions of the application's over connections of ours, which are made as the application's own would be:
    without the settings that our statements want."""

    @property
    def transactions(self) -> Transactions: ...

    async def close(self) -> None: ...

    def close_blocking(self) -> None: ...


class Listener(Protocol):
    """Something that calls back when another process may have made work."""

    async def listen(self, notice: Notice) -> None: ...

    async def close(self) -> None: ...
