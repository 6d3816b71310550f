"""What is said in the log of what failed, and of workers that are gone."""

from __future__ import annotations

import logging

import msgspec
import pytest

from outlast.engine.decision import Finished, StepCall
from outlast.errors import Failure
from outlast.model.failures import encode_failure, failure_of
from outlast.model.ids import WorkerId
from outlast.model.journal import Kind, Phase, Record
from outlast.model.run import Status
from outlast.ports.store import Reaped
from outlast.worker.steps import Raised
from outlast.worker.telling import taken_over
from support.turn_desk import Desk
from support.worker_fakes import PARKED, FakeStep, progress

AT = 1_780_000_000_000_000


def _nope() -> KeyError:
    try:
        raise KeyError("nope")
    except KeyError as error:
        return error


def _place(error: BaseException) -> str:
    assert error.__traceback__ is not None
    return f"{__file__}:{error.__traceback__.tb_lineno}"


def _call() -> StepCall:
    return msgspec.structs.replace(FakeStep("x").call(), attempts=3)


def _recorded(error: BaseException, phase: Phase, due_at: int | None = None) -> Record:
    return Record(0, Kind.STEP, phase, "x", 1, due_at, encode_failure(failure_of(error)))


def _fail(error: BaseException, *records: Record) -> None:
    """Have the first of three attempts fail, which leaves these records."""
    desk = Desk(progress(calls=[_call()]))
    desk.execution.will(progress(PARKED, records=records))
    desk.place.steps.attempts.pop("x").end(Raised(error))


def test_a_step_that_is_tried_again_is_a_warning_of_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A newcomer's step failed and was tried again in silence, for as long as its delays took."""
    caplog.set_level(logging.INFO)
    error = _nope()

    _fail(error, _recorded(error, Phase.RETRY, AT))

    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert told.exc_info is None
    assert told.getMessage() == (
        f"Attempt 1 of 3 of step 'x' of run 'r1' failed: KeyError: 'nope' ({_place(error)}); "
        "next attempt at 2026-05-28 20:26:40 UTC"
    )


def test_a_step_that_gave_up_is_no_warning_before_its_run_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    error = _nope()

    _fail(error, _recorded(error, Phase.FAILED))

    (told,) = caplog.records
    assert told.levelno == logging.INFO
    assert told.getMessage() == f"Attempt 1 of 3 of step 'x' of run 'r1' failed: KeyError: 'nope' ({_place(error)})"


def test_an_attempt_whose_outcome_is_not_recorded_yet_is_told_of_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    _fail(_nope())

    assert "Attempt 1 of 3 of step 'x' of run 'r1' failed: KeyError: 'nope'" in caplog.text


def test_the_traceback_is_there_for_who_asks_for_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    error = _nope()

    _fail(error, _recorded(error, Phase.RETRY, AT))

    assert 'raise KeyError("nope")' in caplog.text


def test_a_run_that_ended_says_where_in_the_code_and_no_reason_twice(caplog: pytest.LogCaptureFixture) -> None:
    error = _nope()
    cause = failure_of(error)
    failure = Failure(
        type="outlast.errors.StepFailed", message=f"Step 'x' gave up after 3 attempts: {cause}", inner=(cause,)
    )

    Desk(progress(Finished(Status.FAILED, None, failure))).flush()

    (told,) = caplog.messages
    assert told == (
        "Run 'r1' ended as failed: outlast.errors.StepFailed: Step 'x' gave up after 3 attempts: KeyError: 'nope' "
        f"({_place(error)})"
    )


@pytest.mark.parametrize(
    "status, level",
    [
        (Status.FAILED, logging.WARNING),
        (Status.CANCELLED, logging.INFO),
        (Status.COMPENSATION_FAILED, logging.ERROR),
    ],
)
def test_how_a_run_ended_says_how_loud_it_is(status: Status, level: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    Desk(progress(Finished(status, None, Failure(type="x", message="m")))).flush()

    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (level, f"Run 'r1' ended as {status}: x: m")
    ]


def test_runs_of_a_worker_that_is_gone_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """They went on elsewhere without a word, and nobody knew that a worker had died, or which one."""
    taken_over(Reaped(12, ((WorkerId("host:7:ab"), 3_240_000),)))

    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert told.getMessage() == (
        "Workers that had runs have died, or were paused or cut off from the database: host:7:ab (its lease ended 3.2 s "
        "ago). Taken over from them, each with a lapse counted: 12."
    )


def test_of_many_workers_that_are_gone_the_first_are_named(caplog: pytest.LogCaptureFixture) -> None:
    workers = [(WorkerId("host:0:ab"), None), *((WorkerId(f"host:{n}:ab"), 0) for n in range(1, 8))]

    taken_over(Reaped(1, tuple(workers)))

    (told,) = caplog.messages
    assert ": host:0:ab (its row is gone), host:1:ab (its lease ended 0.0 s ago), " in told
    assert "host:4:ab (its lease ended 0.0 s ago), and 3 more. Taken" in told


def test_of_a_worker_that_is_gone_without_a_run_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    taken_over(Reaped(0, ((WorkerId("host:7:ab"), 3_240_000),)))

    assert caplog.records == []
