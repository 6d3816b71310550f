"""Reading runs: one, many, and how far some are."""

from __future__ import annotations

from outlast.model.ids import RunId
from outlast.model.run import Status
from outlast.ports.store import Batch, Outcome, RunFilter, Unclaimed, Wait
from outlast.testing.contract.desk import SECOND, Desk, cases, finished, new_run, parked, same, step
from outlast.testing.contract.verbs import claiming, listing, neglecting, reading, waiting


def a_journal_is_read_in_the_order_in_which_it_was_recorded(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.flush(lease, Batch(records=tuple((RunId("r"), step(seq, f"s{seq}")) for seq in range(12))))

    same([record.name for record in desk.get("r").journal], [f"s{seq}" for seq in range(12)])


def a_run_is_read_without_its_journal_when_it_is_not_wanted(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.flush(lease, Batch(records=((RunId("r"), step(0, "s")),)))

    found = desk.do(reading("r", journal=False))

    same(found is not None and (found.run.id, found.journal), ("r", ()))


def a_parked_run_tells_what_it_waits_for_in_order(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    same(desk.get("r").waiting_for, ())
    desk.park(lease, "r", Wait("z", 0), Wait("a\nkey", 0))

    same(desk.get("r").waiting_for, ("z", "a\nkey"))
    same(dict(desk.do(waiting(["r", "nobody"]))), {"r": ("z", "a\nkey")})
    same(dict(desk.do(waiting([]))), {})


def a_claimed_run_waits_for_nothing(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("a", 0), due_at=desk.now)
    desk.claim_one(lease)

    same(desk.get("r").waiting_for, ())
    same(dict(desk.do(waiting(["r"]))), {})


def runs_are_listed_oldest_first_and_page_by_page(desk: Desk) -> None:
    _three_at_two_times(desk)

    first = desk.do(listing(RunFilter(limit=2)))
    last = first[-1]
    second = desk.do(listing(RunFilter(limit=2, after=(last.created_at, last.id))))

    same([run.id for run in first], ["b", "c"])
    same([run.id for run in second], ["a"])


def a_page_does_not_move_when_runs_are_added(desk: Desk) -> None:
    _three_at_two_times(desk)
    first = desk.do(listing(RunFilter(limit=1)))
    desk.later(1)
    desk.start(new_run("0"))

    last = first[-1]
    rest = desk.do(listing(RunFilter(after=(last.created_at, last.id))))

    same([run.id for run in rest], ["c", "a", "0"])


def runs_are_listed_by_status_workflow_version_and_time(desk: Desk) -> None:
    _three_at_two_times(desk)
    lease = desk.worker()
    desk.claim(lease, limit=1)
    desk.flush(lease, Batch(writes=(finished("b"),)))
    desk.start(new_run("other", workflow="else", version=3))

    def listed(wanted: RunFilter) -> list[str]:
        return [run.id for run in desk.do(listing(wanted))]

    same(listed(RunFilter(statuses=(Status.COMPLETED,))), ["b"])
    same(listed(RunFilter(statuses=(Status.PENDING,))), ["c", "a", "other"])
    same(listed(RunFilter(statuses=(Status.COMPLETED, Status.PENDING))), ["b", "c", "a", "other"])
    same(listed(RunFilter(statuses=(Status.FAILED,))), [])
    same(listed(RunFilter(workflow="else")), ["other"])
    same(listed(RunFilter(workflow="work", version=2)), [])
    same(listed(RunFilter(created_after=desk.now)), ["a", "other"])
    same(listed(RunFilter(created_before=desk.now)), ["b", "c"])
    same(listed(RunFilter(statuses=(Status.PENDING,), workflow="work", created_before=desk.now, limit=1)), ["c"])


def outcomes_are_told_of_the_runs_that_are_there(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(new_run("done"), new_run("failed"), new_run("open"))
    desk.claim(lease, limit=3)
    failed = finished("failed", Status.FAILED, output=None, error='{"type":"x"}')
    desk.flush(lease, Batch(writes=(finished("done", output="[1]"), failed, parked("open", due_at=desk.now + 1))))

    wanted = [RunId(run_id) for run_id in ("done", "failed", "open", "nobody")]
    found = desk.do(lambda store: store.outcomes(wanted))

    same(
        dict(found),
        {
            "done": Outcome(Status.COMPLETED, "[1]", None, "work", 1, finished_at=desk.now),
            "failed": Outcome(Status.FAILED, None, '{"type":"x"}', "work", 1, finished_at=desk.now),
            "open": Outcome(Status.SUSPENDED, None, None, "work", 1),
        },
    )


def what_nobody_takes_is_told_by_its_workflow(desk: Desk) -> None:
    desk.start(new_run("a", workflow="gone"), new_run("b", workflow="gone"), new_run("c", workflow="work", version=2))
    desk.start(new_run("d"))
    desk.later(300)

    overdue = 300 * SECOND
    same(desk.do(neglecting(("work", 1), overdue=overdue)), (Unclaimed("gone", 1, 2), Unclaimed("work", 2, 1)))
    same(desk.do(neglecting(("gone", 1), ("work", 2), ("work", 1), overdue=overdue)), ())
    same(desk.do(neglecting(overdue=overdue + 1)), ())


def what_slept_is_told_when_nobody_takes_it(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("early", lease)
    desk.park(lease, "early", due_at=desk.now + SECOND)
    desk.begin("late", lease)
    desk.park(lease, "late", due_at=desk.now + 100 * SECOND)
    desk.begin("waits", lease)
    desk.park(lease, "waits", Wait("topic", 0))
    desk.later(100)

    same(desk.do(neglecting(overdue=99 * SECOND)), (Unclaimed("work", 1, 1),))


def what_a_worker_has_others_of_only_waits_for_its_turn(desk: Desk) -> None:
    desk.start(new_run("a", workflow="gone"), new_run("b", workflow="gone"))
    desk.later(300)
    same(desk.do(neglecting(overdue=SECOND)), (Unclaimed("gone", 1, 2),))

    desk.do(claiming(desk.worker(), limit=1, workflows=(("gone", 1),)))

    same(desk.do(neglecting(overdue=SECOND)), ())


def _three_at_two_times(desk: Desk) -> None:
    desk.start(new_run("c"), new_run("b"))
    desk.later(1)
    desk.start(new_run("a"))


CASES = cases(
    a_journal_is_read_in_the_order_in_which_it_was_recorded,
    a_run_is_read_without_its_journal_when_it_is_not_wanted,
    a_parked_run_tells_what_it_waits_for_in_order,
    a_claimed_run_waits_for_nothing,
    runs_are_listed_oldest_first_and_page_by_page,
    a_page_does_not_move_when_runs_are_added,
    runs_are_listed_by_status_workflow_version_and_time,
    outcomes_are_told_of_the_runs_that_are_there,
    what_nobody_takes_is_told_by_its_workflow,
    what_slept_is_told_when_nobody_takes_it,
    what_a_worker_has_others_of_only_waits_for_its_turn,
)
