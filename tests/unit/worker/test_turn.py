"""One turn: what is durable before what, and how a turn ends. No loop: the test is the database and the steps."""

from __future__ import annotations

from typing import NoReturn

import pytest

from outlast.engine.decision import Finished, Held, Parked, Progress, Working
from outlast.errors import Failure, JournalMismatch
from outlast.model.failures import decode_failure
from outlast.model.ids import RunId
from outlast.model.journal import Kind
from outlast.model.run import Status, Stop, StopKind
from outlast.ports.store import Wait
from outlast.worker.flusher import Staged, Writer
from outlast.worker.steps import GIVEN_BACK, Raised, Returned
from outlast.worker.turn import Released, Turn
from support.worker_fakes import PARKED, FakePlace, FakeStep, ScriptedExecution, progress, record

CANCEL = Stop(StopKind.CANCEL, Failure(type="x", message="no longer wanted"), 5)
TERMINATE = Stop(StopKind.TERMINATE, Failure(type="x", message="at once"), 6)


class Desk:
    """Where a turn happens: the flusher and the host in one, with a turn that has begun."""

    def __init__(
        self,
        *script: Progress | Exception,
        lapses: int = 0,
        custom_status: str | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.place = FakePlace()
        self.execution = ScriptedExecution(*script)
        self.asked: list[Writer] = []
        self.ends: list[tuple[bool, bool]] = []
        self.is_leaving = False
        self.turn = Turn(
            self,
            self.place,  # type: ignore[arg-type]  # the part of it that a turn uses
            RunId("r1"),
            self.execution,
            status=Status.RUNNING,
            custom_status=custom_status,
        )
        self.turn.begin(lapses=lapses, stop=stop)

    def write(self, writer: Writer) -> None:
        assert not self.asked, "at most one write at a time"
        self.asked.append(writer)

    def leaving(self, turn: Turn) -> None:
        assert not self.is_leaving
        self.is_leaving = True

    def staying(self, turn: Turn) -> None:
        assert self.is_leaving
        self.is_leaving = False

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


def test_a_last_write_that_is_refused_holds_the_run() -> None:
    desk = Desk(progress(Finished(Status.COMPLETED, "1", None)))
    desk.take()
    desk.turn.refused(ValueError("no"))
    staged = desk.flush()
    assert staged.write is not None
    assert staged.write.status is Status.SUSPENDED
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
    assert seen == ["r1"]
    assert desk.place.driving is None
