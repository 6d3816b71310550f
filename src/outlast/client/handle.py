"""Handles: one run, in the hands of who started it or knows its id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar, cast

from outlast.model.durations import Duration
from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.store import StartOutcome

O_co = TypeVar("O_co", covariant=True)
O = TypeVar("O")  # noqa: E741 -- input and output are I and O wherever a workflow's types are named


Wait: TypeAlias = Callable[[RunId, str, Duration | None, bool], Awaitable[object]]
"""Wait for the end of a run of that workflow; True: it had ended before it was started again."""
Block: TypeAlias = Callable[[RunId, str, Duration | None, bool], object]
"""The same, blocking."""


class _Known:
    """A run that is known by its id."""

    def __init__(self, id: RunId, workflow: str) -> None:
        self._id = id
        self._workflow = workflow

    @property
    def id(self) -> RunId:
        """The run's id."""
        return self._id

    @property
    def workflow(self) -> str:
        """The name of its workflow."""
        return self._workflow

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.workflow!r})"


class _Started(_Known):
    """What a start reported. It does not follow the run: `app.get(handle.id)` tells how it stands now."""

    def __init__(self, outcome: StartOutcome) -> None:
        super().__init__(outcome.id, outcome.workflow)
        self._outcome = outcome

    @property
    def version(self) -> int:
        """The version of its workflow."""
        return self._outcome.version

    @property
    def created(self) -> bool:
        """True when this call created the run; False when it existed already, with the same workflow and input."""
        return self._outcome.created

    @property
    def status(self) -> Status:
        """The run's status at that moment."""
        return self._outcome.status

    @property
    def _had_ended(self) -> bool:
        return not self._outcome.created and self._outcome.status.is_terminal

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.workflow!r} version {self.version}, {self.status})"


class KnownRun(_Known, Generic[O_co]):
    """A run known by its id, which may not have been started; `O` is the type of its output. See `Outlast.handle`.

    Versionadded: 0.1
    """

    def __init__(self, wait: Wait, id: RunId, workflow: str) -> None:
        super().__init__(id, workflow)
        self._wait = wait

    async def result(self, *, timeout: Duration | None = None) -> O_co:
        """Wait for the run's end and return its output; see `Outlast.result`. Raises InvalidArgument when the run is one of
        another workflow."""
        return cast("O_co", await self._wait(self.id, self.workflow, timeout, False))


class BlockingKnownRun(_Known, Generic[O_co]):
    """A run known by its id, for code that blocks; `O` is the type of its output. See `Outlast.handle`.

    Versionadded: 0.1
    """

    def __init__(self, block: Block, id: RunId, workflow: str) -> None:
        super().__init__(id, workflow)
        self._block = block

    def result(self, *, timeout: Duration | None = None) -> O_co:
        """Block until the run's end and return its output; see `Outlast.result`. Raises InvalidArgument when the run is one
        of another workflow."""
        return cast("O_co", self._block(self.id, self.workflow, timeout, False))


class Handle(_Started, Generic[O_co]):
    """A started run; `O` is the type of its output.

    Versionadded: 0.1
    """

    def __init__(self, wait: Wait, outcome: StartOutcome) -> None:
        super().__init__(outcome)
        self._wait = wait

    async def result(self, *, timeout: Duration | None = None) -> O_co:
        """Wait for the run's end and return its output; see `Outlast.result`."""
        return cast("O_co", await self._wait(self.id, self.workflow, timeout, self._had_ended))


class BlockingHandle(_Started, Generic[O_co]):
    """A started run, for code that blocks; `O` is the type of its output.

    Versionadded: 0.1
    """

    def __init__(self, block: Block, outcome: StartOutcome) -> None:
        super().__init__(outcome)
        self._block = block

    def result(self, *, timeout: Duration | None = None) -> O_co:
        """Block until the run's end and return its output; see `Outlast.result`."""
        return cast("O_co", self._block(self.id, self.workflow, timeout, self._had_ended))


Handles: TypeAlias = list[Handle[O]]
BlockingHandles: TypeAlias = list[BlockingHandle[O]]
