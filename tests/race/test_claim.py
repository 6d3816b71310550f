"""A run goes to one worker, whoever else touches it meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import Status, StopKind
from outlast.ports.store import Batch, ClaimRequest, Lease, NewSignal, RunFilter, Wait
from outlast.testing.contract.desk import finished, new_run, parked
from support.interleaving import Answer, Arena, Failed, MakeOp, arena_over

A, B = Lease(WorkerId("a"), 1), Lease(WorkerId("b"), 1)


def _claiming(lease: Lease, limit: int = 5, *, workflow: str = "work") -> MakeOp:
    return lambda store: store.claim(ClaimRequest(lease, limit, ((workflow, 1),), {}))


async def _timers_due(arena: Arena, *names: str) -> None:
    """Two workers, and sleeping runs whose time has come."""
    await _two_workers(arena)
    await arena.do(lambda store: store.flush(A, Batch(starts=tuple(new_run(name) for name in names))))
    parks = Batch(writes=tuple(parked(name, due_at=arena.clock.now() + 1) for name in names))
    await arena.do(lambda store: store.flush(A, parks))
    arena.clock.advance("1ms")


async def _two_workers(arena: Arena) -> None:
    for lease in (A, B):
        await arena.do(lambda store, lease=lease: store.register(lease.worker, lease_us=1_000_000, host=""))


async def test_two_claimers_never_get_one_run(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _two_workers(arena)
            await arena.do(lambda store: store.start([new_run(f"r{n}") for n in range(3)]))

        async def then(first: Answer, second: Answer) -> None:
            mine, theirs = ([run.id for run in claim.runs] for claim in (first, second))
            assert sorted(mine + theirs) == sorted(set(mine + theirs))
            owners = dict.fromkeys(mine, A.worker) | dict.fromkeys(theirs, B.worker)
            runs = await arena.do(lambda store: store.list(RunFilter()))
            assert {run.id: run.owner for run in runs if run.owner} == owners
            assert {run.turns for run in runs if run.owner} == {1}
            # Nobody leaves a run behind that neither has: whoever came first took what there was.
            assert len(mine + theirs) == 3

        await arena.every_interleaving(_claiming(A), _claiming(B), given=given, then=then)
        assert arena.schedules > 1


async def test_two_claimers_share_what_one_alone_could_not_take(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _two_workers(arena)
            await arena.do(lambda store: store.start([new_run(f"r{n}") for n in range(4)]))

        async def then(first: Answer, second: Answer) -> None:
            taken = {run.id for claim in (first, second) for run in claim.runs}
            assert len(taken) == len(first.runs) + len(second.runs) == 4

        await arena.every_interleaving(_claiming(A, 2), _claiming(B, 2), given=given, then=then)


@pytest.mark.time_limit(180)
async def test_two_claimers_that_find_the_same_timers_due_take_each_run_once(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _timers_due(arena, "r0", "r1")

        async def then(first: Answer, second: Answer) -> None:
            taken = [run.id for claim in (first, second) for run in claim.runs]
            assert sorted(taken) == sorted(set(taken))
            again = await arena.do(_claiming(A))
            assert sorted(taken + [run.id for run in again.runs]) == ["r0", "r1"]

        await arena.every_interleaving(
            _claiming(A), _claiming(B), given=given, then=then, most_switches=3, are_alike=True
        )
        assert arena.schedules > 1


@pytest.mark.two_databases  # nobody is told on the others: see below
async def test_a_claim_that_passed_a_timer_by_is_told_when_the_other_leaves_it(shared_database_url: str) -> None:
    """The other one works for another application. It makes ready whatever is due, and has the row locked meanwhile."""
    async with arena_over(shared_database_url) as arena:
        heard = asyncio.Event()
        await arena.database.listen(lambda what: heard.set() if what == "ready" else None)

        async def given() -> None:
            await _timers_due(arena, "r")
            heard.clear()

        async def then(mine: Answer, theirs: Answer) -> None:
            assert theirs.runs == ()
            if not mine.runs:
                await asyncio.wait_for(heard.wait(), 10)
                again = await arena.do(_claiming(A))
                assert [run.id for run in again.runs] == ["r"]

        await arena.every_interleaving(
            _claiming(A), _claiming(B, workflow="other work"), given=given, then=then, most_switches=3
        )
        assert arena.schedules > 1


@pytest.mark.two_databases  # nobody is told on the others: see below
async def test_a_claim_that_passed_timers_by_is_told_when_the_other_takes_only_one(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:
        heard = asyncio.Event()
        await arena.database.listen(lambda what: heard.set() if what == "ready" else None)

        async def given() -> None:
            await _timers_due(arena, "r0", "r1", "r2")
            heard.clear()

        async def then(mine: Answer, theirs: Answer) -> None:
            taken = [run.id for claim in (mine, theirs) for run in claim.runs]
            assert len(theirs.runs) <= 1
            if len(taken) < 3:
                await asyncio.wait_for(heard.wait(), 10)
                taken += [run.id for run in (await arena.do(_claiming(A))).runs]
            assert sorted(taken) == ["r0", "r1", "r2"]

        await arena.every_interleaving(_claiming(A), _claiming(B, 1), given=given, then=then, most_switches=3)
        assert arena.schedules > 1


@pytest.mark.parametrize("theirs", ["others' work", "a cancel"])
async def test_a_claim_that_passed_runs_by_says_so_where_nobody_tells(mysqlish_url: str, theirs: str) -> None:
    """So that its worker looks again soon. It was told in time of what was due, and then found it after a whole poll."""
    others: dict[str, MakeOp] = {
        "others' work": _claiming(B, workflow="other work"),
        "a cancel": lambda store: store.request_stop(RunId("r1"), StopKind.CANCEL, '{"type":"t"}'),
    }
    passed: list[bool] = []
    async with arena_over(mysqlish_url) as arena:

        async def given() -> None:
            await _timers_due(arena, "r0", "r1", "r2")

        async def then(mine: Answer, other: Answer) -> None:
            taken = [run.id for claim in (mine, other) for run in getattr(claim, "runs", ())]
            passed.append(mine.passed_by)
            assert mine.passed_by or sorted(taken) == ["r0", "r1", "r2"]
            again = await arena.do(_claiming(A))
            assert sorted(taken + [run.id for run in again.runs]) == ["r0", "r1", "r2"]
            # What somebody took is no reason to look on and on.
            assert not again.passed_by

        await arena.every_interleaving(_claiming(A), others[theirs], given=given, then=then, most_switches=2)
        assert set(passed) == {True, False}


async def test_a_claim_and_a_signal_wake_a_waiting_run_once(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _two_workers(arena)
            await arena.do(lambda store: store.flush(A, Batch(starts=(new_run("r"),))))
            park = Batch(writes=(parked("r", Wait("t", 0), due_at=arena.clock.now() + 1),))
            await arena.do(lambda store: store.flush(A, park))
            arena.clock.advance("1ms")

        async def then(claimed: Answer, sent: Answer) -> None:
            assert sent[0].created
            # A claim skips a run whose row the sender has locked; the sender's notice brings the next claim.
            (run,) = claimed.runs or (await arena.do(_claiming(B))).runs
            if not run.signals:
                # It was claimed before the signal was there; parking finds it.
                park = Batch(writes=(parked("r", Wait("t", 0)),))
                assert (await arena.do(lambda store: store.flush(B, park))).ready == ("r",)

        await arena.every_interleaving(
            _claiming(B),
            lambda store: store.send([NewSignal("t", "t", "1", "[1]")]),
            given=given,
            then=then,
        )


async def test_a_claim_and_a_stop_request_lose_no_request(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _two_workers(arena)
            await arena.do(lambda store: store.start([new_run("r")]))

        async def then(claimed: Answer, stopped: Answer) -> None:
            assert stopped.accepted
            # A claim skips a run whose row the request has locked; its notice brings the next claim.
            (run,) = claimed.runs or (await arena.do(_claiming(A))).runs
            if run.stop is None:
                # The turn began without it: the renewal tells it, and a park in between leaves the run claimable.
                renewal = await arena.do(lambda store: store.renew(A, lease_us=1_000_000))
                assert [run_id for run_id, _ in renewal.stops] == ["r"]
                park = Batch(writes=(parked("r", Wait("t", 0)),))
                assert (await arena.do(lambda store: store.flush(A, park))).ready == ("r",)
            else:
                park = Batch(writes=(parked("r", Wait("t", 0), status=Status.COMPENSATING),))
                assert (await arena.do(lambda store: store.flush(A, park))).ready == ()

        await arena.every_interleaving(
            _claiming(A),
            lambda store: store.request_stop(RunId("r"), StopKind.CANCEL, '{"type":"t"}'),
            given=given,
            then=then,
        )


async def test_a_claim_and_the_same_workers_retirement_leave_the_run_claimable(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _two_workers(arena)
            await arena.do(lambda store: store.start([new_run("r")]))

        async def then(claimed: Answer, given_back: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            assert (details.run.owner, details.run.lapses) == (None, 0)
            assert given_back == (0 if isinstance(claimed, Failed) else 1)

        await arena.every_interleaving(_claiming(A), lambda store: store.retire(A), given=given, then=then)


async def test_a_claim_and_a_flush_of_one_worker_do_not_disturb_each_other(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _two_workers(arena)
            await arena.do(lambda store: store.flush(A, Batch(starts=(new_run("mine"),))))
            await arena.do(lambda store: store.start([new_run("r")]))

        async def then(claimed: Answer, flushed: Answer) -> None:
            assert ([run.id for run in claimed.runs], flushed.lost) == (["r"], ())
            mine = await arena.do(lambda store: store.get(RunId("mine"), journal=False))
            assert mine.run.status == Status.COMPLETED

        await arena.every_interleaving(
            _claiming(A),
            lambda store: store.flush(A, Batch(writes=(finished("mine"),))),
            given=given,
            then=then,
        )
