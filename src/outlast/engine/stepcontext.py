"""What a step's function and a compensation are told about the attempt they are."""

from __future__ import annotations

from typing import Final

from outlast.errors import Failure

_COMPENSATE: Final = "$compensate:"


class StepContext:
    """What a step's function gets as its first argument, when that is annotated with this class.

    `idempotency_key` is `<run id>:<step name>`, the same in every attempt and after a crash: pass it to the service you
    call, so that an attempt made twice has one effect. Build one yourself to call a step's function in a test.

    >>> from outlast import StepContext
    >>> StepContext("order-7", "charge").idempotency_key
    'order-7:charge'
    """

    __slots__ = ("_stop_requested", "attempt", "idempotency_key", "run_id", "step")

    def __init__(self, run_id: str, step: str, attempt: int = 1, *, idempotency_key: str | None = None) -> None:
        self.run_id: str = run_id
        self.step: str = step
        self.attempt: int = attempt
        self.idempotency_key: str = f"{run_id}:{step}" if idempotency_key is None else idempotency_key
        self._stop_requested = False

    @property
    def stop_requested(self) -> bool:
        """True once the run was asked to stop. A step may go on: its result is recorded, and undone afterwards."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Set `stop_requested`."""
        self._stop_requested = True


class CompensationContext(StepContext):
    """What a compensation gets as its first argument. `reason` says why the run is undone; `idempotency_key` is
    `<run id>:$compensate:<step name>`.

    >>> from outlast import CompensationContext
    >>> CompensationContext("order-7", "charge").idempotency_key
    'order-7:$compensate:charge'
    """

    __slots__ = ("reason",)

    def __init__(self, run_id: str, step: str, attempt: int = 1, *, reason: Failure | None = None) -> None:
        super().__init__(run_id, step, attempt, idempotency_key=f"{run_id}:{compensation_name(step)}")
        self.reason: Failure = reason if reason is not None else Failure(type="Exception", message="")


def compensation_name(step: str) -> str:
    """Name the entry of what undoes a step."""
    return f"{_COMPENSATE}{step}"


def compensated(name: str) -> str:
    """Name the step that the entry of this name undoes."""
    return name.removeprefix(_COMPENSATE)
