"""One turn: what is durable before what. No loop: the test is the database and the steps."""

from __future__ import annotations

import pytest

from outlast.engine.decision import Finished, Parked, Working
from outlast.errors import Failure
from outlast.model.failures import decode_failure
from outlast.model.journal import Kind
from outlast.model.run import Status
from outlast.ports.store import Wait
from outlast.worker.steps import Raised
from support.turn_desk import CANCEL, TERMINATE, Desk
from support.worker_fakes import PARKED, FakeStep, progress, record

pytestmark = pytest.mark.usefixtures("each_kind_of_turn")


def test_a_first_step_begins_at_once_because_nothing_is_to_be_recorded_before_it() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()]))

    assert desk.begun == ["a"]
    assert desk.asked == []


def test_a_step_begins_only_when_what_was_recorded_before_it_is_durable() -> None:
    desk = Desk(progress(records=[record(0)], calls=[FakeStep("b").call()]))
    assert desk.begun == []

    staged = desk.take()
    assert staged.records == (record(0),)
    assert desk.begun == [], "asked for is not durable"

    desk.turn.written(False, False)
    assert desk.begun == ["b"]


def test_the_code_goes_on_before_its_records_are_durable_but_what_it_calls_does_not() -> None:
    """Two parallel branches: the first one's step ends and is being written when the second one's ends."""
    desk = Desk(progress(calls=[FakeStep("a").call(), FakeStep("b").call()]))
    desk.execution.will(
        progress(records=[record(0, "a")], calls=[FakeStep("c").call()]),
        progress(records=[record(1, "b")], calls=[FakeStep("d").call()]),
    )
    desk.end("a")
    first = desk.take()
    desk.end("b")

    assert first.records == (record(0, "a"),)
    assert desk.begun == []
    desk.turn.written(False, False)
    assert desk.begun == ["c"], "d saw record 1, which was not in the first flush"

    assert desk.flush().records == (record(1, "b"),)
    assert desk.begun == ["c", "d"]


def test_a_record_is_written_at_once_while_other_steps_run() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call(), FakeStep("b").call()]))
    desk.execution.will(progress(records=[record(0, "a")]))

    desk.end("a")

    assert desk.flush().records == (record(0, "a"),)
    assert desk.asked == []


def test_what_is_recorded_until_the_batch_is_formed_goes_along() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call(), FakeStep("b").call()]))
    desk.execution.will(progress(records=[record(0, "a")]), progress(PARKED, records=[record(1, "b")]))

    desk.end("a")
    desk.end("b")

    staged = desk.flush()
    assert len(staged.records) == 2
    assert staged.write is not None
    assert staged.write.status is Status.SUSPENDED
    assert desk.ends == [(False, False)]


def test_a_turn_ends_with_one_write_of_all_that_is_staged() -> None:
    waits = (Wait("paid", 7),)
    desk = Desk(progress(Parked(Status.SUSPENDED, 99, waits), records=[record(0), record(1)], custom_status='"w"'))

    staged = desk.flush()

    assert staged.write is not None
    assert len(staged.records) == 2
    assert (staged.write.keep, staged.write.due_at, staged.write.waits) == (False, 99, waits)
    assert (staged.write.sets_custom_status, staged.write.custom_status) == (True, '"w"')
    assert desk.ends == [(False, False)]


@pytest.mark.parametrize(
    "end, output, message",
    [
        (Finished(Status.COMPLETED, '"done"', None), '"done"', None),
        (Finished(Status.FAILED, None, Failure(type="ValueError", message="broke")), None, "broke"),
    ],
)
def test_a_run_ends_with_its_output_or_its_error(end: Finished, output: str | None, message: str | None) -> None:
    staged = Desk(progress(end, records=[record(0)])).flush()

    assert staged.write is not None
    assert (staged.write.status, staged.write.output) == (end.status, output)
    assert (decode_failure(staged.write.error).message if staged.write.error else None) == message


def test_a_parked_run_that_is_claimable_at_once_says_so() -> None:
    desk = Desk(progress(PARKED))
    desk.take()
    desk.turn.written(False, True)
    assert desk.ends == [(False, True)]


