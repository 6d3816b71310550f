"""How a turn ends that cannot go on, may not go on, or is not ours any more. The test is the database and the steps."""

from __future__ import annotations

from typing import NoReturn

import pytest

from outlast.engine.decision import Finished, Held, Progress, Working
from outlast.errors import Failure, JournalMismatch
from outlast.model.failures import decode_failure
from outlast.model.ids import RunId
from outlast.model.journal import Kind
from outlast.model.run import Status, Stop
from outlast.worker.steps import GIVEN_BACK
from outlast.worker.turn import Released
from support.turn_desk import CANCEL, TERMINATE, Desk
from support.worker_fakes import PARKED, FakeStep, progress, record

pytestmark = pytest.mark.usefixtures("each_kind_of_turn")


def test_a_run_whose_code_does_not_match_is_held_and_its_steps_are_dropped() -> None:
    failure = Failure(type="outlast.errors.JournalMismatch", message="m")
    desk = Desk(progress(calls=[FakeStep("a").call(), FakeStep("b").call()], custom_status='"new"'))
    desk.flush()
    desk.execution.will(progress(Held(failure), custom_status='"newer"'))
    desk.end("a")

    staged = desk.flush()

    assert desk.told("b") == ["drop"]
    assert staged.write is not None
    assert (staged.write.status, staged.write.due_at, staged.write.keep) == (Status.SUSPENDED, 30_000_000, False)
    assert not staged.write.sets_custom_status
    assert staged.write.held is not None
    assert decode_failure(staged.write.held) == failure


def test_a_run_that_is_undoing_stays_so_while_it_is_held() -> None:
    held = Held(Failure(type="x", message="m"))
    desk = Desk(progress(held, status=Status.COMPENSATING))
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.status is Status.COMPENSATING


def test_a_run_that_cannot_go_on_can_still_be_terminated() -> None:
    desk = Desk(progress(Held(Failure(type="x", message="m"))), stop=TERMINATE)
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.status is Status.CANCELLED
    assert staged.write.held is None


@pytest.mark.parametrize("error", [RuntimeError("bug"), JournalMismatch("r1", 0, "a", "b")])
def test_an_error_of_the_engine_holds_the_run(error: Exception) -> None:
    desk = Desk(error)
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.held is not None
    assert desk.place.driving is None


def test_a_step_that_cannot_be_begun_holds_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def perform(*_: object) -> NoReturn:
        raise RuntimeError("no")

    desk = Desk(progress(calls=[FakeStep("a").call()]))
    monkeypatch.setattr(desk.place.steps, "perform", perform)
    desk.execution.will(progress(calls=[FakeStep("b").call()], status=Status.COMPENSATING))
    desk.end("a")
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.held is not None
    assert desk.ends == [(False, False)]


def test_a_turn_that_would_wait_for_nothing_is_held() -> None:
    staged = Desk(progress(Working(None))).flush()
    assert staged.write is not None
    assert staged.write.held is not None


def test_records_made_before_an_error_of_the_engine_are_kept() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call(), FakeStep("b").call()]))
    desk.execution.will(progress(records=[record(0, "a")]), RuntimeError("bug"))
    desk.end("a")
    desk.end("b")
    staged = desk.flush()
    assert staged.records == (record(0, "a"),)
    assert isinstance(desk.turn.state, Held)


def test_an_error_of_the_engine_during_a_flush_holds_the_run_after_it() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call(), FakeStep("b").call()]))
    desk.execution.will(progress(records=[record(0, "a")], calls=[FakeStep("c").call()]), RuntimeError("bug"))
    desk.end("a")
    desk.take()
    desk.end("b")
    desk.turn.written(False, False)

    assert "c" not in desk.begun
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.held is not None


def test_a_run_that_cannot_be_recorded_is_held_without_what_could_not() -> None:
    desk = Desk(progress(records=[record(0)], calls=[FakeStep("b").call()]))
    desk.take()

    desk.turn.refused(ValueError("too long"))

    assert desk.begun == []
    staged = desk.flush()
    assert staged.records == ()
    assert staged.write is not None
    assert staged.write.held is not None
    assert "too long" in staged.write.held


@pytest.mark.parametrize("stop, status", [(CANCEL, Status.SUSPENDED), (TERMINATE, Status.CANCELLED)])
def test_a_request_to_stop_has_no_run_go_on_that_is_to_be_held(stop: Stop, status: Status) -> None:
    """It came before the hold was written. What the run records next would stand after a gap, which nothing fills."""
    desk = Desk(progress(records=[record(0)]))
    desk.take()
    desk.turn.refused(ValueError("too long"))
    desk.execution.will(progress(records=[record(1, "$stop", Kind.STOP)], calls=[FakeStep("undo").call()]))

    desk.turn.request_stop(stop)

    staged = desk.flush()
    assert staged.records == ()
    assert staged.write is not None
    assert (staged.write.keep, staged.write.status) == (False, status)
    assert desk.ends == [(False, False)]


def test_a_last_write_that_is_refused_holds_the_run() -> None:
    desk = Desk(progress(Finished(Status.COMPLETED, "1", None)))
    desk.take()
    desk.turn.refused(ValueError("no"))
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.status is Status.SUSPENDED
    assert desk.ends == [(False, False)]


