"""What the types of transactional steps must refuse."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from outlast import CompensationContext, Context, StepContext, transactional_step, workflow


@transactional_step
async def pay(session: AsyncSession, cents: int) -> str:
    return str(cents)


@pay.compensate  # refused: what undoes it takes a str
async def unpay(session: AsyncSession, c: CompensationContext, paid: bytes) -> None: ...


@transactional_step(attempts=3)  # refused: no such option
async def attempts(session: AsyncSession) -> None: ...


@transactional_step
def book(session: Session, s: StepContext, seat: int) -> int:
    return seat


def undo(session: Session, c: CompensationContext, seat: str) -> None: ...


async def noted(session: AsyncSession) -> int:
    return 1


@workflow("trip")
async def trip(ctx: Context, cents: int) -> None:
    await pay("5")  # refused: cents are a number
    await pay(5, 6)  # refused: the session is not passed
    number: int = await pay(5)  # refused: it returns a str
    await book("12a")  # refused: a seat is a number
    text: str = await ctx.transaction("noted", noted)  # refused: it returns a number
    await ctx.transaction("undone", noted, compensate=undo)  # refused: what undoes it takes a number
    print(number, text)


async def in_a_test(session: AsyncSession, blocking: Session) -> None:
    await pay.within(blocking, 5)  # refused: another kind of session
    await pay.within(session, "5")  # refused: cents are a number
