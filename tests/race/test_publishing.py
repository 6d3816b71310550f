"""One event, one run and one signal, whoever else publishes it; and nobody waits in a circle."""

from __future__ import annotations

from outlast.model.ids import RunId, WorkerId
from outlast.ports.store import Batch, ClaimRequest, Lease, Wait
from outlast.testing.contract.desk import new_run, parked
from support.interleaving import Answer, Arena, arena_over
from support.programs.publishing import OrderDelivered, OrderPlaced, fulfil
from support.publications import publishing

A = Lease(WorkerId("a"), 1)


async def _a_worker(arena: Arena) -> None:
    await arena.do(lambda store: store.register(A.worker, lease_us=1_000_000, host=""))


async def test_of_two_that_publish_the_same_events_one_does_it_and_both_know(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(first: Answer, second: Answer) -> None:
            created = [[one.created for one in (*runs, *receipts)] for runs, receipts in (first, second)]
            assert sorted(created) == [[False] * 3, [True] * 3]

        await arena.every_interleaving(
            publishing(OrderPlaced("7"), OrderDelivered("7", "p-1")),
            publishing(OrderPlaced("7"), OrderDelivered("7", "p-1")),
            given=lambda: _a_worker(arena),
            then=then,
        )
        assert arena.schedules > 1


async def test_events_that_are_published_in_other_orders_pass_each_other(shared_database_url: str) -> None:
    """Were the signals sent one by one, each would hold the line that the other wants next."""
    events = (OrderDelivered("7", "p-1"), OrderDelivered("8", "p-2"), OrderDelivered("9", "p-3"))
    async with arena_over(shared_database_url) as arena:

        async def then(first: Answer, second: Answer) -> None:
            for runs, receipts in (first, second):
                assert runs == ()
                assert len(receipts) == 3

        await arena.every_interleaving(
            publishing(*events), publishing(*events[::-1]), given=lambda: _a_worker(arena), then=then
        )
        assert arena.schedules > 1


async def test_a_run_that_parks_while_its_event_is_published_sees_the_signal(shared_database_url: str) -> None:
    topic = "delivered\n7"

    async def given(arena: Arena) -> None:
        await _a_worker(arena)
        await arena.do(lambda store: store.flush(A, Batch(starts=(new_run("r"),))))

    async with arena_over(shared_database_url) as arena:

        async def then(parked_: Answer, published: Answer) -> None:
            runs, receipts = published
            assert [run.created for run in runs] == [True]
            assert (len(parked_.ready), receipts[0].woken) in ((1, 0), (0, 1))
            claim = await arena.do(lambda store: store.claim(ClaimRequest(A, 9, (("work", 1),), {})))
            assert {run.id: len(run.signals) for run in claim.runs} == {RunId("r"): 1}

        await arena.every_interleaving(
            lambda store: store.flush(A, Batch(writes=(parked("r", Wait(topic, 0)),))),
            publishing(OrderPlaced("8"), OrderDelivered("7", "p-1"), workflows=(fulfil,)),
            given=lambda: given(arena),
            then=then,
        )
        assert arena.schedules > 1