def test_a_row_that_did_not_change_is_not_written() -> None:
    desk = Desk(progress(records=[record(0)], custom_status='"x"'), custom_status='"x"')
    assert desk.flush().write is None


def test_a_custom_status_is_written_beside_a_step_and_does_not_delay_it() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()], custom_status='"charging"'))

    assert desk.begun == ["a"]
    staged = desk.flush()
    assert staged.write is not None
    assert (staged.write.keep, staged.write.custom_status) == (True, '"charging"')
    assert desk.asked == [], "once"


def test_a_run_that_begins_to_undo_says_so_with_its_records() -> None:
    desk = Desk(progress(records=[record(0, "$stop", Kind.STOP)], status=Status.COMPENSATING))
    staged = desk.flush()
    assert staged.write is not None
    assert (staged.write.status, staged.write.keep) == (Status.COMPENSATING, True)


def test_a_due_time_makes_the_code_go_on() -> None:
    desk = Desk(progress(Working(50), calls=[FakeStep("a").call()]))
    desk.execution.will(progress(Working(80), records=[record(0, "nap", Kind.SLEEP)]))
    ((at, timer),) = desk.place.timers

    timer.look()

    assert at == 50
    assert desk.flush().records == (record(0, "nap", Kind.SLEEP),)
    assert [at for at, _ in desk.place.timers] == [50, 80]


def test_a_timer_that_is_not_needed_any_more_is_cancelled() -> None:
    desk = Desk(progress(Working(50), calls=[FakeStep("a").call()]))
    desk.execution.will(progress(PARKED))
    desk.end("a")
    desk.flush()
    assert desk.place.timers[0][1].is_cancelled


def test_a_step_that_raised_is_told_to_the_engine() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()]))
    desk.execution.will(progress(PARKED))
    error = ValueError("no")
    desk.place.steps.attempts["a"].end(Raised(error))
    assert ("raised", "a", error) in desk.execution.told


def test_a_stop_request_is_passed_on_once_and_running_steps_are_told() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()]))
    desk.execution.will(progress(), progress())

    desk.turn.request_stop(CANCEL)
    desk.turn.request_stop(CANCEL)
    assert [told for told in desk.execution.told if told[0] == "stop"] == [("stop", CANCEL)]
    assert desk.told("a") == ["stop"]

    desk.turn.request_stop(TERMINATE)
    assert ("stop", TERMINATE) in desk.execution.told


def test_a_stop_that_came_with_the_claim_is_not_passed_on_again() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()]), stop=CANCEL)
    desk.turn.request_stop(CANCEL)
    assert desk.execution.told == [("resume", (), CANCEL, 0)]


def test_running_steps_are_told_when_the_run_stops_by_itself() -> None:
    """Its own timeout passed, or another branch failed: nobody asked, but the steps in flight are as unwanted."""
    desk = Desk(progress(calls=[FakeStep("a").call(), FakeStep("b").call()]))
    desk.execution.will(progress(records=[record(0, "a"), record(1, "$stop", Kind.STOP)], status=Status.COMPENSATING))
    desk.end("a")
    assert desk.told("b") == ["stop"]


def test_a_stop_request_during_the_last_write_is_left_to_the_store() -> None:
    desk = Desk(progress(PARKED))
    desk.take()
    desk.turn.request_stop(CANCEL)
    desk.turn.written(False, True)
    assert all(told[0] != "stop" for told in desk.execution.told)
    assert desk.ends == [(False, True)]


def test_a_stop_request_before_the_last_write_is_taken_changes_what_is_written() -> None:
    desk = Desk(progress(PARKED))
    desk.execution.will(progress(records=[record(0, "$stop", Kind.STOP)], calls=[FakeStep("undo").call()],
                                 status=Status.COMPENSATING))  # fmt: skip
    desk.turn.request_stop(CANCEL)

    staged = desk.flush()

    assert staged.write is not None
    assert staged.write.keep
    assert desk.begun == ["undo"]
    assert desk.ends == []
