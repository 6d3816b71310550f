"""Stops: the reason that ends a run before its code returns, its record, and how the code is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import msgspec

from outlast.engine.eventloop import TooManyHandles, WorkflowLoop
from outlast.engine.stepcontext import compensated
from outlast.errors import Failure, RunTimedOut, StepFailed, WorkflowIOError
from outlast.model.durations import format_duration
from outlast.model.failures import decode_failure, encode_failure, type_name
from outlast.model.run import Status, Stop, StopKind
from outlast.model.times import to_datetime

STOP: Final = "$stop"
_REFUSED_BY_DJANGO: Final = "django.core.exceptions.SynchronousOnlyOperation"
_MOST_ROUNDS: Final = 100
_MOST_HANDLES: Final = 100_000


class _Stored(msgspec.Struct):
    kind: StopKind
    failure: msgspec.Raw


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Stored)


def encode_stop(stop: Stop) -> str:
    """Return the payload of a stop's record."""
    return _encoder.encode(_Stored(stop.kind, msgspec.Raw(encode_failure(stop.failure).encode()))).decode()


def decode_stop(text: str, at: int) -> Stop:
    """Read a stop's payload back. Raises msgspec's errors."""
    stored = _decoder.decode(text)
    return Stop(stored.kind, decode_failure(bytes(stored.failure).decode()), at)


def timed_out(deadline_at: int, created_at: int) -> Stop:
    """Make the stop of a run whose time is over."""
    limit = format_duration(to_datetime(deadline_at) - to_datetime(created_at))
    message = f"The run took longer than its timeout of {limit}."
    return Stop(StopKind.TIMEOUT, Failure(type=type_name(RunTimedOut), message=message), deadline_at)


def told(error: BaseException) -> BaseException:
    """Return the error that a run's code ended with, or one that says what to do about it.

    Django sees the event loop that all workflow code runs on, and speaks of an async context, where a plain `def` has none.
    """
    if type_name(type(error)) != _REFUSED_BY_DJANGO:
        return error
    refused = WorkflowIOError("Django's database")
    refused.__cause__ = error
    return refused.with_traceback(error.__traceback__)


def final_status(kind: StopKind) -> Status:
    """Return how a run ends that was stopped for this kind of reason and undone."""
    match kind:
        case StopKind.CANCEL | StopKind.TERMINATE:
            return Status.CANCELLED
        case StopKind.TIMEOUT | StopKind.FAILURE:
            return Status.FAILED


def with_inner(failure: Failure, inner: Failure) -> Failure:
    """Return a failure with another one as its last inner failure."""
    return replace(failure, inner=(*failure.inner, inner))


def gave_up_undoing(failed: StepFailed) -> Failure:
    """Describe the end of a compensation that has failed for good, by the step that it was to undo."""
    times = "1 attempt" if failed.attempts == 1 else f"{failed.attempts} attempts"
    message = f"The compensation of step {compensated(failed.step)!r} gave up after {times}: {failed.cause}"
    return Failure(type=type_name(StepFailed), message=message, inner=(failed.cause,))


def wind_up(loop: WorkflowLoop, main: asyncio.Task[Any] | None) -> None:
    """Cancel the code, its main task first, until it has ended. What does not end is closed.

    Code may catch a cancellation, so it is sent again; code that never comes to rest is not listened to any longer.
    """
    try:
        for _ in range(_MOST_ROUNDS):
            tasks = loop.tasks
            if not tasks:
                return
            for task in [main] if main in tasks else tasks:
                task.cancel()
            loop.run_ready(most=_MOST_HANDLES)
    except TooManyHandles:
        pass
    loop.drop()
