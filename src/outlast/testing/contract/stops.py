"""Asking runs to stop."""

from __future__ import annotations

from outlast.model.run import TERMINAL, Status, StopKind
from outlast.ports.store import Batch, StopOutcome
from outlast.testing.contract.desk import SECOND, ContractBroken, Desk, cases, finished, kept, new_run, same
from outlast.testing.contract.verbs import stopping


def a_pending_a_running_and_a_parked_run_can_be_cancelled(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("running", lease)
    desk.begin("parked", lease)
    desk.park(lease, "parked", due_at=desk.now + 9 * SECOND)
    desk.start(new_run("pending"))
    desk.later(1)

    same(_ask(desk, "pending"), StopOutcome(Status.PENDING, accepted=True))
    same(_ask(desk, "running"), StopOutcome(Status.RUNNING, accepted=True))
    same(_ask(desk, "parked"), StopOutcome(Status.SUSPENDED, accepted=True))

    for run_id in ("pending", "running", "parked"):
        stop = desk.get(run_id).run.stop
        same(stop is not None and (stop.kind, stop.failure.message, stop.at), (StopKind.CANCEL, "why", desk.now))


def a_parked_run_that_is_cancelled_becomes_claimable(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", due_at=desk.now + 9 * SECOND)
    desk.later(1)
    _ask(desk, "r")

    same(desk.get("r").run.due_at, desk.now)
    same(desk.claim_one(lease).id, "r")


def a_running_run_that_is_cancelled_stays_with_its_worker(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    _ask(desk, "r")

    same((desk.get("r").run.owner, desk.claim(desk.worker()).runs), (lease.worker, ()))


def the_first_cancel_is_the_one_that_counts(desk: Desk) -> None:
    desk.start(new_run("r"))
    _ask(desk, "r", message="first")

    same(_ask(desk, "r", message="second"), StopOutcome(Status.PENDING, accepted=False))
    stop = desk.get("r").run.stop
    same(stop is not None and stop.failure.message, "first")


def a_terminate_replaces_a_cancel_but_not_the_other_way(desk: Desk) -> None:
    desk.start(new_run("r"))
    _ask(desk, "r", StopKind.CANCEL, "cancel")

    same(_ask(desk, "r", StopKind.TERMINATE, "first").accepted, True)
    same(_ask(desk, "r", StopKind.TERMINATE, "second").accepted, False)
    same(_ask(desk, "r", StopKind.CANCEL, "late").accepted, False)
    stop = desk.get("r").run.stop
    same(stop is not None and (stop.kind, stop.failure.message), (StopKind.TERMINATE, "first"))


def a_compensating_run_is_terminated_but_not_cancelled(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.flush(lease, Batch(writes=(kept("r", Status.COMPENSATING),)))

    same(_ask(desk, "r", StopKind.CANCEL), StopOutcome(Status.COMPENSATING, accepted=False))
    same(_ask(desk, "r", StopKind.TERMINATE), StopOutcome(Status.COMPENSATING, accepted=True))


def a_run_that_ended_is_not_stopped(desk: Desk) -> None:
    lease = desk.worker()
    for status in sorted(TERMINAL):
        desk.begin(status.value, lease)
        desk.flush(lease, Batch(writes=(finished(status.value, status),)))
        before = desk.get(status.value)
        for kind in (StopKind.CANCEL, StopKind.TERMINATE):
            same(_ask(desk, status.value, kind), StopOutcome(status, accepted=False))
        same(desk.get(status.value), before)


def a_run_that_is_not_there_is_not_stopped(desk: Desk) -> None:
    same(desk.do(stopping("nobody")), None)


def a_run_that_ends_before_it_notices_keeps_its_end(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    _ask(desk, "r")
    desk.flush(lease, Batch(writes=(finished("r"),)))

    run = desk.get("r").run
    same((run.status, run.output, run.stop is not None), (Status.COMPLETED, "1", True))
    same(desk.claim(lease).runs, ())


def _ask(desk: Desk, run_id: str, kind: StopKind = StopKind.CANCEL, message: str = "why") -> StopOutcome:
    outcome = desk.do(stopping(run_id, kind, message))
    if outcome is None:
        raise ContractBroken(f"there is no run {run_id!r}")
    return outcome


CASES = cases(
    a_pending_a_running_and_a_parked_run_can_be_cancelled,
    a_parked_run_that_is_cancelled_becomes_claimable,
    a_running_run_that_is_cancelled_stays_with_its_worker,
    the_first_cancel_is_the_one_that_counts,
    a_terminate_replaces_a_cancel_but_not_the_other_way,
    a_compensating_run_is_terminated_but_not_cancelled,
    a_run_that_ended_is_not_stopped,
    a_run_that_is_not_there_is_not_stopped,
    a_run_that_ends_before_it_notices_keeps_its_end,
)
