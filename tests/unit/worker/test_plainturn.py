"""A turn of a plain workflow while its code runs: what waits for it, and what does not. The test is the thread.

That nothing is told to the execution meanwhile, whatever comes, is what `ScriptedBody` asserts in each of these.
"""

from __future__ import annotations

import logging

import pytest

from outlast.engine.decision import Finished, Held, Parked, Working
from outlast.errors import Failure
from outlast.model.journal import Kind
from outlast.model.run import Status
from outlast.worker.steps import GIVEN_BACK, RECORDED, Ending, Raised, Returned
from outlast.worker.turn import Released
from support.turn_desk import CANCEL, TERMINATE, Desk
from support.worker_fakes import PARKED, FakeAttempt, FakeStep, FakeTimer, progress, record

HELD = Held(Failure(type="x", message="m"))
DONE = Finished(Status.COMPLETED, "1", None)


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "is_plain", True)
    monkeypatch.setattr(Desk, "rests_at_once", False)


def running(*names: str, transactional: tuple[str, ...] = ()) -> Desk:
    """A turn whose steps `names` are under way, while its code runs because another, `first`, has ended."""
    calls = [FakeStep(name).call(is_transactional=name in transactional) for name in ("first", *names)]
    desk = Desk(progress(calls=calls))
    desk.body.rest()
    desk.end("first")
    assert desk.body.drives
    return desk


def attempt(desk: Desk, name: str) -> FakeAttempt:
    return desk.place.steps.attempts[name]


def test_the_turn_begins_with_the_code_on_its_thread_and_goes_on_when_it_is_at_rest() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()]))
    assert desk.begun == []

    desk.body.rest()

    assert desk.begun == ["a"]


def test_an_attempt_that_ends_while_the_code_runs_is_told_to_it_when_it_rests() -> None:
    desk = running("a", "b")
    desk.end("a", 1)
    attempt(desk, "b").end(Raised(ValueError("no")))
    desk.execution.will(progress(), progress(), progress(PARKED, records=[record(0), record(1)]))

    desk.body.rest()
    assert desk.execution.told[-1] == ("returned", "a", 1)
    desk.body.rest()
    assert desk.execution.told[-1][:2] == ("raised", "b")
    desk.body.rest()

    assert desk.flush().records == (record(0), record(1))
    assert desk.ends == [(False, False)]


@pytest.mark.parametrize("ending", [Returned(1), Raised(ValueError()), GIVEN_BACK])
def test_one_that_ended_meanwhile_is_forgotten_with_a_run_that_cannot_go_on(ending: Ending) -> None:
    desk = running("a")
    attempt(desk, "a").end(ending)
    desk.execution.will(progress(HELD))
    told = len(desk.execution.told)

    desk.body.rest()

    assert len(desk.execution.told) == told
    assert desk.turn.state == HELD


def test_a_request_to_stop_waits_for_the_code_but_its_attempts_hear_of_it_at_once() -> None:
    desk = running("a")
    desk.execution.will(progress(), progress(records=[record(0, "$stop", Kind.STOP)]))

    desk.turn.request_stop(CANCEL)
    desk.turn.request_stop(CANCEL)
    assert desk.told("a") == ["stop"]
    desk.body.rest()
    assert desk.execution.told[-1] == ("stop", CANCEL)
    desk.body.rest()

    assert desk.told("a") == ["stop"], "told again, it would cut short what the step cleans up"
    assert desk.flush().records == (record(0, "$stop", Kind.STOP),)


def test_a_second_request_is_told_to_the_attempts_as_well() -> None:
    desk = running("a")
    desk.turn.request_stop(CANCEL)
    desk.turn.request_stop(TERMINATE)
    desk.execution.will(progress(), progress())

    assert desk.told("a") == ["stop", "stop"]
    desk.body.rest()
    assert desk.execution.told[-1] == ("stop", TERMINATE)


def test_a_request_goes_before_all_else_that_happened_and_endings_in_their_order() -> None:
    desk = running("a", "b")
    desk.end("b")
    desk.turn.request_stop(CANCEL)
    desk.end("a")
    desk.execution.will(progress(), progress(), progress(), progress(PARKED))
    before = len(desk.execution.told)

    for _ in range(4):
        desk.body.rest()

    assert [told[:2] for told in desk.execution.told[before:]] == [
        ("stop", CANCEL), ("returned", "b"), ("returned", "a"),
    ]  # fmt: skip


def test_nothing_begins_that_the_code_asked_for_after_the_request() -> None:
    """It would be done and undone again: the run was cancelled before."""
    desk = running()
    desk.turn.request_stop(CANCEL)
    desk.execution.will(progress(calls=[FakeStep("charge").call()]), progress(calls=[FakeStep("undo").call()]))

    desk.body.rest()
    assert desk.execution.told[-2:] == [("given back", "charge"), ("stop", CANCEL)]
    desk.body.rest()

    assert desk.begun == ["undo"]


