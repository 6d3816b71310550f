"""Claims: which runs, in which order, with what."""

from __future__ import annotations

from outlast.model.ids import RunId
from outlast.model.run import Status, StopKind
from outlast.ports.store import Batch, Wait
from outlast.testing.contract.desk import SECOND, Desk, cases, finished, new_run, parked, same, showing, step
from outlast.testing.contract.verbs import claiming, signalling, stopping


def smaller_priorities_come_first_then_what_was_due_first(desk: Desk) -> None:
    desk.start(new_run("late", priority=5))
    desk.later(1)
    desk.start(new_run("b", priority=1), new_run("a", priority=1), new_run("first", priority=0))
    desk.later(1)
    desk.start(new_run("later", priority=1))

    claimed = desk.claim(desk.worker()).runs

    same([run.id for run in claimed], ["first", "a", "b", "later", "late"])


def a_claim_takes_no_more_than_its_limit(desk: Desk) -> None:
    desk.start(*(new_run(f"r{n}") for n in range(5)))
    lease = desk.worker()

    same([len(desk.claim(lease, limit=2).runs) for _ in range(4)], [2, 2, 1, 0])


def a_claim_leaves_workflows_and_versions_that_are_not_registered(desk: Desk) -> None:
    desk.start(new_run("old", version=1), new_run("new", version=2), new_run("else", workflow="else"))
    lease = desk.worker()

    claimed = desk.do(claiming(lease, workflows=(("work", 2), ("other", 1))))

    same([run.id for run in claimed.runs], ["new"])
    same([(desk.get(run_id).run.status, desk.get(run_id).run.turns) for run_id in ("old", "else")], [
        (Status.PENDING, 0), (Status.PENDING, 0)
    ])  # fmt: skip


def a_claim_takes_nothing_where_nothing_is_registered(desk: Desk) -> None:
    desk.start(new_run("r"))
    lease = desk.worker()

    same(desk.do(claiming(lease, workflows=())).runs, ())


def a_claimed_run_is_running_and_owned(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(new_run("r", timeout=9 * SECOND, input="[7]"))
    desk.later(1)

    claim = desk.claim(lease)

    (claimed,) = claim.runs
    same((claimed.workflow, claimed.version, claimed.status, claimed.input), ("work", 1, Status.RUNNING, "[7]"))
    same((claimed.turns, claimed.lapses, claimed.stop, claimed.custom_status), (1, 0, None, None))
    same((claimed.records, claimed.signals), ((), ()))
    same((claimed.started_at, claimed.created_at, claim.now), (desk.now, desk.now - SECOND, desk.now))
    same(claimed.deadline_at, claimed.created_at + 9 * SECOND)
    run = desk.get("r").run
    same((run.status, run.owner, run.due_at, run.started_at), (Status.RUNNING, lease.worker, None, desk.now))


def a_run_that_has_a_worker_goes_to_no_other(desk: Desk) -> None:
    desk.begin("r", desk.worker())
    desk.later(31)

    same(desk.claim(desk.worker()).runs, ())


def a_run_that_ended_is_never_claimed(desk: Desk) -> None:
    lease = desk.worker()
    for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.COMPENSATION_FAILED):
        desk.begin(status.value, lease)
        desk.flush(lease, Batch(writes=(finished(status.value, status),)))
    desk.later(100)

    same(desk.claim(lease).runs, ())


