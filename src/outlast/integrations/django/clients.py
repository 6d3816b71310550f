"""The verbs of an app that knows which transaction Django has open."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

from outlast.client.access import Access
from outlast.client.blocking import BlockingClient
from outlast.client.calls import Call, Calls, Start
from outlast.client.client import Client
from outlast.client.grouping import Grouped
from outlast.client.publishing import Publishing
from outlast.engine.eventloop import WorkflowLoop
from outlast.errors import InvalidArgument, SchemaBehind
from outlast.integrations.django.database import DjangoDatabase
from outlast.integrations.django.transactions import APART, is_open, joined
from outlast.model.durations import Duration
from outlast.model.ids import RunId
from outlast.ports.store import StartOutcome

A = TypeVar("A")
Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")


class DjangoAccess(Access):
    """The way to the database of an alias, and to the worker of this process."""

    def __init__(self, database: DjangoDatabase, *, migrates: bool) -> None:
        super().__init__(database, migrates=migrates)
        self.django = database

    async def ready(self, verb: str, tx: object = None) -> None:
        if self.django.is_home() or isinstance(asyncio.get_running_loop(), WorkflowLoop):
            with _advised():
                await super().ready(verb, tx)
        elif not self._is_ready:
            await sync_to_async(self.ready_blocking)(verb, tx)

    def ready_blocking(self, verb: str, tx: object = None) -> None:
        with _advised():
            super().ready_blocking(verb, tx)

    def wake(self, tx: object = None) -> None:
        if self.local is not None:
            super().wake(self._waited_for(tx))

    def stop_requested(self, run_id: RunId, tx: object = None) -> None:
        if self.local is not None:
            super().stop_requested(run_id, self._waited_for(tx))

    def _waited_for(self, tx: object) -> object:
        """Return the transaction whose commit is to be waited for. On a loop none is open: Django's are a thread's."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return joined(self.django.alias, tx)
        return None if tx is APART else tx


@contextmanager
def _advised() -> Generator[None, None, None]:
    """Say what brings tables up to date in a Django project."""
    try:
        yield
    except SchemaBehind as behind:
        behind.advise("Run `python manage.py migrate`, or `python manage.py outlast_migrate`, in your deploy step.")
        raise


class DjangoBlockingClient(BlockingClient):
    """The verbs for code that does not await. Each joins the atomic block that it is called in."""

    def __init__(self, access: DjangoAccess, calls: Calls, publishing: Publishing) -> None:
        super().__init__(access, calls, publishing)
        self._alias = access.django.alias

    def perform(self, verb: str, call: Call[R, T], tx: object = None) -> T:
        """Run a verb here, joined to the current atomic block."""
        return self._perform(verb, call, tx)

    def _perform(self, verb: str, call: Call[R, T], tx: object = None) -> T:
        self._access.refuse_in_loop(verb)
        return super()._perform(verb, call, joined(self._alias, tx))

    def _result_of(self, run_id: RunId, workflow: str | None, timeout: Duration | None, had_ended: bool) -> object:
        if timeout is None and is_open(connections[self._alias]):
            known = self._look(run_id)
            if known is not None and not known.status.is_terminal:
                raise InvalidArgument(
                    f"result() of run {run_id!r} was called inside of transaction.atomic(), which may be what the run waits "
                    "for: it begins, and is signalled, when the block is left. Call result() after the block, or with a "
                    "timeout."
                )
        return super()._result_of(run_id, workflow, timeout, had_ended)


class DjangoClient(Client):
    """The verbs, awaited: on the loop of a worker over its connections, else on the thread of Django's async methods."""

    def __init__(
        self, access: DjangoAccess, calls: Calls, publishing: Publishing, blocking: DjangoBlockingClient
    ) -> None:
        super().__init__(access, calls, publishing)
        self._django = access.django
        self._blocking = blocking

    async def _perform(self, call: Call[R, T], tx: object = None) -> T:
        if tx is not None and tx is not APART:
            return await super()._perform(call, tx)
        if self._django.is_home():
            return await super()._perform(call)
        perform = partial(self._blocking.perform, "verb", call, tx)
        return await sync_to_async(perform)()

    def _on_loop(self) -> Any:  # noqa: ANN401 - what the client keeps for a loop is its own affair
        mine = super()._on_loop()
        if not self._django.is_home() and not isinstance(mine.looks, Alone):
            mine.looks = Alone(self._look, most=1)
        return mine

    async def _started(self, start: Start) -> StartOutcome:
        if self._django.is_home():
            return await super()._started(start)
        outcome = await self._perform(self._calls.start_alone(start))
        self._access.wake()
        return outcome


class Alone(Grouped[Q, A]):
    """Each question by itself, in its caller's context: that tells on which thread Django works for it."""

    async def ask(self, question: Q) -> A:
        answers: Sequence[A] = await self._perform([question], waits=True)
        return answers[0]