@pytest.mark.parametrize("script", [progress(Finished(Status.COMPLETED, "1", None)), RuntimeError("\U0001f600 bug")])
def test_what_a_run_is_held_for_is_told_in_characters_that_every_connection_can_send(
    script: Progress | Exception,
) -> None:
    """A database's word on a text that it could not take quoted that text, so that the run could not be held for it either:
    it was tried every 30 s, for ever, and nobody who looked at it saw why."""
    desk = Desk(script)
    desk.take()

    desk.turn.refused(ValueError("Incorrect string value: '\U0001f600'"))

    held = desk.flush().write
    assert held is not None
    assert held.held is not None
    assert held.held.isascii()
    assert "\\U0001f600" in decode_failure(held.held).message
    assert desk.ends == [(False, False)]


def test_holding_a_run_is_tried_again_when_even_that_is_refused() -> None:
    desk = Desk(RuntimeError("bug"))
    desk.take()
    desk.turn.refused(ValueError("no"))
    assert desk.asked == []

    _, again = desk.place.timers[-1]
    again.look()
    assert desk.flush().write is not None


def test_a_run_that_is_not_ours_any_more_is_left_alone() -> None:
    desk = Desk(progress(records=[record(0)], calls=[FakeStep("b").call()]))
    desk.take()
    desk.turn.written(True, False)
    assert desk.begun == []
    assert desk.ends == [(True, False)]


def test_a_dropped_turn_writes_nothing_and_hears_nothing() -> None:
    """The lease was lost while a step ran and a flush was under way."""
    desk = Desk(progress(calls=[FakeStep("a").call(), FakeStep("b").call()]))
    desk.execution.will(progress(records=[record(0, "a")]))
    desk.end("a")
    desk.take()

    desk.turn.drop()
    desk.turn.written(False, False)
    desk.turn.refused(ValueError("late"))
    desk.turn.request_stop(CANCEL)
    desk.turn.settle()

    assert desk.told("b") == ["drop"]
    assert desk.execution.is_closed
    assert (desk.asked, desk.ends) == ([], [])


def test_no_step_begins_when_the_worker_stops() -> None:
    desk = Desk(progress(records=[record(0)], calls=[FakeStep("b").call()]))
    desk.take()
    desk.place.is_stopping = True

    desk.turn.written(False, False)

    assert desk.begun == []
    staged = desk.flush()
    assert staged.write is not None
    assert (staged.write.keep, staged.write.due_at, staged.write.status) == (False, 0, Status.SUSPENDED)
    assert isinstance(desk.turn.state, Released)


def test_a_step_that_runs_when_the_worker_stops_is_waited_for_and_recorded_with_the_hand_over() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()]))
    desk.place.is_stopping = True
    desk.turn.settle()
    assert desk.asked == []

    desk.execution.will(progress(records=[record(0, "a")], calls=[FakeStep("b").call()]))
    desk.end("a")

    staged = desk.flush()
    assert staged.records == (record(0, "a"),)
    assert staged.write is not None
    assert not staged.write.keep
    assert desk.ends == [(False, False)]


def test_a_run_that_ends_while_the_worker_stops_ends() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()]))
    desk.place.is_stopping = True
    desk.execution.will(progress(Finished(Status.COMPLETED, "1", None), records=[record(0, "a")]))
    desk.end("a")
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.status is Status.COMPLETED


def test_a_step_that_is_cut_short_leaves_no_trace() -> None:
    """Incident F089: deploys ate the retry budget."""
    desk = Desk(progress(calls=[FakeStep("a").call()]))
    desk.place.is_stopping = True
    desk.turn.cut()
    assert desk.told("a") == ["cut"]

    desk.place.steps.attempts["a"].end(GIVEN_BACK)

    assert desk.execution.told[-1] == ("given back", "a")
    staged = desk.flush()
    assert staged.records == ()
    assert staged.write is not None
    assert not staged.write.progressed


def test_a_step_that_does_not_end_is_abandoned_with_what_is_recorded() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call(), FakeStep("b").call()]))
    desk.execution.will(progress(records=[record(0, "a")]))
    desk.end("a")
    desk.place.is_stopping = True
    desk.turn.abandon()
    assert desk.told("b") == ["drop"]
    staged = desk.flush()
    assert staged.records == (record(0, "a"),)
    assert isinstance(desk.turn.state, Released)


def test_lapses_start_from_zero_when_a_step_has_ended() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()]), lapses=2)
    desk.execution.will(progress(records=[record(0, "a")], calls=[FakeStep("b").call()]))
    desk.end("a")
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.progressed

    desk.execution.will(progress(records=[record(1, "b")], calls=[FakeStep("c").call()]))
    desk.end("b")
    assert desk.flush().write is None


def test_lapses_are_kept_while_only_the_time_is_recorded() -> None:
    """Otherwise a step that kills its worker, beside a periodic sleep, would never end."""
    desk = Desk(progress(PARKED, records=[record(0, "nap", Kind.SLEEP)]), lapses=2)
    staged = desk.flush()
    assert staged.write is not None
    assert not staged.write.progressed


def test_whose_code_has_the_loop_is_known_while_it_has() -> None:
    seen: list[RunId | None] = []
    desk = Desk(progress(calls=[FakeStep("a").call()]))

    def run() -> Progress:
        seen.append(desk.place.driving)
        return progress(PARKED)

    desk.execution.run = run  # type: ignore[method-assign]
    desk.end("a")
    assert seen == [None if desk.is_plain else "r1"]
    assert desk.place.driving is None