def a_compensating_run_is_claimed_as_such(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.flush(lease, Batch(writes=(parked("r", due_at=desk.now + SECOND, status=Status.COMPENSATING),)))
    desk.later(1)

    same(desk.claim_one(lease).status, Status.COMPENSATING)
    same(desk.get("r").run.status, Status.COMPENSATING)


def a_parked_run_is_claimed_when_it_is_due_and_not_before(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    started_at = desk.now
    desk.park(lease, "r", due_at=desk.now + 2 * SECOND)

    desk.later(1.999)
    early = desk.claim(lease)
    desk.later(0.001)
    claimed = desk.claim_one(lease)

    same((early.runs, early.next_due), ((), desk.now))
    same((claimed.id, claimed.turns, claimed.started_at), ("r", 2, started_at))


def a_claim_tells_when_the_next_parked_run_is_due(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(*(new_run(f"r{n}") for n in range(3)))
    desk.claim(lease)
    due_at = [desk.now + seconds * SECOND for seconds in (9, 4, 6)]
    desk.flush(lease, Batch(writes=tuple(parked(f"r{n}", due_at=due_at[n]) for n in range(3))))

    same(desk.claim(lease).next_due, due_at[1])
    desk.later(5)
    claim = desk.claim(lease)
    same(([run.id for run in claim.runs], claim.next_due), (["r1"], due_at[2]))


def a_parked_run_without_a_due_time_is_not_claimed(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("s", 0))
    desk.later(1_000_000)

    claim = desk.claim(lease)

    same((claim.runs, claim.next_due), ((), None))


def many_parked_runs_fall_due_together(desk: Desk) -> None:
    lease = desk.worker()
    names = [f"r{n:04}" for n in range(1_200)]
    desk.start(*(new_run(name) for name in names))
    desk.claim(lease, limit=1_200)
    desk.flush(lease, Batch(writes=tuple(parked(name, due_at=desk.now + SECOND) for name in names)))
    desk.later(1)

    found: list[str] = []
    for _ in range(4):
        claim = desk.claim(lease, limit=700)
        found += [run.id for run in claim.runs]
        if len(found) < len(names):
            same(claim.next_due is None or claim.next_due <= desk.now, True)

    same(sorted(found), names)


def a_claim_brings_the_journal_unless_the_run_is_held_in_memory_as_it_is(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    for _ in range(3):
        batch = Batch(
            records=((RunId("r"), step(desk.get("r").run.turns, "s")),), writes=(parked("r", due_at=desk.now),)
        )
        desk.flush(lease, batch)
        desk.claim_one(lease)
        desk.park(lease, "r", due_at=desk.now)
        turns = desk.get("r").run.turns
        fresh = desk.claim(lease, r=turns).runs[0]
        same((fresh.records, fresh.turns), (None, turns + 1))
        desk.park(lease, "r", due_at=desk.now)
        stale = desk.claim(lease, r=turns).runs[0]
        same(len(stale.records or ()), len(desk.get("r").journal))


def a_claim_brings_each_run_its_own_journal(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(new_run("a"), new_run("b"), new_run("c"))
    desk.claim(lease)
    records = tuple((RunId(name), step(seq, f"{name}{seq}")) for seq in range(2) for name in ("a", "b"))
    desk.flush(lease, Batch(records=records, writes=tuple(parked(name, due_at=desk.now) for name in ("a", "b", "c"))))

    claimed = desk.claim(lease).runs

    found = {run.id: [record.name for record in run.records or ()] for run in claimed}
    same(found, {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": []})


def a_claim_brings_the_stop_request(desk: Desk) -> None:
    desk.start(new_run("r"))
    desk.do(stopping("r", StopKind.TERMINATE, "enough"))

    stop = desk.claim_one(desk.worker()).stop

    same(stop is not None and (stop.kind, stop.failure.message, stop.at), (StopKind.TERMINATE, "enough", desk.now))


def a_claim_brings_the_signals_that_the_run_waits_for_by_id(desk: Desk) -> None:
    lease = desk.worker()
    for run_id in ("r", "q"):
        desk.begin(run_id, lease)
        desk.park(lease, run_id, Wait(f"a\n{run_id}", 0), Wait("b", 0))
    topics = ("b", "a\nr", "a\nq", "c", "a\nr")
    sent = [desk.do(signalling(topic, str(n), f"[{n}]", name="x"))[0].id for n, topic in enumerate(topics)]

    claimed = {str(run.id): [(one.id, one.topic, one.payload) for one in run.signals] for run in desk.claim(lease).runs}

    same(claimed["r"], [(sent[0], "b", "[0]"), (sent[1], "a\nr", "[1]"), (sent[4], "a\nr", "[4]")])
    same(claimed["q"], [(sent[0], "b", "[0]"), (sent[2], "a\nq", "[2]")])


def a_claim_keeps_what_the_run_showed(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.flush(lease, Batch(writes=(showing("r", '"paid"'),)))
    desk.park(lease, "r", due_at=desk.now)

    same(desk.claim_one(lease).custom_status, '"paid"')


CASES = cases(
    smaller_priorities_come_first_then_what_was_due_first,
    a_claim_takes_no_more_than_its_limit,
    a_claim_leaves_workflows_and_versions_that_are_not_registered,
    a_claim_takes_nothing_where_nothing_is_registered,
    a_claimed_run_is_running_and_owned,
    a_run_that_has_a_worker_goes_to_no_other,
    a_run_that_ended_is_never_claimed,
    a_compensating_run_is_claimed_as_such,
    a_parked_run_is_claimed_when_it_is_due_and_not_before,
    a_claim_tells_when_the_next_parked_run_is_due,
    a_parked_run_without_a_due_time_is_not_claimed,
    many_parked_runs_fall_due_together,
    a_claim_brings_the_journal_unless_the_run_is_held_in_memory_as_it_is,
    a_claim_brings_each_run_its_own_journal,
    a_claim_brings_the_stop_request,
    a_claim_brings_the_signals_that_the_run_waits_for_by_id,
    a_claim_keeps_what_the_run_showed,
)
