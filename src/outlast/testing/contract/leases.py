"""Workers' leases: who may write, and who takes over."""

from __future__ import annotations

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import Status, StopKind
from outlast.ports.store import Batch, Reaped, Wait
from outlast.testing.contract.desk import Desk, cases, finished, new_run, parked, same, step
from outlast.testing.contract.verbs import (
    asking_after,
    claiming,
    disowning,
    flushing,
    giving_back,
    reading,
    reaping,
    renewing,
    retiring,
    signalling,
    stopping,
    writing,
)


def registering_again_after_a_lost_answer_is_the_same_lease(desk: Desk) -> None:
    first = desk.worker("w")
    same(desk.worker("w"), first)


def a_renewal_tells_the_time_and_keeps_the_lease(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.later(20)

    renewal = desk.do(renewing(lease))
    desk.later(20)

    same((renewal.now, renewal.stops), (desk.now - 20_000_000, ()))
    same(desk.do(reaping), 0)
    same(desk.get("r").run.owner, lease.worker)


def a_late_renewal_counts_unless_the_lease_was_taken_over(desk: Desk) -> None:
    late, taken = desk.worker(), desk.worker()
    desk.later(31)
    desk.do(renewing(late))
    desk.do(reaping)

    same(desk.do(renewing(late)).now, desk.now)
    desk.refused(renewing(taken))


def a_renewal_tells_of_stop_requests_for_runs_of_this_worker(desk: Desk) -> None:
    lease, other = desk.worker(), desk.worker()
    desk.begin("mine", lease)
    desk.begin("theirs", other)
    for run_id in ("mine", "theirs"):
        desk.do(stopping(run_id, message="m"))

    renewal = desk.do(renewing(lease))

    same([(run_id, stop.kind, stop.failure.message, stop.at) for run_id, stop in renewal.stops], [
        ("mine", StopKind.CANCEL, "m", desk.now)
    ])  # fmt: skip


def a_worker_that_retires_hands_its_runs_back_without_a_lapse(desk: Desk) -> None:
    lease, next_worker = desk.worker(), desk.worker()
    desk.begin("r", lease)

    same(desk.do(retiring(lease)), 1)

    run = desk.get("r").run
    same((run.owner, run.due_at, run.lapses, run.status), (None, desk.now, 0, Status.RUNNING))
    same(desk.claim_one(next_worker).turns, 2)
    desk.refused(retiring(lease))


def a_worker_hands_back_what_it_does_not_know_it_owns(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(new_run("known"), new_run("unknown"))
    desk.claim(lease)

    same(desk.do(disowning(lease, "known")), 1)

    same((desk.get("known").run.owner, desk.get("unknown").run.owner), (lease.worker, None))
    same((desk.get("unknown").run.lapses, desk.claim_one(lease).id), (0, "unknown"))


def a_worker_that_knows_all_its_runs_hands_none_back(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)

    same(desk.do(disowning(lease, "r")), 0)
    same(desk.get("r").run.owner, lease.worker)


def a_worker_gives_back_those_of_its_runs_that_it_names(desk: Desk) -> None:
    lease, other = desk.worker(), desk.worker()
    desk.begin("another's", other)
    desk.start(new_run("kept"), new_run("given"))
    desk.claim(lease)

    same(desk.do(giving_back(lease, "given", "another's", "nobody's")), ("given",))

    owners = [desk.get(run_id).run.owner for run_id in ("kept", "given", "another's")]
    same(owners, [lease.worker, None, other.worker])
    claimed = desk.claim_one(other)
    same((claimed.id, claimed.lapses, claimed.turns), ("given", 0, 2))
    same(desk.do(giving_back(lease)), ())


def a_run_that_is_given_back_still_waits_for_its_signals(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.do(writing(lease, parked("r", Wait("t", 0))))
    desk.do(signalling("t", "d"))
    desk.claim_one(lease)

    same(desk.do(giving_back(lease, "r")), ("r",))

    same([signal.topic for signal in desk.claim_one(lease).signals], ["t"])


def a_lease_that_is_over_is_reaped_and_its_runs_count_a_lapse(desk: Desk) -> None:
    dead, alive = desk.worker(), desk.worker()
    desk.begin("r", dead)
    desk.later(20)
    desk.do(renewing(alive))
    desk.begin("s", alive)
    desk.later(12)

    same(desk.do(lambda store: store.reap()), Reaped(1, ((dead.worker, 2_000_000),)))

    same((desk.get("r").run.owner, desk.get("s").run.owner), (None, alive.worker))
    claimed = desk.claim_one(alive)
    same((claimed.id, claimed.lapses, claimed.turns), ("r", 1, 2))


def a_lease_counts_until_its_last_microsecond(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.clock.advance("29999ms")

    same(desk.do(reaping), 0)
    same(desk.get("r").run.owner, lease.worker)


def reaping_twice_counts_one_lapse(desk: Desk) -> None:
    desk.begin("r", desk.worker())
    desk.later(31)

    same([desk.do(reaping) for _ in range(2)], [1, 0])
    same(desk.get("r").run.lapses, 1)


def lapses_add_up_until_something_is_recorded(desk: Desk) -> None:
    desk.start(new_run("r"))
    for lapse in range(3):
        same(desk.claim_one(desk.worker()).lapses, lapse)
        desk.later(31)
        desk.do(reaping)

    same(desk.get("r").run.lapses, 3)


def a_run_that_ends_worker_after_worker_is_put_off(desk: Desk) -> None:
    desk.start(new_run("r"))
    pauses: list[int] = []
    for _ in range(7):
        worker = desk.worker()
        pauses.append(0)
        while not desk.claim(worker).runs:
            desk.later(1)
            pauses[-1] += 1
        desk.later(31)
        desk.do(reaping)

    same(pauses, [0, 0, 0, 0, 10, 60, 300])
    asked = desk.do(stopping("r", StopKind.TERMINATE))
    assert asked is not None
    same((asked.accepted, desk.claim_one(desk.worker()).lapses), (True, 7))


def a_run_that_was_put_off_is_handed_back_at_once(desk: Desk) -> None:
    desk.start(new_run("r"))
    for _ in range(4):
        desk.claim_one(desk.worker())
        desk.later(31)
        desk.do(reaping)
    desk.later(10)
    lease = desk.worker()
    same(desk.claim_one(lease).lapses, 4)

    desk.do(retiring(lease))

    same(desk.claim_one(desk.worker()).lapses, 4)


def a_worker_whose_lease_is_over_can_write_nothing(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.later(31)
    desk.do(reaping)
    before = desk.get("r")
    batch = Batch(starts=(new_run("new"),), records=((RunId("r"), step(0, "s")),), writes=(finished("r"),))

    desk.refused(flushing(lease, batch))
    desk.refused(asking_after(lease, batch))
    desk.refused(claiming(lease))
    desk.refused(renewing(lease))
    desk.refused(disowning(lease))
    desk.refused(giving_back(lease, "r"))
    desk.refused(retiring(lease))

    same(desk.get("r"), before)
    same(desk.do(reading("new", journal=False)), None)


def a_worker_of_another_epoch_can_write_nothing(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    stale = type(lease)(lease.worker, lease.epoch + 1)

    desk.refused(writing(stale, finished("r")))

    same(desk.get("r").run.status, Status.RUNNING)


def a_worker_that_never_registered_can_write_nothing(desk: Desk) -> None:
    lease = type(desk.worker())(WorkerId("nobody"), 1)

    desk.refused(flushing(lease, Batch(starts=(new_run("r"),))))

    same(desk.do(reading("r", journal=False)), None)


def the_next_owner_gets_the_journal_of_the_one_before(desk: Desk) -> None:
    dead = desk.worker()
    desk.begin("r", dead)
    desk.flush(dead, Batch(records=((RunId("r"), step(0, "s", "[1]")),)))
    desk.later(31)
    desk.do(reaping)

    claimed = desk.claim_one(desk.worker())

    same([(one.name, one.payload) for one in claimed.records or ()], [("s", "[1]")])


CASES = cases(
    registering_again_after_a_lost_answer_is_the_same_lease,
    a_renewal_tells_the_time_and_keeps_the_lease,
    a_late_renewal_counts_unless_the_lease_was_taken_over,
    a_renewal_tells_of_stop_requests_for_runs_of_this_worker,
    a_worker_that_retires_hands_its_runs_back_without_a_lapse,
    a_worker_hands_back_what_it_does_not_know_it_owns,
    a_worker_that_knows_all_its_runs_hands_none_back,
    a_worker_gives_back_those_of_its_runs_that_it_names,
    a_run_that_is_given_back_still_waits_for_its_signals,
    a_lease_that_is_over_is_reaped_and_its_runs_count_a_lapse,
    a_lease_counts_until_its_last_microsecond,
    reaping_twice_counts_one_lapse,
    lapses_add_up_until_something_is_recorded,
    a_run_that_ends_worker_after_worker_is_put_off,
    a_run_that_was_put_off_is_handed_back_at_once,
    a_worker_whose_lease_is_over_can_write_nothing,
    a_worker_of_another_epoch_can_write_nothing,
    a_worker_that_never_registered_can_write_nothing,
    the_next_owner_gets_the_journal_of_the_one_before,
)
