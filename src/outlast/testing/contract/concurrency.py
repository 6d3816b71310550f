"""Several at once. These mean something on a database that lets several transactions run together."""

from __future__ import annotations

import itertools
from typing import Any

from outlast.model.run import Status, StopKind
from outlast.ports.store import Batch, NewSignal, Wait
from outlast.testing.contract.desk import SECOND, Desk, Verb, cases, finished, new_run, parked, same
from outlast.testing.contract.verbs import claiming, or_lost, reaping, sending, signalling, starting, stopping, writing


def every_run_goes_to_one_claimer(desk: Desk) -> None:
    desk.start(*(new_run(f"r{n:02}") for n in range(60)))
    leases = [desk.worker() for _ in range(5)]

    claimed: list[str] = []
    for _ in range(12):
        claims = desk.together([claiming(lease, limit=3) for lease in leases])
        claimed += [run.id for claim in claims for run in claim.runs]

    same(sorted(claimed), [f"r{n:02}" for n in range(60)])
    same({desk.get(run_id).run.turns for run_id in claimed}, {1})


def of_starts_with_one_id_one_creates(desk: Desk) -> None:
    for n in range(5):
        outcomes = desk.together([starting(new_run(f"r{n}", input=str(m))) for m in range(8)])

        flat = [one for (one,) in outcomes]
        same((sum(one.created for one in flat), len({one.input for one in flat})), (1, 1))


def starts_of_the_same_runs_in_other_orders_pass_each_other(desk: Desk) -> None:
    runs = [new_run(f"r{n}") for n in range(12)]
    outcomes = desk.together([starting(*runs), starting(*runs[::-1]), starting(*runs[6:], *runs[:6])])

    same(sorted(one.id for answer in outcomes for one in answer if one.created), sorted(run.id for run in runs))


def of_signals_with_one_id_one_is_stored(desk: Desk) -> None:
    outcomes = desk.together([signalling("t", "same", str(n)) for n in range(8)])

    flat = [one for (one,) in outcomes]
    same((sum(one.created for one in flat), len({one.id for one in flat})), (1, 1))


def no_signal_is_missed_by_a_run_that_parks_meanwhile(desk: Desk) -> None:
    lease = desk.worker()
    for n in range(15):
        names = [f"r{n}-{m}" for m in range(4)]
        desk.flush(lease, Batch(starts=tuple(new_run(name) for name in names)))
        verbs: list[Verb[Any]] = []
        for name in names:
            verbs += [writing(lease, parked(name, Wait(f"t\n{name}", 0))), signalling(f"t\n{name}", name)]
        desk.together(verbs)

        claimed = desk.claim(lease).runs
        same(sorted(run.id for run in claimed), names)
        same([len(run.signals) for run in claimed], [1] * 4)
        desk.flush(lease, Batch(writes=tuple(finished(name) for name in names)))


def no_stop_is_missed_by_a_run_that_parks_meanwhile(desk: Desk) -> None:
    lease = desk.worker()
    for n in range(15):
        name = f"r{n}"
        desk.flush(lease, Batch(starts=(new_run(name),)))
        verbs: list[Verb[Any]] = [writing(lease, parked(name, due_at=desk.now + SECOND)), stopping(name)]
        desk.together(verbs if n % 2 else verbs[::-1])

        claimed = desk.claim_one(lease)
        same((claimed.id, claimed.stop is not None), (name, True))
        desk.flush(lease, Batch(writes=(finished(name),)))


def of_two_stop_requests_one_is_accepted(desk: Desk) -> None:
    desk.start(*(new_run(f"r{n}") for n in range(5)))
    for n in range(5):
        outcomes = desk.together([stopping(f"r{n}", message=str(m)) for m in range(5)])

        accepted = [m for m, outcome in enumerate(outcomes) if outcome.accepted]
        stop = desk.get(f"r{n}").run.stop
        same((len(accepted), stop is not None and stop.failure.message), (1, str(accepted[0])))


def a_stop_and_an_end_leave_one_of_the_two(desk: Desk) -> None:
    lease = desk.worker()
    for n in range(10):
        desk.flush(lease, Batch(starts=(new_run(f"r{n}"),)))
        outcomes = desk.together([stopping(f"r{n}", StopKind.TERMINATE), writing(lease, finished(f"r{n}"))])

        run = desk.get(f"r{n}").run
        same((run.status, run.output, run.stop is not None), (Status.COMPLETED, "1", outcomes[0].accepted))


def the_end_of_a_lease_and_its_workers_flush_leave_one_of_the_two(desk: Desk) -> None:
    for n in range(10):
        lease = desk.worker()
        desk.flush(lease, Batch(starts=(new_run(f"r{n}"),)))
        desk.later(31)
        given, written = desk.together([reaping, or_lost(writing(lease, finished(f"r{n}")))])

        run = desk.get(f"r{n}").run
        if written == "written":
            same((run.status, run.lapses, given), (Status.COMPLETED, 0, 0))
            continue
        same((run.status, run.owner, run.lapses, given), (Status.RUNNING, None, 1, 1))
        next_worker = desk.worker()
        desk.claim_one(next_worker)
        desk.flush(next_worker, Batch(writes=(finished(f"r{n}"),)))


def several_reapers_count_one_lapse(desk: Desk) -> None:
    desk.begin("r", desk.worker())
    desk.later(31)

    same(sum(desk.together([reaping] * 5)), 1)
    same(desk.get("r").run.lapses, 1)


def signal_ids_grow_from_one_round_of_senders_to_the_next(desk: Desk) -> None:
    last = 0
    for n in range(10):
        outcomes = desk.together([signalling("t", f"{n}-{m}") for m in range(5)])
        ids = sorted(one.id for (one,) in outcomes)
        same((len(set(ids)), ids[0] > last), (5, True))
        last = ids[-1]


def senders_to_many_topics_pass_each_other(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(*(new_run(f"r{n}") for n in range(6)))
    desk.claim(lease)
    waits = tuple(Wait(f"t{n}", 0) for n in range(6))
    desk.flush(lease, Batch(writes=tuple(parked(f"r{n}", *waits) for n in range(6))))

    orders = list(itertools.permutations(range(6)))[::90]
    outcomes = desk.together(
        [sending(*(NewSignal(f"t{n}", f"t{n}", str(m), "null") for n in order)) for m, order in enumerate(orders)]
    )

    same(sum(one.created for answer in outcomes for one in answer), 48)
    same(len(desk.claim(lease).runs), 6)


CASES = cases(
    every_run_goes_to_one_claimer,
    of_starts_with_one_id_one_creates,
    starts_of_the_same_runs_in_other_orders_pass_each_other,
    of_signals_with_one_id_one_is_stored,
    no_signal_is_missed_by_a_run_that_parks_meanwhile,
    no_stop_is_missed_by_a_run_that_parks_meanwhile,
    of_two_stop_requests_one_is_accepted,
    a_stop_and_an_end_leave_one_of_the_two,
    the_end_of_a_lease_and_its_workers_flush_leave_one_of_the_two,
    several_reapers_count_one_lapse,
    signal_ids_grow_from_one_round_of_senders_to_the_next,
    senders_to_many_topics_pass_each_other,
)
