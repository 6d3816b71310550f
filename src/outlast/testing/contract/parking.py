"""Parking: what a parked run waits for, and what makes it claimable at once."""

from __future__ import annotations

from outlast.model.run import Status, StopKind
from outlast.ports.store import Batch, Lease, Wait
from outlast.testing.contract.desk import SECOND, Desk, cases, finished, new_run, parked, same
from outlast.testing.contract.verbs import retrying_held, signalling, stopping


def a_parked_run_has_no_worker(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    outcome = desk.park(lease, "r", due_at=desk.now + SECOND)

    run = desk.get("r").run
    same((run.status, run.owner, run.due_at, outcome.ready), (Status.SUSPENDED, None, desk.now + SECOND, ()))


def a_run_parked_until_a_time_that_has_passed_is_claimable_at_once(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)

    same(desk.park(lease, "r", due_at=desk.now - SECOND).ready, ("r",))
    same(desk.claim_one(lease).id, "r")


def a_signal_that_is_there_already_makes_the_run_claimable(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    _send(desk, "t", "[1]")

    same(desk.park(lease, "r", Wait("other", 0), Wait("t", 0), due_at=desk.now + SECOND).ready, ("r",))
    claimed = desk.claim_one(lease)
    same([one.payload for one in claimed.signals], ["[1]"])


def a_signal_that_was_taken_before_does_not_count(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    taken = _send(desk, "t", "[1]")

    same(desk.park(lease, "r", Wait("t", taken)).ready, ())
    same(desk.claim(lease).runs, ())
    _send(desk, "t", "[2]")
    same([one.payload for one in desk.claim_one(lease).signals], ["[2]"])


def a_signal_of_another_topic_does_not_count(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    for topic in ("t\nkey", "t\n", "T", "t "):
        _send(desk, topic)

    same(desk.park(lease, "r", Wait("t", 0)).ready, ())


def a_signal_recorded_late_under_a_lower_id_counts(desk: Desk) -> None:
    lease = desk.worker()
    low = _send(desk, "t", "[1]")
    desk.begin("r", lease)

    same(desk.park(lease, "r", Wait("t", low, after_at=desk.now)).ready, ())
    desk.clock.advance("1ms")
    _send(desk, "t", "[2]")
    claimed = desk.claim_one(lease)
    same([one.payload for one in claimed.signals], ["[2]"])
    # By its time alone: as if the cursor had been read after this signal's id was drawn and before it was recorded.
    same(desk.park(lease, "r", Wait("t", low + 1, after_at=desk.now - 1)).ready, ("r",))


def a_claim_names_the_topics_that_it_read_signals_for(desk: Desk) -> None:
    """A run that is taken back in the middle of a turn may wait for more than that."""
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("a", 0), Wait("b", 0), Wait("b", 7), due_at=desk.now)
    _send(desk, "b")
    claimed = desk.claim_one(lease)
    same((claimed.topics, claimed.read_at), (frozenset({"a", "b"}), desk.now))

    desk.do(lambda store: store.retire(lease))
    other = desk.worker("other")
    same(desk.claim_one(other).topics, frozenset({"a", "b"}))
    desk.park(other, "r", due_at=desk.now)
    same(desk.claim_one(other).topics, frozenset[str]())


def waits_are_replaced_by_the_next_park(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    for topics in (("a", "b", "c"), ("b",), ("d", "a"), ()):
        desk.park(lease, "r", *(Wait(topic, 0) for topic in topics), due_at=desk.now + SECOND)
        same(desk.get("r").waiting_for, topics)
        desk.later(1)
        desk.claim_one(lease)


def waits_of_before_wake_nobody(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("old", 0), due_at=desk.now)
    desk.claim_one(lease)
    desk.park(lease, "r", Wait("new", 0))

    sent = desk.do(signalling("old", "1", "null"))
    same((sent[0].woken, desk.claim(lease).runs), (0, ()))


def waits_go_when_the_run_ends(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("t", 0), due_at=desk.now)
    desk.claim_one(lease)
    desk.flush(lease, Batch(writes=(finished("r"),)))

    sent = desk.do(signalling("t", "1", "null"))
    same((sent[0].woken, desk.get("r").run.status, desk.get("r").waiting_for), (0, Status.COMPLETED, ()))


def one_topic_twice_in_one_park_is_one_signal(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("t", 0), Wait("t", 0))

    sent = desk.do(signalling("t", "1", "null"))
    same((sent[0].woken, len(desk.claim_one(lease).signals)), (1, 1))


def a_stop_that_came_during_the_turn_makes_the_run_claimable(desk: Desk) -> None:
    lease = desk.worker()
    for kind in (StopKind.CANCEL, StopKind.TERMINATE):
        desk.begin(kind.value, lease)
        desk.do(stopping(kind.value, kind))

        outcome = desk.park(lease, kind.value, Wait("t", 0), due_at=desk.now + SECOND)

        same(outcome.ready, (kind.value,))
        same(desk.claim_one(lease).id, kind.value)


def a_stop_that_the_turn_began_with_makes_nothing_claimable(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(new_run("r"))
    desk.do(stopping("r", StopKind.CANCEL))
    desk.claim_one(lease)

    # A compensation that is tried again later, or a run that is held: to wake it at once would be to spin.
    waiting = parked("r", due_at=desk.now + SECOND, status=Status.COMPENSATING)
    same(desk.flush(lease, Batch(writes=(waiting,))).ready, ())
    same((desk.claim(lease).runs, desk.get("r").run.due_at), ((), desk.now + SECOND))


def several_runs_park_in_one_flush_each_with_its_own(desk: Desk) -> None:
    lease = desk.worker()
    desk.start(*(new_run(f"r{n}") for n in range(5)))
    desk.claim(lease)
    _send(desk, "there")
    writes = (
        parked("r0", Wait("there", 0)),
        parked("r1", Wait("not there", 0)),
        parked("r2", due_at=desk.now + SECOND),
        parked("r3", due_at=desk.now),
        finished("r4"),
    )

    same(sorted(desk.flush(lease, Batch(writes=writes)).ready), ["r0", "r3"])
    same(sorted(run.id for run in desk.claim(lease).runs), ["r0", "r3"])


def a_held_run_is_tried_again_when_somebody_asks_for_it(desk: Desk) -> None:
    lease = _hold(desk, "r")
    desk.begin("sleeps", lease)
    desk.park(lease, "sleeps", due_at=desk.now + SECOND)
    desk.later(0.5)

    same(desk.do(retrying_held(("work", 1), before=desk.now)), 1)

    same([run.id for run in desk.claim(lease).runs], ["r"])


def a_held_run_is_left_to_who_has_its_workflow(desk: Desk) -> None:
    lease = _hold(desk, "r")
    desk.later(0.5)

    same(desk.do(retrying_held(("work", 2), ("other", 1), before=desk.now)), 0)
    same(desk.do(retrying_held(before=desk.now)), 0)
    same(desk.claim(lease).runs, ())


def a_held_run_that_was_just_tried_is_left_alone(desk: Desk) -> None:
    lease = _hold(desk, "r")
    asked_since = desk.now
    desk.later(0.5)

    same(desk.do(retrying_held(("work", 1), before=asked_since)), 0)
    same(desk.do(retrying_held(("work", 1), before=desk.now, within=SECOND)), 0)
    same(desk.claim(lease).runs, ())


def no_more_held_runs_are_tried_than_were_asked_for_and_none_twice(desk: Desk) -> None:
    lease = _hold(desk, "a", "b", "c")
    desk.later(0.5)

    same(desk.do(retrying_held(("work", 1), before=desk.now, limit=2)), 2)
    same(desk.do(retrying_held(("work", 1), before=desk.now, limit=2)), 1)
    same(desk.do(retrying_held(("work", 1), before=desk.now, limit=2)), 0)
    same([run.id for run in desk.claim(lease).runs], ["a", "b", "c"])


def _hold(desk: Desk, *run_ids: str) -> Lease:
    lease = desk.worker()
    for run_id in run_ids:
        desk.begin(run_id, lease)
        held = parked(run_id, due_at=desk.now + 30 * SECOND, held='{"type":"mismatch"}')
        desk.flush(lease, Batch(writes=(held,)))
    return lease


def _send(desk: Desk, topic: str, payload: str = "null") -> int:
    (sent,) = desk.do(signalling(topic, f"{topic}-{payload}", payload))
    same(sent.created, True)
    return sent.id


CASES = cases(
    a_parked_run_has_no_worker,
    a_run_parked_until_a_time_that_has_passed_is_claimable_at_once,
    a_signal_that_is_there_already_makes_the_run_claimable,
    a_signal_that_was_taken_before_does_not_count,
    a_signal_of_another_topic_does_not_count,
    a_signal_recorded_late_under_a_lower_id_counts,
    a_claim_names_the_topics_that_it_read_signals_for,
    waits_are_replaced_by_the_next_park,
    waits_of_before_wake_nobody,
    waits_go_when_the_run_ends,
    one_topic_twice_in_one_park_is_one_signal,
    a_stop_that_came_during_the_turn_makes_the_run_claimable,
    a_stop_that_the_turn_began_with_makes_nothing_claimable,
    several_runs_park_in_one_flush_each_with_its_own,
    a_held_run_is_tried_again_when_somebody_asks_for_it,
    a_held_run_is_left_to_who_has_its_workflow,
    a_held_run_that_was_just_tried_is_left_alone,
    no_more_held_runs_are_tried_than_were_asked_for_and_none_twice,
)
