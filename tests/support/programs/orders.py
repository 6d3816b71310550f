"""An order: everything that a run can be in the middle of when its process dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from outlast import (
    CompensationContext,
    Context,
    Outlast,
    Retry,
    RunFailed,
    Signal,
    StepContext,
    WorkerOptions,
    Workflow,
    step,
    workflow,
)
from support.programs.dying import (
    die_at,
    die_before_statement,
    freeze_before_statement,
    keep_no_locks_for_long,
    point,
)
from support.programs.ledger import Effect, Ledger

Ending = Literal["delivered", "refused", "lost"]
"""What becomes of it: delivered; refused before the point of no return; lost by the carrier after that."""

STEPS = ("charge", "reserve", "label", "ship", "announce")
FLAWED = ("label", "$compensate:reserve", "$compensate:ship")
"""What raises at its first attempt."""


def points_of(ending: Ending) -> list[str]:
    """Every point that an order with this ending passes, at which its process can be told to die."""
    effects = (*called_in(ending), *(f"$compensate:{name}" for name in undone_in(ending)))
    points = [f"{name}:{where}" for name in effects for where in ("before", "after")]
    points += [f"{name}:raised" for name in effects if name in FLAWED]
    points += ["paid", "settled", "waiting", "approved"]
    return points if ending == "refused" else [*points, "committed", "shipped", "announced"]


def called_in(ending: Ending) -> tuple[str, ...]:
    """The steps of an order with this ending, in order."""
    return STEPS[:3] if ending == "refused" else STEPS


def undone_in(ending: Ending) -> tuple[str, ...]:
    """The steps that are undone, in the order of undoing."""
    return {"delivered": (), "refused": STEPS[2::-1], "lost": STEPS[:2:-1]}[ending]


def seen_by(name: str, ending: Ending) -> set[str]:
    """The steps and compensations whose end a step or compensation could have seen."""
    undone = [f"$compensate:{step}" for step in undone_in(ending)]
    if name in undone:
        return {*called_in(ending), *undone[: undone.index(name)]}
    # The first two are called together.
    return set() if name in STEPS[:2] else set(STEPS[: STEPS.index(name)])


approval = Signal("approval", bool)
_ledger: Ledger


@dataclass(frozen=True)
class Order:
    id: str
    ending: Ending


def affect(s: StepContext) -> None:
    """Do something to the outside world."""
    name = s.idempotency_key.removeprefix(f"{s.run_id}:")
    point(f"{name}:before")
    raises = name in FLAWED and s.attempt == 1
    _ledger.add(Effect(s.run_id, name, s.idempotency_key, s.attempt, done=not raises))
    point(f"{name}:after")
    if raises:
        point(f"{name}:raised")
        raise ConnectionError("no answer, this once")


QUICKLY = Retry(attempts=5, delay="10ms", factor=1)


@step(retry=QUICKLY)
async def charge(s: StepContext, order: Order) -> str:
    affect(s)
    return f"charge of {order.id}"


@charge.compensate
async def refund(s: CompensationContext, charged: str) -> None:
    affect(s)


@step(retry=QUICKLY)
def reserve(s: StepContext, order: Order) -> str:
    affect(s)
    return f"goods for {order.id}"


@reserve.compensate
def release(s: CompensationContext, reserved: str) -> None:
    affect(s)


@step(retry=QUICKLY)
async def label(s: StepContext, order: Order) -> str:
    affect(s)
    return f"label for {order.id}"


@label.compensate
async def void(s: CompensationContext, printed: str) -> None:
    affect(s)


@step(retry=QUICKLY)
async def ship(s: StepContext, order: Order) -> str:
    affect(s)
    return f"parcel of {order.id}"


@ship.compensate
async def recall(s: CompensationContext, shipped: str) -> None:
    affect(s)


@step(retry=QUICKLY)
def announce(s: StepContext, order: Order) -> str:
    affect(s)
    return f"word about {order.id}"


@announce.compensate
def apologize(s: CompensationContext, announced: str) -> None:
    affect(s)


async def _order(ctx: Context, order: Order) -> list[str]:
    charged, reserved = await asyncio.gather(charge(order), reserve(order))
    point("paid")
    await ctx.sleep("settle", "10ms")
    point("settled")
    printed = await label(order)
    point("waiting")
    approved = await ctx.wait_for("approval", ctx.signal(approval, key=order.id), timeout="5m")
    point("approved")
    if not approved:
        ctx.fail("refused")
    ctx.commit("sold")
    point("committed")
    shipped = await ship(order)
    point("shipped")
    announced = await announce(order)
    point("announced")
    if order.ending == "lost":
        ctx.fail("lost")
    return [charged, reserved, printed, shipped, announced]


@cache
def order_of(version: int) -> Workflow[Order, list[str]]:
    """The order in one of its versions, all alike: a process takes up those it has and leaves the others alone."""
    return workflow("order", version=version)(_order)


def app_for(database: str, versions: Iterable[int]) -> Outlast:
    """An app with these versions of the order. Nobody waits for a lease: it is ended by hand."""
    options = WorkerOptions(lease="5m", poll="30s")
    return Outlast(database, workflows=[order_of(version) for version in versions], worker=options)


async def begin(
    database: str, ledger: str, version: int, ending: Ending, *, die: str | None = None, die_before: int | None = None
) -> None:
    """Take an order of this version to its end, unless this process dies as it is told to."""
    die_at(die)
    if die_before is not None:
        die_before_statement(die_before)
    await finish(database, ledger, {str(version): ending})


async def freeze(database: str, ledger: str, version: int, ending: Ending, before: int) -> None:
    """Take an order of this version to its end, but freeze before the n-th statement."""
    keep_no_locks_for_long()
    freeze_before_statement(before)
    await finish(database, ledger, {str(version): ending})


async def finish(database: str, ledger: str, endings: dict[str, Ending]) -> None:
    """Take orders to their end, by version, as a process does that is started after others have died."""
    _use(ledger)
    async with app_for(database, map(int, endings)) as app:
        await asyncio.gather(*(fulfil(app, int(version), ending) for version, ending in endings.items()))


def id_of(version: int) -> str:
    return f"order-{version}"


async def fulfil(app: Outlast, version: int, ending: Ending) -> None:
    """Start an order, or find it; approve it when it waits for that; say what became of it."""
    name = id_of(version)
    run = await app.start(order_of(version), Order(name, ending), id=name, version=version)
    await _waits(app, name)
    await app.signal(approval, ending != "refused", key=name, id=f"approval of {name}")
    try:
        print(name, await run.result())
    except RunFailed as error:
        print(name, error.status, error.failure.message)


async def _waits(app: Outlast, id: str) -> None:
    """Return when the run waits for its signal, or does not any more."""
    while True:
        run = await app.get(id)
        assert run is not None
        if run.waiting_for or run.status in {"compensating", "completed", "failed"}:
            return
        await asyncio.sleep(0.01)


def _use(ledger: str) -> None:
    global _ledger  # noqa: PLW0603 -- the outside world, one for each process
    _ledger = Ledger(ledger)
