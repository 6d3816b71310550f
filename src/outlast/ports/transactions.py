"""Where the application's own transactions come from, for steps that write in one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

BeginAwaiting: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
BeginBlocking: TypeAlias = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """How a transaction of each colour is begun; None where there is none of that colour.

    What `awaiting()` and `blocking()` return is entered for a session or connection with a transaction open. It MUST commit
    when it is left, roll back when an error leaves it, and let that error out.

    is_sure: leaving it without an error has committed, whatever happened inside. Without that the journal is looked at after
        each step.
    has_one_writer: whoever writes has the whole database, so one transaction of a process waits here for the other and not
        in the database, where patience ends. Nobody is told of a commit there, so whoever commits looks for work.
    """

    awaiting: BeginAwaiting | None = None
    blocking: BeginBlocking | None = None
    is_sure: bool = False
    has_one_writer: bool = False
