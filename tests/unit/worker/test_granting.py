"""One turn with a transactional step: what it lets the step write, and what waits until that is known to be committed."""

from __future__ import annotations

import pytest

from outlast.engine.decision import Finished, Held, StepCall, Working
from outlast.errors import StepFailed
from outlast.model.journal import Record
from outlast.model.run import Status
from outlast.worker.granting import Grant
from outlast.worker.steps import GIVEN_BACK, RECORDED, Raised, Returned
from support.turn_desk import CANCEL, Desk
from support.worker_fakes import LEASE, FakeAttempt, FakeStep, progress, record

ENTRY = record(99, "pay")

pytestmark = pytest.mark.usefixtures("each_kind_of_turn")


def pay() -> StepCall:
    return FakeStep("pay").call(is_transactional=True)


def other(name: str = "a") -> StepCall:
    return FakeStep(name).call()


def attempt(desk: Desk, name: str = "pay") -> FakeAttempt:
    return desk.place.steps.attempts[name]


def grant_of(desk: Desk, name: str = "pay") -> Grant:
    grant = attempt(desk, name).granted
    assert grant is not None
    return grant


def recorded_in(grant: Grant) -> list[Record]:
    return [each for _, each in grant.batch.records]


def test_the_step_writes_its_record_and_proves_that_the_run_is_this_turns() -> None:
    desk = Desk(progress(calls=[pay()]), lapses=1)

    attempt(desk).settle(5)

    grant = grant_of(desk)
    assert (grant.run_id, grant.lease, grant.entry) == ("r1", LEASE, ENTRY)
    assert recorded_in(grant) == [ENTRY]
    (proof,) = grant.batch.writes
    assert (proof.id, proof.status, proof.keep, proof.progressed) == ("r1", Status.RUNNING, True, True)
    assert desk.execution.told[-1] == ("settled", "pay", 5)
    assert desk.asked == [], "the step writes it, not the flusher"


def test_what_waits_for_the_flusher_and_what_it_has_under_way_goes_along() -> None:
    """Its place in the journal is after them, so without them there could be a gap."""
    desk = Desk(progress(calls=[pay(), other("a"), other("b")]))
    desk.execution.will(progress(records=[record(0, "a")]), progress(records=[record(1, "b")]))
    desk.end("a")
    desk.take()
    desk.end("b")

    attempt(desk).settle()

    assert recorded_in(grant_of(desk)) == [record(0, "a"), record(1, "b"), ENTRY]


def test_what_went_along_is_not_written_again_once_it_is_committed() -> None:
    desk = Desk(progress(calls=[pay(), other("a"), other("b")]))
    desk.execution.will(progress(records=[record(0, "a")]), progress(records=[record(1, "b")]))
    desk.end("a")
    desk.take()
    desk.end("b")
    attempt(desk).settle()
    desk.execution.will(progress(records=[record(2, "next")]))

    attempt(desk).end(RECORDED)
    desk.turn.written(False, False)

    assert desk.execution.told[-1] == ("recorded", "pay")
    assert desk.flush().records == (record(2, "next"),)


def test_what_went_along_is_still_to_be_written_when_nothing_was_committed() -> None:
    desk = Desk(progress(calls=[pay(), other("a")]))
    # The attempt of a is recorded while the write before it is under way.
    desk.execution.will(progress(records=[record(0, "a")]), progress(records=[record(1, "pay retry")]))
    desk.end("a")
    attempt(desk).settle()

    attempt(desk).end(Raised(ConnectionError()))

    assert desk.flush().records == (record(0, "a"), record(1, "pay retry"))


def test_nothing_else_of_the_run_goes_on_until_the_commit_is_answered() -> None:
    desk = Desk(progress(calls=[pay(), other("a")]))
    attempt(desk).settle()
    called = len(desk.execution.told)

    desk.end("a", 7)
    desk.turn.request_stop(CANCEL)
    desk.turn.settle()

    assert desk.execution.told[called:] == [("stop", CANCEL)]
    assert desk.asked == []
    desk.execution.will(progress(), progress(records=[record(100, "a")]))
    attempt(desk).end(RECORDED)
    assert [told[:2] for told in desk.execution.told[called + 1 :]] == [("recorded", "pay"), ("returned", "a")]
    assert desk.flush().records == (record(100, "a"),)


