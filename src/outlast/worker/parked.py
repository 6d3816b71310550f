"""Executions of parked runs kept in memory, so that a run goes on without replay where memory left it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from outlast.model.ids import RunId
from outlast.worker.drivable import Drivable


class ParkedRuns:
    """Hold at most `most` executions, and forget the one parked longest ago first. Losing one costs a replay.

    An execution is good only while nothing has happened to its run since. The store decides that when the run is claimed:
    by the number of turns the run had when it was parked (`turns`), which every claim, here or elsewhere, increases.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._executions: OrderedDict[RunId, Drivable] = OrderedDict()
        self._turns: dict[RunId, int] = {}
        self._claims = 0

    def __len__(self) -> int:
        return len(self._executions)

    @property
    def turns(self) -> Mapping[RunId, int]:
        """The turns each of these runs had when it was parked. Live: it changes with what is kept."""
        return self._turns

    @contextmanager
    def kept(self) -> Generator[None, None, None]:
        """Forget nothing meanwhile: a claim is told what is in memory, and must find it there when it comes back."""
        self._claims += 1
        try:
            yield
        finally:
            self._claims -= 1
            self._forget_oldest()

    def put(self, run_id: RunId, execution: Drivable, turns: int) -> None:
        """Keep the execution of a run that was parked after so many turns."""
        self.drop(run_id)
        self._executions[run_id] = execution
        self._turns[run_id] = turns
        self._forget_oldest()

    def take(self, run_id: RunId) -> Drivable | None:
        """Return the execution of a claimed run; from now on it is the turn's."""
        self._turns.pop(run_id, None)
        return self._executions.pop(run_id, None)

    def drop(self, run_id: RunId) -> None:
        """Forget one: its run went on elsewhere."""
        execution = self.take(run_id)
        if execution is not None:
            execution.close()

    def close(self) -> None:
        """Forget all."""
        for run_id in list(self._executions):
            self.drop(run_id)

    def _forget_oldest(self) -> None:
        while not self._claims and len(self._executions) > self._most:
            self.drop(next(iter(self._executions)))
