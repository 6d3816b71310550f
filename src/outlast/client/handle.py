"""Handles: one run, in the hands of who started it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

from outlast.model.durations import Duration
from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.store import StartOutcome

O_co = TypeVar("O_co", covariant=True)
O = TypeVar("O")  # noqa: E741 -- input and output are I and O wherever a workflow's types are named


class _Waits(Protocol):
    def result(self, id: str, *, timeout: Duration | None = None) -> Awaitable[object]: ...


class _Blocks(Protocol):
    def result(self, id: str, *, timeout: Duration | None = None) -> object: ...


class _Started:
    """What a start reported. It does not follow the run: `app.get(handle.id)` tells how it stands now."""

    def __init__(self, outcome: StartOutcome) -> None:
        self._outcome = outcome

    @property
    def id(self) -> RunId:
        """The run's id."""
        return self._outcome.id

    @property
    def workflow(self) -> str:
        """The name of its workflow."""
        return self._outcome.workflow

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.workflow!r} version {self.version}, {self.status})"


class Handle(_Started, Generic[O_co]):
    """A started run; `O` is the type of its output.

    Versionadded: 0.1
    """

    def __init__(self, client: _Waits, outcome: StartOutcome) -> None:
        super().__init__(outcome)
        self._client = client

    async def result(self, *, timeout: Duration | None = None) -> O_co:
        """Wait for the run's end and return its output; see `Outlast.result`."""
        return cast("O_co", await self._client.result(self.id, timeout=timeout))


class BlockingHandle(_Started, Generic[O_co]):
    """A started run, for code that blocks; `O` is the type of its output.

    Versionadded: 0.1
    """

    def __init__(self, client: _Blocks, outcome: StartOutcome) -> None:
        super().__init__(outcome)
        self._client = client

    def result(self, *, timeout: Duration | None = None) -> O_co:
        """Block until the run's end and return its output; see `Outlast.result`."""
        return cast("O_co", self._client.result(self.id, timeout=timeout))


Handles: TypeAlias = list[Handle[O]]
BlockingHandles: TypeAlias = list[BlockingHandle[O]]
