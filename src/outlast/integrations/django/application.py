"""The app of a Django project: made from its settings when it is first used."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from outlast.app import Outlast
from outlast.client.blocking import BlockingClient
from outlast.engine.definition import workflow_of
from outlast.errors import DefinitionError
from outlast.integrations.django.clients import DjangoAccess, DjangoBlockingClient, DjangoClient
from outlast.integrations.django.conf import Config, read_config
from outlast.integrations.django.database import DjangoDatabase, DjangoSource
from outlast.integrations.django.steps import StepConnections
from outlast.integrations.django.tending import Tending
from outlast.model.options import WorkerOptions
from outlast.ports.clock import Clock

WORKFLOWS: Final = "workflows"
"""The module that is looked for in each installed app."""


class DjangoOutlast(Outlast):
    """An Outlast whose database, workflows and options are those of the Django project.

    Its verbs join the `transaction.atomic()` block that they are called in, on the alias of `OUTLAST["DATABASE"]`: nothing
    is passed, and `tx=APART` joins none. Outside of a block each commits by itself. They use Django's own connections.

    Nothing is read before the first use, so that settings, models and workflows may import it.
    """

    def __init__(self) -> None:
        self._making = threading.RLock()
        self._test_clock: Clock | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever an Outlast has
        # Only what `Outlast.__init__` sets is ever missing.
        if name.startswith("__"):
            raise AttributeError(name)
        with self._making:
            if "_django" not in self.__dict__:
                self._make(read_config())
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return super().__repr__() if "_django" in self.__dict__ else "<Outlast of a Django project, not used yet>"

    @cached_property
    def blocking(self) -> BlockingClient:
        """The same verbs for code that does not await: views, commands, steps."""
        return self._django_blocking

    def forget(self) -> None:
        """Read the settings again at the next use. Raises DefinitionError while the app is open."""
        making, clock = self._making, self._test_clock
        with making:
            if "_access" in self.__dict__ and self._access.is_open:
                raise DefinitionError("This app is open; its settings cannot change until it is closed.")
            self.__dict__.clear()
            self._making, self._test_clock = making, clock

    @contextmanager
    def clocked(self, clock: Clock) -> Generator[Clock, None, None]:
        """Have a clock in the place of the database's, for a test."""
        former, self._test_clock = self._test_clock, clock
        self.forget()
        try:
            yield clock
        finally:
            self._test_clock = former
            self.forget()

    def _make(self, config: Config) -> None:
        workflows = list(discovered(config))
        self._step_connections = around = StepConnections(config.worker.around_steps)
        super().__init__(
            DjangoSource(config.database), workflows=workflows, worker=replace(config.worker, around_steps=around),
            retry=config.retry, schema=config.schema, migrate=config.migrate, clock=self._test_clock,
        )  # fmt: skip
        database: Any = self._database
        django: DjangoDatabase = database
        access = DjangoAccess(django, migrates=config.migrate)
        self._access = access
        self._django_blocking = DjangoBlockingClient(access, self._calls, self._publishing)
        self._client = DjangoClient(access, self._calls, self._publishing, self._django_blocking)
        self._tending = Tending()
        self._django = django

    async def _open(self, *, with_worker: bool, options: WorkerOptions | None = None) -> None:
        home = asyncio.get_running_loop()
        former, self._django.home = self._django.home, home
        self._step_connections.open()
        try:
            await super()._open(with_worker=with_worker, options=options)
            if with_worker:
                self._tending.begin()
        except BaseException:
            self._django.home = former
            raise

    async def close(self) -> None:
        """Do what `Outlast.close` does."""
        is_home = self._django.is_home()
        await super().close()
        # Blocking verbs need nothing of what was closed: views go on when a worker in their process has ended.
        self._access.is_closed = False
        if is_home:
            await self._tending.end()
            await asyncio.to_thread(self._step_connections.close)
            self._django.home = None

    async def drain(self) -> int:
        """Do what `Outlast.drain` does. On a loop where no worker is, all of it happens on the thread of Django's async
        methods, plain steps included: with `async_to_sync(app.drain)()` the caller's own, and in its transaction."""
        if self._django.is_home():
            return await super().drain()
        with self._step_connections.relayed():
            return await super().drain()


def discovered(config: Config) -> Iterator[object]:
    """Import the modules of workflows and yield what is declared in them, each once."""
    if not apps.ready:
        raise ImproperlyConfigured(
            "The app of outlast.integrations.django was used while Django was still loading. It may be imported anywhere, "
            "but used only once the apps are ready: in views, commands, steps; not at the top of a module."
        )
    autodiscover_modules(WORKFLOWS)
    names = [f"{app.name}.{WORKFLOWS}" for app in apps.get_app_configs()] + list(config.workflows)
    seen: set[int] = set()
    for module in _modules(names, must_exist=set(config.workflows)):
        for value in vars(module).values():
            if id(value) not in seen and _is_workflow(value, module):
                seen.add(id(value))
                yield value


def _modules(names: list[str], *, must_exist: set[str]) -> Iterator[ModuleType]:
    for name in names:
        if name in must_exist:
            yield import_module(name)
        elif name in sys.modules:
            yield sys.modules[name]


def _is_workflow(value: object, module: ModuleType) -> bool:
    try:
        workflow_of(value)
    except DefinitionError:
        return False
    # An instance of a class that is declared elsewhere is meant; such a class that was imported is named where it stands.
    return not isinstance(value, type) or value.__module__ == module.__name__


app: Final = DjangoOutlast()
