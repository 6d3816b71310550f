"""A step's end in a transaction of the application's: it proves what a flush proves, and commits with that transaction."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from outlast.errors import LeaseLost
from outlast.model.ids import RunId
from outlast.ports.store import Batch
from outlast.testing.contract.desk import ContractBroken, Desk, cases, kept, same, step
from outlast.testing.contract.verbs import asking_after, flushing, or_lost, reaping


def _where_given(script: Callable[[Desk], None]) -> Callable[[Desk], None]:
    """Make a case hold by itself where the database has no transactions to give."""

    def checked(desk: Desk) -> None:
        if desk.gives_transactions:
            script(desk)

    checked.__name__ = script.__name__
    return checked


def _batch(run_id: str, *, turns: int | None = None) -> Batch:
    return Batch(
        records=((RunId(run_id), step(0, "pay")),), writes=(replace(kept(run_id, progressed=True), turns=turns),)
    )


@_where_given
def what_a_step_writes_at_its_end_commits_with_its_transaction(desk: Desk) -> None:
    lease = desk.worker()
    claimed = desk.begin("r", lease)
    outcome = desk.joined(flushing(lease, _batch("r", turns=claimed.turns)))

    same((outcome.lost, [record.name for record in desk.get("r").journal]), ((), ["pay"]))
    same(desk.do(asking_after(lease, _batch("r"))), True)


@_where_given
def what_a_step_writes_at_its_end_is_gone_when_its_transaction_is_rolled_back(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.joined(flushing(lease, _batch("r")), commits=False)

    same(desk.get("r").journal, ())
    same(desk.do(asking_after(lease, _batch("r"))), False)


@_where_given
def a_step_whose_lease_is_over_cannot_end(desk: Desk) -> None:
    lease = desk.worker()
    desk.begin("r", lease)
    desk.later(31)
    desk.do(reaping)

    same(desk.joined(or_lost(flushing(lease, _batch("r"))), commits=False), "lost")
    try:
        desk.joined(flushing(lease, _batch("r")))
    except LeaseLost:
        same(desk.get("r").journal, ())
        return
    raise ContractBroken("a step ended, though its worker's lease is over")


@_where_given
def a_step_of_an_earlier_turn_writes_nothing(desk: Desk) -> None:
    lease = desk.worker()
    claimed = desk.begin("r", lease)
    desk.park(lease, "r", due_at=desk.now)
    desk.claim_one(lease)
    outcome = desk.joined(flushing(lease, _batch("r", turns=claimed.turns)))

    same((outcome.lost, desk.get("r").journal), ((RunId("r"),), ()))


CASES = cases(
    what_a_step_writes_at_its_end_commits_with_its_transaction,
    what_a_step_writes_at_its_end_is_gone_when_its_transaction_is_rolled_back,
    a_step_whose_lease_is_over_cannot_end,
    a_step_of_an_earlier_turn_writes_nothing,
)
