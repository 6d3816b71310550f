"""What a turn drives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NoReturn, Protocol

from outlast.engine.decision import Progress, StepCall
from outlast.model.journal import Record
from outlast.model.run import Stop
from outlast.model.signal import StoredSignal


class Drivable(Protocol):
    """The engine's `Execution`, or what stands in for one that could not be made."""

    def resume(
        self,
        *,
        signals: Sequence[StoredSignal] = (),
        topics: Collection[str] | None = None,
        read_at: int | None = None,
        stop: Stop | None = None,
        lapses: int = 0,
    ) -> None: ...
    def run(self) -> Progress: ...
    def step_returned(self, call: StepCall, value: object, /) -> None: ...
    def step_raised(self, call: StepCall, error: BaseException, /) -> None: ...
    def step_settled(self, call: StepCall, value: object, /) -> Record: ...
    def step_recorded(self, call: StepCall, /) -> None: ...
    def step_given_back(self, call: StepCall, /) -> None: ...
    def request_stop(self, stop: Stop, /) -> None: ...
    def close(self) -> None: ...


class Unusable:
    """Stands in for an execution that could not be made, so that its run is held like any other that cannot go on."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Say why."""
        raise self._error

    resume: Callable[..., NoReturn] = _refuse
    run: Callable[..., NoReturn] = _refuse
    step_returned: Callable[..., NoReturn] = _refuse
    step_raised: Callable[..., NoReturn] = _refuse
    step_settled: Callable[..., NoReturn] = _refuse
    step_recorded: Callable[..., NoReturn] = _refuse
    step_given_back: Callable[..., NoReturn] = _refuse

    def request_stop(self, *_: object) -> None:
        """Nothing to stop."""

    def close(self) -> None:
        """Nothing to close."""
