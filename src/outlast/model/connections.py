"""How connections to a database server are made, as an operator says it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from outlast.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who connects, and the password or token for it. Without `user` it is the one in the URL.

    >>> from outlast import Credentials
    >>> Credentials(user="shop", password="a-token-for-minutes")
    Credentials(user='shop')

    Versionadded: 0.1
    """

    password: str = field(repr=False)
    user: str | None = None


ProvideCredentials: TypeAlias = Callable[[], Credentials | Awaitable[Credentials]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How outlast connects to a database server. For what the application's own engine or pool connects with, ask that.

    credentials: a function, plain or async, that is asked before each new connection, for databases whose tokens live for
        minutes. A plain one is called on a thread, so it may do I/O. When the server refuses what it gave, it is asked once
        more. Default: what the URL says.
    transaction_pooling: a pooler stands before the database that gives each transaction whichever connection is free, such
        as PgBouncer with `pool_mode = transaction`. Then no prepared statement outlives a transaction, nothing is set on a
        connection, and each transaction sets its own limits as it begins. Default False.
    listen: where PostgreSQL's notices of new work are heard. True: on a connection of its own to the database. A URL: there,
        such as past a pooler. False: nowhere; workers find new work by their poll. Default: True, but False behind a pooler,
        through which nothing can be heard.

    >>> from outlast import ConnectionOptions
    >>> ConnectionOptions(transaction_pooling=True).listens_to
    False

    Versionadded: 0.1
    """

    credentials: ProvideCredentials | None = None
    transaction_pooling: bool = False
    listen: bool | str | None = None

    def __post_init__(self) -> None:
        if self.credentials is not None and not callable(self.credentials):
            raise InvalidArgument(
                "ConnectionOptions(credentials=...) is a function that returns Credentials(...), called for each new "
                f"connection; {type(self.credentials).__name__} is none."
            )
        if self.listen is True and self.transaction_pooling:
            raise InvalidArgument(
                "ConnectionOptions(listen=True) cannot be: nothing is heard through a pooler in transaction mode. Pass the "
                "URL of a direct connection, or False to go by the worker's poll alone."
            )

    @property
    def listens_to(self) -> bool | str:
        """A URL, True for the database itself, or False for nowhere."""
        return not self.transaction_pooling if self.listen is None else self.listen