def test_a_flush_that_comes_round_meanwhile_gets_nothing() -> None:
    """It would wait in the database for the step's transaction, and the other runs in it with it."""
    desk = Desk(progress(calls=[pay(), other("a")]))
    desk.execution.will(progress(records=[record(0, "a")]))
    desk.end("a")
    attempt(desk).settle()

    staged = desk.flush()

    assert (staged.records, staged.write) == ((), None)
    desk.execution.will(progress(state=Finished(Status.COMPLETED, "null", None)))
    attempt(desk).end(RECORDED)
    assert desk.flush().records == ()


def test_two_steps_of_a_run_commit_one_after_the_other() -> None:
    first, second = pay(), FakeStep("book").call(is_transactional=True)
    desk = Desk(progress(calls=[first, second]))
    attempt(desk, "pay").settle()
    attempt(desk, "book").settle()
    assert attempt(desk, "book").granted is None
    desk.execution.will(progress())

    attempt(desk, "pay").end(RECORDED)

    assert grant_of(desk, "book").entry.name == "book"


def test_one_that_nobody_listens_to_any_more_is_passed_over() -> None:
    calls = [FakeStep(name).call(is_transactional=True) for name in ("one", "two", "three")]
    desk = Desk(progress(calls=calls))
    for name in ("one", "two", "three"):
        attempt(desk, name).settle()
    attempt(desk, "two").is_heard = False
    desk.execution.will(progress())

    attempt(desk, "one").end(RECORDED)

    assert attempt(desk, "two").granted is None
    assert attempt(desk, "three").granted is not None


def test_what_keeps_it_from_being_recorded_is_given_to_the_attempt_and_the_next_one_may_commit() -> None:
    refusal = StepFailed("pay", 1, CANCEL.failure)
    desk = Desk(progress(calls=[pay(), FakeStep("book").call(is_transactional=True)]))

    attempt(desk, "pay").settle(refusal)
    attempt(desk, "book").settle()

    assert attempt(desk, "pay").refused is refusal
    assert attempt(desk, "book").granted is not None


def test_what_ended_meanwhile_is_forgotten_with_a_run_that_cannot_go_on() -> None:
    desk = Desk(progress(calls=[pay(), other("a")]))
    attempt(desk).settle()
    desk.end("a", 7)
    desk.execution.will(RuntimeError("the journal is of other code"))

    attempt(desk).end(RECORDED)

    assert isinstance(desk.turn.state, Held)
    assert desk.execution.told[-1] == ("recorded", "pay")


@pytest.mark.parametrize("ending", [Returned(1), Raised(ValueError()), GIVEN_BACK])
def test_a_turn_that_is_dropped_tells_nothing_more(ending: Returned | Raised) -> None:
    desk = Desk(progress(calls=[pay(), other("a")]))
    attempt(desk).settle()
    attempt(desk, "a").end(ending)

    desk.turn.drop()

    assert desk.told("pay") == ["drop"]
    assert desk.execution.is_closed
    assert desk.ends == []


def test_giving_the_run_back_does_not_wait_for_a_commit() -> None:
    """The database decides which of the two came first: both change the run's row."""
    desk = Desk(progress(calls=[pay(), other("a")]))
    attempt(desk).settle()

    desk.turn.abandon()

    staged = desk.flush()
    assert staged.write is not None
    assert (staged.write.keep, staged.records) == (False, ())
    assert not isinstance(desk.turn.state, Working)


def test_a_lease_that_is_found_to_be_over_is_told_to_the_tenure() -> None:
    desk = Desk(progress(calls=[pay()]))
    attempt(desk).settle()

    grant_of(desk).lose()

    assert desk.is_lost


def test_a_grant_that_is_given_back_lets_the_run_go_on_and_the_step_asks_again() -> None:
    desk = Desk(progress(calls=[pay(), other("a")]))
    attempt(desk).settle(5)
    desk.end("a")
    desk.execution.will(progress(), progress(records=[record(0, "a")]))

    grant_of(desk).give_back()

    assert desk.flush().records == (record(0, "a"),)
    attempt(desk).settle(6)
    assert desk.execution.told[-1] == ("settled", "pay", 6)
    assert recorded_in(grant_of(desk)) == [ENTRY]
    attempt(desk).end(RECORDED)
    assert desk.execution.told[-1] == ("recorded", "pay")
