"""Where a turn happens in a unit test: flusher and tenure in one, without a loop."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

from outlast.engine.decision import Progress
from outlast.errors import Failure
from outlast.model.ids import RunId
from outlast.model.journal import Record
from outlast.model.run import Status, Stop, StopKind
from outlast.worker.bodies import Drive
from outlast.worker.flusher import Staged, Writer
from outlast.worker.plainturn import PlainTurn
from outlast.worker.steps import Returned
from outlast.worker.turn import Turn
from support.worker_fakes import LEASE, FakePlace, ScriptedExecution

CANCEL = Stop(StopKind.CANCEL, Failure(type="x", message="no longer wanted"), 5)
TERMINATE = Stop(StopKind.TERMINATE, Failure(type="x", message="at once"), 6)


class ScriptedBody(ScriptedExecution):
    """The execution of a plain workflow whose thread is the test: its code comes to rest when the test says so."""

    def __init__(self, *script: Progress | Exception, rests_at_once: bool) -> None:
        super().__init__(*script)
        self.drives: deque[Drive] = deque()
        self.rests_at_once = rests_at_once
        self.told = _AtRest(self)
        self.meanwhile: tuple[Record, ...] = ()

    def recorded_meanwhile(self) -> tuple[Record, ...]:
        assert self.drives
        return self.meanwhile

    def drive(self, drive: Drive) -> None:
        assert not self.drives, "its code runs already"
        self.drives.append(drive)
        if self.rests_at_once:
            self.rest()

    def rest(self) -> None:
        """What the code does until it waits is done."""
        (drive,) = self.drives
        outcome = self.answer() if drive.is_wanted else None
        self.drives.clear()
        drive.ended(outcome)

    def answer(self) -> Progress | Exception:
        try:
            return self.run()
        except Exception as error:  # noqa: BLE001  of the script
            return error


class _AtRest(list[tuple[object, ...]]):
    """What an execution is told, which is nothing while its code runs."""

    def __init__(self, body: ScriptedBody) -> None:
        super().__init__()
        self._body = body

    def append(self, told: tuple[object, ...], /) -> None:
        assert not self._body.drives, f"the code runs, and is told {told}"
        super().append(told)


class Desk:
    """Where a turn happens: the flusher and the host in one, with a turn that has begun."""

    is_plain: ClassVar[bool] = False
    """Whether the turns are those of plain workflows."""
    rests_at_once: ClassVar[bool] = True

    def __init__(
        self,
        *script: Progress | Exception,
        lapses: int = 0,
        custom_status: str | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.place = FakePlace()
        self.body = ScriptedBody(*script, rests_at_once=self.rests_at_once)
        self.execution: ScriptedExecution = self.body if self.is_plain else ScriptedExecution(*script)
        self.asked: list[Writer] = []
        self.ends: list[tuple[bool, bool]] = []
        self.is_leaving = False
        self.lease = LEASE
        self.is_lost = False
        self.turn = self._turn(custom_status)
        self.turn.begin(lapses=lapses, stop=stop)

    def _turn(self, custom_status: str | None) -> Turn:
        place: Any = self.place  # The part of one that a turn uses.
        if self.is_plain:
            return PlainTurn(
                self, place, RunId("r1"), self.body, status=Status.RUNNING, custom_status=custom_status
            )  # fmt: skip
        return Turn(self, place, RunId("r1"), self.execution, status=Status.RUNNING, custom_status=custom_status)

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
