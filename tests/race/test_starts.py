"""One id, one run; one migration, one version."""

from __future__ import annotations

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import Status
from outlast.ports.store import Batch, Lease
from outlast.testing.contract.desk import new_run
from support.interleaving import Answer, Arena, arena_over

A = Lease(WorkerId("a"), 1)


async def _a_worker(arena: Arena) -> None:
    await arena.do(lambda store: store.register(A.worker, lease_us=1_000_000, host=""))


async def test_of_two_starts_of_one_id_one_creates_and_both_know_it(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(first: Answer, second: Answer) -> None:
            outcomes = (first[0], second[0])
            assert sorted(one.created for one in outcomes) == [False, True]
            created = "1" if first[0].created else "2"
            assert [one.input for one in outcomes] == [created, created]

        await arena.every_interleaving(
            lambda store: store.start([new_run("r", input="1")]),
            lambda store: store.start([new_run("r", input="2")]),
            given=lambda: _a_worker(arena),
            then=then,
        )
        assert arena.schedules > 1


async def test_starts_of_the_same_runs_in_other_orders_pass_each_other(shared_database_url: str) -> None:
    runs = [new_run(f"r{n}") for n in range(3)]
    async with arena_over(shared_database_url) as arena:

        async def then(first: Answer, second: Answer) -> None:
            created = [one.id for one in (*first, *second) if one.created]
            assert sorted(created) == ["r0", "r1", "r2"]

        await arena.every_interleaving(
            lambda store: store.start(runs),
            lambda store: store.start(runs[::-1]),
            given=lambda: _a_worker(arena),
            then=then,
        )


async def test_a_start_and_a_leased_start_of_one_id_make_one_run(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(started: Answer, flushed: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            if started[0].created:
                assert (flushed.started, details.run.status, details.run.owner) == ((), Status.PENDING, None)
            else:
                assert (flushed.started, details.run.owner) == (("r",), A.worker)

        await arena.every_interleaving(
            lambda store: store.start([new_run("r")]),
            lambda store: store.flush(A, Batch(starts=(new_run("r"),))),
            given=lambda: _a_worker(arena),
            then=then,
        )
