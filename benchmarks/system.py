"""What a measured system must offer: the one interface between the workloads and the adapters."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import importlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from benchmarks.probing import Probe

Role = Literal["all", "client", "worker"]
"""Which part one process plays: it starts and executes runs, only starts them, or only executes them."""

Key: TypeAlias = Any
"""Whatever a library hands out for a started run."""

MODULES = {
    "outlast": ("benchmarks.system_outlast", "OutlastSystem"),
    "dbos": ("benchmarks.system_dbos", "DbosSystem"),
    "absurd": ("benchmarks.system_absurd", "AbsurdSystem"),
    "procrastinate": ("benchmarks.system_procrastinate", "ProcrastinateSystem"),
}


@dataclass(frozen=True, slots=True)
class Counts:
    """Queries that count rows in a system's own tables: how the harness sees that work was done."""

    finished: str
    started: str
    steps: str = ""
    """Recorded steps; empty for a plain job queue."""
    asleep: str = ""
    """Runs whose sleep is recorded."""


class System(abc.ABC):
    """One library in one process, on one database."""

    packages: ClassVar[tuple[str, ...]]
    """Distributions whose versions belong beside the figures."""
    executes_in_process: ClassVar[bool] = True
    """Whether the process that starts runs can execute them too; if not, the workloads add a worker process."""

    counts: Counts

    def __init__(self, database: str) -> None:
        self.database = database
        self.is_sqlite = database.startswith("sqlite")

    @abc.abstractmethod
    async def create(self) -> None:
        """Make the library's tables in an empty database."""

    @abc.abstractmethod
    async def open(self, role: Role) -> None: ...

    @abc.abstractmethod
    async def close(self) -> None: ...

    @abc.abstractmethod
    async def start(self, number: int, steps: int) -> Key:
        """Start a run of so many trivial steps, one after the other; return when the start is durable."""

    @abc.abstractmethod
    async def result(self, key: Key) -> None:
        """Return when the run is completed."""

    async def start_many(self, numbers: range, steps: int) -> None:
        raise NotImplementedError

    async def start_waiting(self, number: int) -> Key:
        """Start a run that waits for a signal; return when it waits."""
        raise NotImplementedError

    async def signal(self, number: int, key: Key) -> None:
        raise NotImplementedError

    async def start_sleeping(self, until: float) -> Key:
        """Start a run that sleeps until this time (seconds since the epoch) and notes how late it woke."""
        raise NotImplementedError

    async def lateness(self, probe: Probe) -> list[float]:
        """Seconds between the time slept for and the workflow's next line, of every run."""
        raise NotImplementedError

    async def load_history(self, probe: Probe, finished: Key, sleeping: Key, counts: tuple[int, int]) -> None:
        """Copy a finished and a sleeping run by SQL, so many times each."""
        raise NotImplementedError


@contextlib.asynccontextmanager
async def opened(system: System, role: Role) -> AsyncIterator[System]:
    """Open a system for one role and close it at the end."""
    await system.open(role)
    try:
        yield system
    finally:
        await system.close()


def load(name: str, database: str) -> System:
    return adapter(name)(database)


def adapter(name: str) -> type[System]:
    """The adapter of a system; imports its library only here, in the child process that measures it."""
    module, attribute = MODULES[name.partition("-")[0]]
    found: type[System] = getattr(importlib.import_module(module), attribute)
    return found


async def fan(count: int, at_once: int, call: Callable[[int], Awaitable[object]]) -> None:
    """Await `call(0)` to `call(count - 1)`, at most so many at once."""
    numbers = iter(range(count))

    async def one_after_another() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(one_after_another() for _ in range(at_once)))


async def parent_gone() -> None:
    """Return when the parent process closes our standard input: a worker process ends with its parent."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(100):
        pass
