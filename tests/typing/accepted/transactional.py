"""Transactional steps keep the types of their functions, without the transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import assert_type

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from outlast import (
    BlockingContext,
    CompensationContext,
    Context,
    Outlast,
    Retry,
    StepContext,
    TransactionalStep,
    transactional_step,
    workflow,
)


@transactional_step
async def pay(session: AsyncSession, cents: int, to: str = "shop") -> str:
    return f"{cents} to {to}"


@pay.compensate
async def unpay(session: AsyncSession, c: CompensationContext, paid: str) -> None:
    assert_type(c.reason.message, str)


@transactional_step(retry=Retry(attempts=5), timeout="2s", name="book-seat")
def book(session: Session, s: StepContext, seat: int) -> list[int]:
    return [seat, s.attempt]


def unbook(session: Session, c: CompensationContext, seats: list[int]) -> None: ...


@transactional_step(compensate=unbook)
async def with_context(session: AsyncSession, s: StepContext) -> bytes:
    return b""


class Desk:
    @transactional_step
    async def sell(self, session: AsyncSession, cents: int) -> float:
        return cents / 100

    @transactional_step(retry=3)
    def count(self, db: sqlite3.Connection, s: StepContext, *, of: str) -> int:
        return len(of)

    @sell.compensate
    async def unsell(self, session: AsyncSession, c: CompensationContext, sold: float) -> None: ...


async def noted(session: AsyncSession) -> bool:
    return True


def plain(session: Session, s: StepContext) -> bytes:
    return s.idempotency_key.encode()


@workflow("trip")
async def trip(ctx: Context, cents: int) -> str:
    assert_type(await pay(cents), str)
    assert_type(await pay.named("again")(cents, to="museum"), str)
    assert_type(await book(12), list[int])
    assert_type(await with_context(), bytes)
    assert_type(await Desk().sell(5), float)
    assert_type(await Desk().count(of="seats"), int)
    assert_type(await ctx.transaction("noted", noted), bool)
    assert_type(await ctx.transaction("plain", plain, retry=False), bytes)
    assert_type(await ctx.transaction("lambda", lambda session: noted(session)), bool)
    assert_type(await ctx.transaction("two", lambda session, s: plain(session, s)), bytes)
    assert_type(await ctx.transaction("undone", plain, compensate=lambda session, c, result: result.decode()), bytes)
    return "done"


@workflow("plain")
def plain_trip(ctx: BlockingContext, cents: int) -> int:
    assert_type(ctx.do(pay(cents)), str)
    assert_type(ctx.transaction("plain", plain), bytes)
    return ctx.transaction("count", lambda session: 1, compensate=lambda session, c, result: result + 1)


async def in_a_test(session: AsyncSession, blocking: Session) -> None:
    assert_type(await pay.within(session, 5), str)
    assert_type(await book.within(blocking, 12), list[int])


assert_type(pay.name, str)
named: TransactionalStep[AsyncSession, [int], str]


@contextmanager
def transaction() -> Generator[sqlite3.Connection]:
    with sqlite3.connect("shop.db") as connection:
        yield connection


engine, async_engine = create_engine("sqlite:///shop.db"), create_async_engine("sqlite+aiosqlite:///shop.db")
apps = [
    Outlast(engine, workflows=[trip]),
    Outlast(async_engine, workflows=[trip], transactions=async_sessionmaker(async_engine)),
    Outlast(workflows=[trip], transactions=sessionmaker(engine).begin),
    Outlast(workflows=[trip], transactions=transaction),
]