def test_a_run_whose_code_waits_after_the_request_is_not_parked_without_hearing_of_it() -> None:
    desk = running()
    desk.turn.request_stop(CANCEL)
    desk.execution.will(progress(PARKED), progress(records=[record(0)], calls=[FakeStep("undo").call()]))

    desk.body.rest()
    assert desk.asked == []
    desk.body.rest()

    assert desk.flush().records == (record(0),)
    assert desk.begun == ["undo"]


@pytest.mark.parametrize("state", [DONE, HELD])
def test_a_request_that_comes_too_late_is_left_to_the_store(state: Finished | Held) -> None:
    desk = running()
    desk.turn.request_stop(CANCEL)
    desk.execution.will(progress(state))

    desk.body.rest()

    assert desk.flush().write is not None
    assert desk.execution.told[-1] == ("returned", "first", None)


def test_a_last_write_that_was_asked_for_is_the_last_no_more_once_the_code_runs_again() -> None:
    """Else the run would be parked, and kept in memory, with code that goes on."""
    desk = Desk(progress(Parked(Status.SUSPENDED, None, ()), records=[record(0)]))
    desk.body.rest()
    desk.turn.request_stop(CANCEL)

    staged = desk.flush()

    assert (staged.records, staged.write) == ((record(0),), None)
    desk.execution.will(progress(DONE))
    desk.body.rest()
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.status is Status.COMPLETED


def test_steps_that_wait_for_a_write_begin_while_the_code_runs() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()], records=[record(0)]))
    desk.body.rest()
    desk.take()
    desk.turn.request_stop(CANCEL)
    assert desk.body.drives

    desk.turn.written(False, False)

    assert desk.begun == ["a"]
    desk.execution.will(progress(records=[record(1, "$stop", Kind.STOP)]))
    desk.body.rest()
    assert desk.told("a") == ["stop"], "it began after the request, and is told when that is recorded"


def test_what_was_recorded_before_is_written_while_the_code_runs() -> None:
    """The next record comes while a write is under way, and then the code begins to compute for an hour."""
    desk = Desk(progress(calls=[FakeStep(name).call() for name in "abc"]))
    desk.execution.will(progress(records=[record(0, "a")]), progress(records=[record(1, "b")]))
    desk.body.rest()
    desk.end("a")
    desk.body.rest()
    desk.take()
    desk.end("b")
    desk.body.rest()
    desk.end("c")

    desk.turn.written(False, False)

    assert desk.body.drives
    assert desk.flush().records == (record(1, "b"),)


def patience(desk: Desk) -> FakeTimer:
    """The timer that looks whether the code computes."""
    return desk.place.timers[-1][1]


def test_what_ended_before_the_code_went_on_is_written_while_it_computes() -> None:
    """If the process dies meanwhile, it is not done a second time."""
    desk = running("a")
    desk.body.meanwhile = (record(0, "first"),)

    patience(desk).look()
    assert desk.flush().records == (record(0, "first"),)
    patience(desk).look()
    assert desk.asked == []
    desk.body.meanwhile = (record(0, "first"), record(1, "$random:0"))
    patience(desk).look()
    assert desk.flush().records == (record(1, "$random:0"),)

    desk.execution.will(progress(records=[record(0, "first"), record(1, "$random:0"), record(2, "now")]))
    waiting = patience(desk)
    desk.body.rest()
    assert waiting.is_cancelled
    assert desk.flush().records == (record(2, "now"),)


def test_running_steps_are_told_when_the_run_stops_before_the_code_goes_on() -> None:
    desk = running("a")
    desk.body.meanwhile = (record(0, "$stop", Kind.STOP),)
    patience(desk).look()
    assert desk.told("a") == ["stop"]


def test_its_time_comes_while_it_runs_and_the_next_is_armed_after() -> None:
    desk = Desk(progress(Working(50), calls=[FakeStep("a").call()]))
    desk.body.rest()
    desk.turn.request_stop(CANCEL)
    (due,) = [timer for at, timer in desk.place.timers if at == 50]

    due.look()
    desk.execution.will(progress(Working(50)))
    desk.body.rest()

    assert [at for at, _ in desk.place.timers if at == 50] == [50, 50]
    assert not desk.body.drives


def test_a_transactional_step_commits_when_the_code_is_at_rest() -> None:
    """Its record comes after those of the code, whose number nobody knows yet."""
    desk = running("pay", transactional=("pay",))
    attempt(desk, "pay").settle(5)
    assert attempt(desk, "pay").granted is None
    desk.execution.will(progress(records=[record(0)]))

    desk.body.rest()

    grant = attempt(desk, "pay").granted
    assert grant is not None
    assert [each for _, each in grant.batch.records] == [record(0), record(99, "pay")]


