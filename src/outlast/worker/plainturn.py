"""A turn of a plain workflow, whose code runs on a thread while the loop goes on.

While the code runs its execution belongs to the thread. What happens to the run meanwhile waits until the code is at rest, a
request to stop before all else; what is recorded is written and what was asked for before is begun all the same. Where the
turn gives its run up, nobody listens to the code any more, whatever it still does.
Held by tests/unit/worker/test_plainturn.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from outlast.engine.decision import Held, Parked, Progress, StepCall, Working
from outlast.model.ids import RunId
from outlast.model.run import Status, Stop
from outlast.worker.bodies import Drive, Driven
from outlast.worker.steps import Attempt, Ending
from outlast.worker.telling import attempt_failed
from outlast.worker.turn import Host, Turn, TurnState
from outlast.worker.workplace import Workplace

_WORKING: Final = Working(None)

_LONG: Final = 0.1
"""Seconds after which code that still runs counts as computing: what has ended before it went on is written without it."""


class PlainTurn(Turn):
    """Drive one run of a plain workflow."""

    __slots__ = (
        "_body", "_drive", "_is_given_up", "_known", "_late", "_late_stop", "_patience", "_raised", "_told",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        place: Workplace,
        run_id: RunId,
        execution: Driven,
        *,
        status: Status,
        custom_status: str | None,
        turns: int | None = None,
    ) -> None:
        super().__init__(host, place, run_id, execution, status=status, custom_status=custom_status, turns=turns)
        self._body = execution
        self._drive: Drive | None = None
        """The code runs; None while it is at rest."""
        self._raised: tuple[StepCall, BaseException] | None = None
        """The attempt whose failure it hears of while it runs."""
        self._known = 0
        """How many records of the drive under way were taken over already."""
        self._late: deque[tuple[StepCall, Ending]] = deque()
        """How attempts ended while it ran."""
        self._late_stop: Stop | None = None
        self._told: list[Attempt] = []
        self._patience: asyncio.TimerHandle | None = None
        self._is_given_up = False

    def request_stop(self, stop: Stop) -> None:
        if self._is_over or stop == self._stop:
            return
        self._told.clear()
        if self._drive is not None:
            self._stop = self._late_stop = stop
            self._tell_attempts()
        elif not self._is_given_up or isinstance(self.state, Held):
            super().request_stop(stop)

    def settle(self) -> None:
        if self._drive is None:
            super().settle()
        elif not (self._is_over or self._is_writing):
            # What is there from before; all else is known when the code is at rest.
            if not self._records:
                self._start(self._calls)
            if self._records or self._has_changed():
                self._ask()

    def abandon(self) -> None:
        if not self._is_over:
            self._take_over()
        super().abandon()

    # Driving.

    def _advance(self, raised: tuple[StepCall, BaseException] | None = None) -> None:
        if self._is_over or self._is_given_up or self._drive is not None or self._grants.current is not None:
            # Its time has come while it runs: that is seen when it is at rest, and its next time armed.
            if raised is not None:
                attempt_failed(self.id, *raised, ())
            return
        # The last write may have been asked for: it is the last no more.
        self.state: TurnState = _WORKING
        self._raised = raised
        self._known = 0
        self._drive = drive = Drive(self._driven)
        try:
            self._body.drive(drive)
        except RuntimeError as error:
            self._break(error)
        else:
            self._be_patient()

    def _driven(self, drive: Drive, outcome: Progress | BaseException) -> None:
        assert drive.is_wanted
        stop, raised = self._late_stop, self._raised
        self._rest()
        if isinstance(outcome, Progress):
            self._note(outcome, outcome.records[self._known :], raised)
            if stop is not None and isinstance(outcome.state, Working | Parked):
                self._pass_on(stop)
            else:
                self._follow(outcome.state)
        elif isinstance(outcome, Exception):
            self._break(outcome)
        else:
            raise outcome  # Such as KeyboardInterrupt: to the loop, as from all code that runs there.
        while self._late and self._drive is None:
            super()._hear(*self._late.popleft())
        self._give_grant()

    def _rest(self) -> None:
        self._drive = self._raised = self._late_stop = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _pass_on(self, stop: Stop) -> None:
        """Have the code hear of a request that came while it ran, and begin nothing of what it asked for since."""
        withdrawn = tuple(self._calls)
        self._calls.clear()
        try:
            for call in withdrawn:
                self.execution.step_given_back(call)
            self.execution.request_stop(stop)
        except Exception as error:
            self._break(error)
        else:
            self._advance()

    def _be_patient(self) -> None:
        if self._drive is not None:
            self._patience = self._place.call_later(_LONG, self._go_ahead)

    def _go_ahead(self) -> None:
        """Write what has ended before the code went on: if it computes for an hour, and the process dies, that is done."""
        self._take_over()
        self.settle()
        self._be_patient()

    def _take_over(self) -> None:
        """Take over what is recorded by now, while the code runs."""
        if self._drive is not None and (records := self._body.recorded_meanwhile()[self._known :]):
            self._known += len(records)
            self._record(records)

    # What waits for the code.

    def _hear(self, call: StepCall, ending: Ending) -> None:
        if self._drive is None:
            super()._hear(call, ending)
        else:
            self._late.append((call, ending))

    def _give_grant(self) -> None:
        if self._drive is None:
            super()._give_grant()

    def _tell_attempts(self) -> None:
        """Tell each attempt of a request once: the record of it comes later, and what a step that was cancelled cleans up
        by then must not be cancelled again."""
        for attempt in list(self._attempts.values()):
            if attempt not in self._told:
                self._told.append(attempt)
                attempt.request_stop()

    def _drop_attempts(self) -> None:
        self._is_given_up = True
        self._late.clear()
        if self._drive is not None:
            self._drive.is_wanted = False
            if self._raised is not None:
                attempt_failed(self.id, *self._raised, ())
            self._rest()
        super()._drop_attempts()
