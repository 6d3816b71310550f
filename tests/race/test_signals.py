"""A signal is seen: by the look of a run that parks, or by the wake of its sender. Never by neither."""

from __future__ import annotations

import pytest

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import Status
from outlast.ports.store import Batch, ClaimRequest, Lease, NewSignal, RunWrite, Wait
from outlast.testing.contract.desk import finished, new_run, parked
from support.interleaving import Answer, Arena, Failed, MakeOp, arena_over

A = Lease(WorkerId("a"), 1)


async def _running(arena: Arena, *names: str) -> None:
    await arena.do(lambda store: store.register(A.worker, lease_us=1_000_000, host=""))
    await arena.do(lambda store: store.flush(A, Batch(starts=tuple(new_run(name) for name in names))))


def _sending(*topics: str, dedupe_id: str = "1") -> MakeOp:
    return lambda store: store.send([NewSignal(topic, topic, dedupe_id, "null") for topic in topics])


def _parking(*writes: RunWrite) -> MakeOp:
    return lambda store: store.flush(A, Batch(writes=writes))


async def _claimed(arena: Arena) -> dict[str, int]:
    claim = await arena.do(lambda store: store.claim(ClaimRequest(A, 9, (("work", 1),), {})))
    return {run.id: len(run.signals) for run in claim.runs}


@pytest.mark.parametrize("due_at", [None, 2**60], ids=["without a due time", "with a due time"])
async def test_a_signal_is_never_lost_on_a_run_that_parks(shared_database_url: str, due_at: int | None) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(parked_: Answer, sent: Answer) -> None:
            # One of the two saw the other, and only one.
            assert (len(parked_.ready), sent[0].woken) in ((1, 0), (0, 1))
            assert await _claimed(arena) == {"r": 1}

        await arena.every_interleaving(
            _parking(parked("r", Wait("other", 0), Wait("t", 0), due_at=due_at)),
            _sending("t"),
            given=lambda: _running(arena, "r"),
            then=then,
        )
        assert arena.schedules > 1


async def test_signals_of_two_topics_are_never_lost_on_runs_that_park_in_one_flush(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(parked_: Answer, sent: Answer) -> None:
            assert await _claimed(arena) == {"p": 1, "q": 2, "r": 1}
            assert len(parked_.ready) in (0, 3)
            assert [one.woken for one in sent] in ([0, 0], [2, 1])

        await arena.every_interleaving(
            _parking(parked("p", Wait("t", 0)), parked("q", Wait("t", 0), Wait("u", 0)), parked("r", Wait("u", 0))),
            _sending("u", "t"),
            given=lambda: _running(arena, "p", "q", "r"),
            then=then,
        )


async def test_two_runs_that_park_on_one_topic_do_not_wait_for_each_other(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(first: Answer, second: Answer) -> None:
            assert (first.lost, second.lost) == ((), ())
            assert (await arena.do(_sending("t")))[0].woken == 2

        await arena.every_interleaving(
            _parking(parked("p", Wait("t", 0))),
            _parking(parked("q", Wait("t", 0))),
            given=lambda: _running(arena, "p", "q"),
            then=then,
        )


async def test_two_senders_to_the_same_topics_in_other_orders_pass_each_other(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _running(arena, "p", "q")
            await arena.do(_parking(*(parked(name, Wait("t", 0), Wait("u", 0)) for name in ("p", "q"))))

        async def then(first: Answer, second: Answer) -> None:
            assert sorted(one.woken for one in (*first, *second)) == [0, 0, 0, 2]
            assert await _claimed(arena) == {"p": 4, "q": 4}

        await arena.every_interleaving(
            _sending("t", "u", dedupe_id="1"), _sending("u", "t", dedupe_id="2"), given=given, then=then
        )


async def test_two_senders_that_wake_the_same_runs_over_other_topics_pass_each_other(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _running(arena, "p", "q", "r")
            await arena.do(_parking(*(parked(name, Wait("t", 0), Wait("u", 0)) for name in ("p", "q", "r"))))

        async def then(first: Answer, second: Answer) -> None:
            assert sorted([first[0].woken, second[0].woken]) == [0, 3]
            assert await _claimed(arena) == {"p": 2, "q": 2, "r": 2}

        await arena.every_interleaving(_sending("t"), _sending("u"), given=given, then=then)


async def test_of_two_senders_with_one_signal_id_one_stores_it(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _running(arena, "r")
            await arena.do(_parking(parked("r", Wait("t", 0))))

        async def then(first: Answer, second: Answer) -> None:
            outcomes = (first[0], second[0])
            assert sorted((one.created, one.woken) for one in outcomes) == [(False, 0), (True, 1)]
            assert first[0].id == second[0].id
            assert await _claimed(arena) == {"r": 1}

        await arena.every_interleaving(_sending("t"), _sending("t"), given=given, then=then)


async def test_of_two_senders_with_one_signal_id_and_two_keys_one_stores_it(shared_database_url: str) -> None:
    """The two hold locks on different topics, so the unique index alone decides."""
    async with arena_over(shared_database_url) as arena:

        async def then(first: Answer, second: Answer) -> None:
            assert sorted([first[0].created, second[0].created]) == [False, True]
            assert (first[0].id, first[0].topic) == (second[0].id, second[0].topic)

        await arena.every_interleaving(
            lambda store: store.send([NewSignal("s", "s\na", "1", "null")]),
            lambda store: store.send([NewSignal("s", "s\nb", "1", "null")]),
            given=lambda: _running(arena, "r"),
            then=then,
        )


async def test_a_signal_for_a_run_that_ends_wakes_nothing_that_is_over(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _running(arena, "r")
            await arena.do(_parking(parked("r", Wait("t", 0), due_at=arena.clock.now())))
            await _claimed(arena)

        async def then(flushed: Answer, sent: Answer) -> None:
            if isinstance(flushed, Failed):
                # The flush has the run and wants its wait, the sender has the wait and wants its run. InnoDB ends such a
                # circle, and whoever did nothing is tried again. Held by tests/contract/test_fleet.py.
                assert "Deadlock found" in str(flushed.error)
                flushed = await arena.do(_parking(finished("r")))
            assert (flushed.lost, sent[0].woken) == ((), 0)
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            assert (details.run.status, details.run.due_at) == (Status.COMPLETED, None)
            assert await _claimed(arena) == {}

        await arena.every_interleaving(_parking(finished("r")), _sending("t"), given=given, then=then)