def test_what_ended_during_a_commit_is_told_one_after_the_other() -> None:
    desk = running("pay", "a", "b", transactional=("pay",))
    attempt(desk, "pay").settle()
    desk.execution.will(progress(), progress(), progress(), progress(PARKED))
    desk.body.rest()
    desk.end("a")
    desk.end("b")
    before = len(desk.execution.told)

    attempt(desk, "pay").end(RECORDED)
    for _ in range(3):
        desk.body.rest()

    assert [told[:2] for told in desk.execution.told[before:]] == [
        ("recorded", "pay"), ("returned", "a"), ("returned", "b"),
    ]  # fmt: skip


def test_a_worker_that_stops_waits_for_the_code() -> None:
    desk = running()
    desk.place.is_stopping = True
    desk.turn.settle()
    assert desk.asked == []

    desk.execution.will(progress(records=[record(0)], calls=[FakeStep("b").call()]))
    desk.body.rest()

    staged = desk.flush()
    assert staged.records == (record(0),)
    assert isinstance(desk.turn.state, Released)
    assert desk.begun == []


def test_a_run_whose_code_does_not_end_is_given_back_with_what_is_recorded() -> None:
    desk = running("a")
    desk.place.is_stopping = True
    desk.body.meanwhile = (record(0, "first"),)

    desk.turn.abandon()
    desk.turn.request_stop(CANCEL)

    assert desk.told("a") == ["drop"]
    staged = desk.flush()
    assert staged.write is not None
    assert (staged.records, staged.write.keep, staged.write.due_at) == ((record(0, "first"),), False, 0)
    assert desk.ends == [(False, False)]
    assert patience(desk).is_cancelled
    desk.body.rest()
    desk.turn.abandon()
    assert desk.asked == [], "nobody listens"


def test_a_turn_that_is_dropped_hears_nothing_of_its_code() -> None:
    desk = running("a")
    desk.end("a")

    desk.turn.drop()
    desk.body.rest()

    assert desk.body.is_closed
    assert (desk.asked, desk.ends) == ([], [])
    assert desk.execution.told[-1] == ("returned", "first", None)


def test_code_that_has_not_begun_does_not_begin_for_a_turn_that_was_dropped() -> None:
    desk = running()
    (drive,) = desk.body.drives
    assert drive.is_wanted
    desk.turn.drop()
    assert not drive.is_wanted


def test_a_run_that_is_not_ours_any_more_hears_nothing_of_its_code() -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()], custom_status='"x"'))
    desk.body.rest()
    desk.take()
    desk.end("a")
    assert desk.body.drives

    desk.turn.written(True, False)
    desk.body.rest()

    assert desk.ends == [(True, False)]
    assert desk.asked == []


@pytest.mark.parametrize("stop, status", [(CANCEL, Status.SUSPENDED), (TERMINATE, Status.CANCELLED)])
def test_a_write_that_is_refused_while_the_code_runs_holds_the_run(stop: object, status: Status) -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()], custom_status='"x"'))
    desk.body.rest()
    desk.take()
    desk.end("a")

    desk.turn.refused(ValueError("too long"))
    desk.turn.request_stop(CANCEL if stop is CANCEL else TERMINATE)
    desk.body.rest()

    staged = desk.flush()
    assert staged.records == ()
    assert staged.write is not None
    assert (staged.write.status, staged.write.keep) == (status, False)


def test_an_error_of_the_engine_on_the_thread_holds_the_run() -> None:
    desk = running()
    desk.execution.will(RuntimeError("bug"))
    desk.body.rest()
    assert isinstance(desk.turn.state, Held)


def test_without_a_thread_the_run_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(progress(calls=[FakeStep("a").call()]))
    desk.body.rest()

    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(desk.body, "drive", none)
    desk.end("a")

    assert isinstance(desk.turn.state, Held)
    assert desk.flush().write is not None


def test_what_ends_the_process_is_handed_to_the_loop() -> None:
    desk = running()
    (drive,) = desk.body.drives
    with pytest.raises(KeyboardInterrupt):
        drive.ended(KeyboardInterrupt())


@pytest.mark.parametrize("ends", ["at rest", "dropped"])
def test_an_attempt_that_failed_is_told_of(ends: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "outlast.worker")
    desk = running("a")
    desk.execution.will(progress(), progress())
    desk.body.rest()
    attempt(desk, "a").end(Raised(ValueError("no luck")))
    if ends == "dropped":
        desk.turn.drop()
    desk.body.rest()
    assert "no luck" in caplog.text
