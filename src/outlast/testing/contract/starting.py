"""Starting runs."""

from __future__ import annotations

from outlast.model.run import Status
from outlast.testing.contract.desk import SECOND, Desk, cases, new_run, same
from outlast.testing.contract.verbs import reading, signalling


def a_new_run_is_pending_and_has_what_it_was_given(desk: Desk) -> None:
    outcome = desk.start(new_run("r", priority=7, timeout=5 * SECOND, input='{"order":[1,2]}'))

    same([(one.created, one.created_at, one.status) for one in outcome], [(True, desk.now, Status.PENDING)])
    run = desk.get("r").run
    same((run.workflow, run.version, run.input, run.priority), ("work", 1, '{"order":[1,2]}', 7))
    same((run.status, run.turns, run.lapses, run.owner), (Status.PENDING, 0, 0, None))
    same((run.created_at, run.updated_at, run.started_at), (desk.now, desk.now, None))
    same((run.due_at, run.deadline_at), (desk.now, desk.now + 5 * SECOND))


def an_id_that_is_taken_is_left_as_it_is(desk: Desk) -> None:
    desk.start(new_run("r", input="1"))
    born = desk.now
    desk.later(1)

    (outcome,) = desk.start(new_run("r", workflow="other", version=2, input="2"))

    same((outcome.created, outcome.workflow, outcome.version, outcome.input), (False, "work", 1, "1"))
    same((outcome.created_at, outcome.status), (born, Status.PENDING))
    same((desk.get("r").run.input, desk.get("r").run.workflow), ("1", "work"))


def an_id_that_is_taken_reports_how_far_the_run_has_come(desk: Desk) -> None:
    desk.begin("r", desk.worker())

    (outcome,) = desk.start(new_run("r"))

    same((outcome.created, outcome.status), (False, Status.RUNNING))


def starts_are_reported_in_the_order_in_which_they_were_asked_for(desk: Desk) -> None:
    desk.start(new_run("b"))

    outcomes = desk.start(new_run("c"), new_run("b"), new_run("a"))

    same([(one.id, one.created) for one in outcomes], [("c", True), ("b", False), ("a", True)])


def one_id_twice_in_one_call_makes_one_run(desk: Desk) -> None:
    outcomes = desk.start(new_run("r", input="1"), new_run("r", input="2"))

    same([(one.created, one.input) for one in outcomes], [(True, "1"), (False, "1")])


def many_runs_start_in_one_call(desk: Desk) -> None:
    outcomes = desk.start(*(new_run(f"r{n}", input=str(n)) for n in range(500)))

    same([(one.id, one.input, one.created) for one in outcomes], [(f"r{n}", str(n), True) for n in range(500)])


def nothing_starts_when_nothing_is_asked_for(desk: Desk) -> None:
    same(desk.start(), ())


def a_run_remembers_which_signals_were_sent_before_it(desk: Desk) -> None:
    (sent,) = desk.do(signalling("s", "1", "null"))
    desk.start(new_run("r"))

    claimed = desk.claim_one(desk.worker())

    same(claimed.signal_cursor, sent.id)


def a_run_without_a_timeout_has_no_deadline(desk: Desk) -> None:
    desk.start(new_run("r"))

    same(desk.get("r").run.deadline_at, None)


def a_run_that_was_never_started_is_not_there(desk: Desk) -> None:
    same(desk.do(reading("nobody")), None)


CASES = cases(
    a_new_run_is_pending_and_has_what_it_was_given,
    an_id_that_is_taken_is_left_as_it_is,
    an_id_that_is_taken_reports_how_far_the_run_has_come,
    starts_are_reported_in_the_order_in_which_they_were_asked_for,
    one_id_twice_in_one_call_makes_one_run,
    many_runs_start_in_one_call,
    nothing_starts_when_nothing_is_asked_for,
    a_run_remembers_which_signals_were_sent_before_it,
    a_run_without_a_timeout_has_no_deadline,
    a_run_that_was_never_started_is_not_there,
)
