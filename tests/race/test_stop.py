"""A stop request is noticed, and the first one is the one that counts."""

from __future__ import annotations

import pytest

from outlast.model.ids import RunId, WorkerId
from outlast.model.run import Status, StopKind
from outlast.ports.store import Batch, ClaimRequest, Lease, NewSignal, RunWrite, StopOutcome, Wait
from outlast.testing.contract.desk import finished, new_run, parked
from outlast.testing.contract.verbs import reaping
from support.interleaving import Answer, Arena, MakeOp, arena_over

A = Lease(WorkerId("a"), 1)


async def _running(arena: Arena) -> None:
    await arena.do(lambda store: store.register(A.worker, lease_us=1_000_000, host=""))
    await arena.do(lambda store: store.flush(A, Batch(starts=(new_run("r"),))))


def _stopping(kind: StopKind = StopKind.CANCEL, reason: str = "t") -> MakeOp:
    return lambda store: store.request_stop(RunId("r"), kind, f'{{"type":"{reason}"}}')


@pytest.mark.parametrize(
    "write",
    [parked("r", Wait("t", 0)), parked("r", due_at=2**60), parked("r", Wait("t", 0), due_at=2**60)],
    ids=["on a signal", "on a time", "on both"],
)
async def test_a_stop_is_never_lost_on_a_run_that_parks(shared_database_url: str, write: RunWrite) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(flushed: Answer, stopped: Answer) -> None:
            assert (flushed.lost, stopped.accepted) == ((), True)
            claim = await arena.do(lambda store: store.claim(ClaimRequest(A, 9, (("work", 1),), {})))
            assert [(run.id, run.stop is not None) for run in claim.runs] == [("r", True)]

        await arena.every_interleaving(
            lambda store: store.flush(A, Batch(writes=(write,))),
            _stopping(),
            given=lambda: _running(arena),
            then=then,
        )
        assert arena.schedules > 1


async def test_a_stop_and_an_end_agree(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(flushed: Answer, stopped: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            assert (details.run.status, flushed.lost) == (Status.COMPLETED, ())
            assert stopped.accepted == (details.run.stop is not None)
            if not stopped.accepted:
                assert stopped == StopOutcome(Status.COMPLETED, accepted=False)

        await arena.every_interleaving(
            lambda store: store.flush(A, Batch(writes=(finished("r"),))),
            _stopping(StopKind.TERMINATE),
            given=lambda: _running(arena),
            then=then,
        )


async def test_of_two_cancels_the_first_counts(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(first: Answer, second: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            assert sorted([first.accepted, second.accepted]) == [False, True]
            assert details.run.stop.failure.type == ("first" if first.accepted else "second")

        await arena.every_interleaving(
            _stopping(reason="first"), _stopping(reason="second"), given=lambda: _running(arena), then=then
        )


async def test_a_terminate_counts_whether_a_cancel_came_before_or_not(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def then(cancelled: Answer, terminated: Answer) -> None:
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            assert terminated.accepted
            assert cancelled.status == Status.RUNNING
            assert details.run.stop.kind == StopKind.TERMINATE

        await arena.every_interleaving(
            _stopping(), _stopping(StopKind.TERMINATE), given=lambda: _running(arena), then=then
        )


async def test_a_stop_and_a_signal_both_reach_a_parked_run(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await _running(arena)
            await arena.do(lambda store: store.flush(A, Batch(writes=(parked("r", Wait("t", 0)),))))

        async def then(stopped: Answer, sent: Answer) -> None:
            assert (stopped.accepted, sent[0].created) == (True, True)
            claim = await arena.do(lambda store: store.claim(ClaimRequest(A, 9, (("work", 1),), {})))
            assert [(run.stop is not None, len(run.signals)) for run in claim.runs] == [(True, 1)]

        await arena.every_interleaving(
            _stopping(), lambda store: store.send([NewSignal("t", "t", "1", "null")]), given=given, then=then
        )


async def test_a_stop_and_the_end_of_a_lease_both_happen(shared_database_url: str) -> None:
    async with arena_over(shared_database_url) as arena:

        async def given() -> None:
            await arena.do(lambda store: store.register(A.worker, lease_us=0, host=""))
            await arena.do(lambda store: store.flush(A, Batch(starts=(new_run("r"),))))

        async def then(stopped: Answer, reaped: Answer) -> None:
            # A run whose row the request has locked is left for the next look.
            again = await arena.do(reaping)
            details = await arena.do(lambda store: store.get(RunId("r"), journal=False))
            assert (stopped.accepted, reaped + again, details.run.lapses) == (True, 1, 1)
            assert (details.run.owner, details.run.stop is not None) == (None, True)

        await arena.every_interleaving(_stopping(), reaping, given=given, then=then)
