"""Where a turn happens in a unit test: flusher and tenure in one, without a loop."""

from __future__ import annotations

from outlast.engine.decision import Progress
from outlast.errors import Failure
from outlast.model.ids import RunId
from outlast.model.run import Status, Stop, StopKind
from outlast.worker.flusher import Staged, Writer
from outlast.worker.steps import Returned
from outlast.worker.turn import Turn
from support.worker_fakes import LEASE, FakePlace, ScriptedExecution

CANCEL = Stop(StopKind.CANCEL, Failure(type="x", message="no longer wanted"), 5)
TERMINATE = Stop(StopKind.TERMINATE, Failure(type="x", message="at once"), 6)


class Desk:
    """Where a turn happens: the flusher and the host in one, with a turn that has begun."""

    def __init__(
        self,
        *script: Progress | Exception,
        lapses: int = 0,
        custom_status: str | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.place = FakePlace()
        self.execution = ScriptedExecution(*script)
        self.asked: list[Writer] = []
        self.ends: list[tuple[bool, bool]] = []
        self.is_leaving = False
        self.lease = LEASE
        self.is_lost = False
        self.turn = Turn(
            self,
            self.place,  # type: ignore[arg-type]  # the part of it that a turn uses
            RunId("r1"),
            self.execution,
            status=Status.RUNNING,
            custom_status=custom_status,
        )
        self.turn.begin(lapses=lapses, stop=stop)

    def write(self, writer: Writer) -> None:
        assert not self.asked, "at most one write at a time"
        self.asked.append(writer)

    def leaving(self, turn: Turn) -> None:
        assert not self.is_leaving
        self.is_leaving = True

    def staying(self, turn: Turn) -> None:
        assert self.is_leaving
        self.is_leaving = False

    def lose(self) -> None:
        self.is_lost = True

    def ended(self, turn: Turn, *, lost: bool, ready: bool) -> None:
        assert lost or self.is_leaving
        self.ends.append((lost, ready))

    def take(self) -> Staged:
        return self.asked.pop().take()

    def flush(self) -> Staged:
        staged = self.take()
        self.turn.written(False, False)
        return staged

    @property
    def begun(self) -> list[str]:
        return list(self.place.steps.attempts)

    def end(self, step: str, value: object = None) -> None:
        self.place.steps.attempts.pop(step).end(Returned(value))

    def told(self, step: str) -> list[str]:
        return self.place.steps.attempts[step].told
