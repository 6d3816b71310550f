"""Which step the running code is inside of.

The frame lives in a context variable, so it follows a step's function into the tasks and threads it starts with its own
context, and nowhere else. Workflow code has no frame: what marks it is the event loop it runs on.
"""

from __future__ import annotations

from contextvars import ContextVar
from itertools import count
from typing import Final

from outlast.model.ids import RunId


class StepFrame:
    """One attempt of one step, as seen from inside."""

    __slots__ = ("_calls", "_nested", "attempt", "idempotency_key", "run_id", "step")

    def __init__(self, run_id: RunId, step: str, idempotency_key: str, attempt: int) -> None:
        self.run_id: RunId = run_id
        self.step: str = step
        self.idempotency_key: str = idempotency_key
        self.attempt: int = attempt
        self._calls = count(1)
        self._nested: dict[str, int] = {}

    def next_call(self) -> int:
        """Count the calls that this attempt makes to the outside: 1, 2, 3. The same in every attempt that goes the same way,
        so an id derived from it is the same too."""
        return next(self._calls)

    def nested_key(self, step: str) -> str:
        """Return the idempotency key of a step function that this attempt calls as a plain function."""
        times = self._nested[step] = self._nested.get(step, 0) + 1
        return f"{self.idempotency_key}:{step}" if times == 1 else f"{self.idempotency_key}:{step}#{times}"


_frame: Final[ContextVar[StepFrame | None]] = ContextVar("outlast_step", default=None)


def current_step() -> StepFrame | None:
    """Return the frame of the step that this code runs in, or None outside of steps."""
    return _frame.get()


class inside:  # noqa: N801  used like a function
    """Mark the current context as being inside a step, for the length of a `with`."""

    __slots__ = ("_frame", "_token")

    def __init__(self, frame: StepFrame) -> None:
        self._frame = frame

    def __enter__(self) -> None:
        self._token = _frame.set(self._frame)

    def __exit__(self, *_: object) -> None:
        _frame.reset(self._token)
