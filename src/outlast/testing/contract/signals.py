"""Sending signals: stored once, in order, to whom they concern."""

from __future__ import annotations

from outlast.model.ids import topic
from outlast.ports.store import NewSignal, SignalOutcome, Wait
from outlast.testing.contract.desk import SECOND, Desk, cases, new_run, same
from outlast.testing.contract.verbs import sending, signalling


def a_signal_wakes_the_runs_that_wait_for_its_topic(desk: Desk) -> None:
    lease = desk.worker()
    for run_id, waits in (("a", ["t"]), ("b", ["other", "t"]), ("c", ["other"]), ("d", [])):
        desk.begin(run_id, lease)
        desk.park(lease, run_id, *(Wait(name, 0) for name in waits), due_at=desk.now + SECOND)

    sent = _send(desk, "t", "1")

    same((sent.created, sent.woken, sent.topic), (True, 2, "t"))
    same(sorted(run.id for run in desk.claim(lease).runs), ["a", "b"])


def a_signal_that_nobody_waits_for_is_kept(desk: Desk) -> None:
    sent = _send(desk, "t", "1")
    same((sent.created, sent.woken), (True, 0))
    lease = desk.worker()
    desk.begin("r", lease)

    same(desk.park(lease, "r", Wait("t", sent.id - 1)).ready, ("r",))


def the_same_signal_id_stores_nothing_the_second_time(desk: Desk) -> None:
    first = _send(desk, "t", "1", payload="[1]")
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("t", first.id))

    again = _send(desk, "t", "1", payload="[2]")

    same(again, SignalOutcome(first.id, "t", created=False, woken=0))
    same(desk.claim(lease).runs, ())
    desk.later(1)
    desk.begin("s", lease)
    desk.park(lease, "s", Wait("t", 0))
    same([one.payload for one in desk.claim_one(lease).signals], ["[1]"])


def a_signal_id_counts_within_its_name(desk: Desk) -> None:
    first = desk.do(signalling("one", "1", "null"))[0]
    second = desk.do(signalling("two", "1", "null"))[0]

    same((first.created, second.created), (True, True))


def a_signal_id_used_with_another_key_tells_the_first(desk: Desk) -> None:
    first = desk.do(signalling(topic("s", "a"), "1"))[0]
    second = desk.do(signalling(topic("s", "b"), "1"))[0]

    same((second.id, second.topic, second.created), (first.id, topic("s", "a"), False))


def signals_of_one_call_get_ids_in_their_order(desk: Desk) -> None:
    _send(desk, "t", "3")
    outcomes = desk.do(sending(*(NewSignal("t", "t", str(n), f"[{n}]") for n in (5, 3, 9, 1, 5, 7))))

    same([one.created for one in outcomes], [True, False, True, True, False, True])
    created = [one.id for one in outcomes if one.created]
    same((created, outcomes[4].id), (sorted(created), outcomes[0].id))


def a_run_that_waits_for_two_signals_of_one_call_counts_for_the_first(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("a", 0), Wait("b", 0))

    outcomes = desk.do(sending(NewSignal("a", "a", "1", "1"), NewSignal("b", "b", "1", "2")))

    same([(one.created, one.woken) for one in outcomes], [(True, 1), (True, 0)])
    same([one.payload for one in desk.claim_one(lease).signals], ["1", "2"])


def keys_are_compared_exactly(desk: Desk) -> None:
    lease = desk.worker()
    keys = (None, "", " ", "a", "A", "a ", "á", "a\u0301", "ä", "ß", "ss", "%", "_", "'", "\\", "0", "00")
    desk.start(*(new_run(f"r{n:02}") for n in range(len(keys))))
    desk.claim(lease, limit=len(keys))
    for n, key in enumerate(keys):
        desk.park(lease, f"r{n:02}", Wait(topic("s", key), 0))

    for n, key in enumerate(keys):
        sent = desk.do(signalling(topic("s", key), str(n)))[0]
        same((key, sent.woken), (key, 1))
        same((key, desk.claim_one(lease).id), (key, f"r{n:02}"))


def ids_grow_with_every_signal(desk: Desk) -> None:
    ids = [_send(desk, f"t{n % 3}", str(n)).id for n in range(20)]

    same((ids, len(set(ids))), (sorted(ids), 20))


def a_run_that_is_awake_is_not_woken_again(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.park(lease, "r", Wait("t", 0))

    same([_send(desk, "t", str(n)).woken for n in range(2)], [1, 0])
    same([one.id for one in desk.claim_one(lease).signals].__len__(), 2)
    same(_send(desk, "t", "9").woken, 0)


def a_waiting_run_gets_a_long_line_of_signals_in_order(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.do(sending(*(NewSignal("t", "t", str(n), str(n)) for n in range(250))))

    taken: list[str] = []
    last = 0
    while len(taken) < 250:
        same(desk.park(lease, "r", Wait("t", last)).ready, ("r",))
        given = desk.claim_one(lease).signals
        taken += [one.payload for one in given]
        last = given[-1].id

    same(taken, [str(n) for n in range(250)])
    same(desk.park(lease, "r", Wait("t", last)).ready, ())


def nothing_is_sent_when_nothing_is_asked_for(desk: Desk) -> None:
    same(desk.do(sending()), ())


def _send(desk: Desk, name: str, dedupe_id: str, payload: str = "null") -> SignalOutcome:
    return desk.do(signalling(name, dedupe_id, payload))[0]


CASES = cases(
    a_signal_wakes_the_runs_that_wait_for_its_topic,
    a_signal_that_nobody_waits_for_is_kept,
    the_same_signal_id_stores_nothing_the_second_time,
    a_signal_id_counts_within_its_name,
    a_signal_id_used_with_another_key_tells_the_first,
    signals_of_one_call_get_ids_in_their_order,
    a_run_that_waits_for_two_signals_of_one_call_counts_for_the_first,
    keys_are_compared_exactly,
    ids_grow_with_every_signal,
    a_run_that_is_awake_is_not_woken_again,
    a_waiting_run_gets_a_long_line_of_signals_in_order,
    nothing_is_sent_when_nothing_is_asked_for,
)
