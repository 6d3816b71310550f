"""The transaction that Django has open on this thread."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Final

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from outlast.ports.transactions import Transactions


class Apart(Enum):
    """What is passed as `tx=` to join nothing."""

    APART = auto()


APART: Final = Apart.APART
"""`tx=APART`: the verb commits by itself, whatever block it is called in."""


def joined(alias: str, tx: object) -> object:
    """Return the transaction that a verb joins when `tx` was passed to it: the current one, when that is None."""
    if tx is APART:
        return None
    if tx is not None:
        return tx
    connection = connections[alias]
    return connection if is_open(connection) else None


def is_open(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether the caller has a transaction open: an atomic block, or any with autocommit switched off.

    The blocks that Django's TestCase puts around a test do not count: what is tested would commit by itself.
    """
    if connection.in_atomic_block:
        return not is_of_test(connection)
    return not connection.get_autocommit()


def is_of_test(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether the only blocks open are those that Django's TestCase puts around a test."""
    blocks: Any = getattr(connection, "atomic_blocks", ())
    return bool(blocks) and all(getattr(block, "_from_testcase", False) for block in blocks)


class DjangoTransactions:
    """Transactions for steps that write in one: atomic blocks, which give the connection."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        # A block that Django holds for broken takes no record any more, so one that took it commits.
        self.transactions: Transactions = Transactions(blocking=self._atomic, is_sure=True)

    @contextmanager
    def _atomic(self) -> Generator[BaseDatabaseWrapper, None, None]:
        with transaction.atomic(using=self._alias):
            yield connections[self._alias]

    async def close(self) -> None: ...

    def close_blocking(self) -> None: ...
