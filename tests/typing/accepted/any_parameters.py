"""A step whose parameter takes anything is called like its function: that parameter is no context."""

from __future__ import annotations

from typing import Any, TypeVar, assert_type

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from outlast import CompensationContext, Context, StepContext, step, transactional_step, workflow

T = TypeVar("T")


@step
async def of_object(it: object) -> int:
    return 1


@step
async def of_any(it: Any, number: int = 3) -> int:
    return number


@step
async def of_anything(it: Any = None) -> Any:
    return it


@step
async def of_all(*them: object) -> int:
    return len(them)


@step
async def of_options(**them: object) -> int:
    return len(them)


@step
async def of_kind(it: T) -> T:
    return it


@step
async def second(number: int, it: Any = None) -> str:
    return str(it)


@step
async def second_object(number: int, it: object) -> str:
    return str(it)


@step
async def after_context(s: StepContext, it: object, number: int = 0) -> str:
    return str(it)


@step
def plain(it: object) -> int:
    return 1


@step
def plain_second(number: int, *them: object) -> int:
    return number


@step(retry=3)
async def with_options(it: object) -> int:
    return 1


@step(retry=3)
def plain_with_options(it: Any) -> int:
    return 1


class Shop:
    @step
    async def keep(self, it: object) -> int:
        return 1

    @step(retry=2)
    async def keep_two(self, number: int, it: object = None) -> int:
        return number

    @step
    def put(self, *them: object) -> int:
        return len(them)

    @step
    async def note(self, it: Any) -> int:
        return 1

    @step(retry=2)
    def note_two(self, number: int, it: Any = None) -> int:
        return number

    @step
    async def note_all(self, s: StepContext, *them: Any) -> Any:
        return them

    @note.compensate
    async def forget(self, s: CompensationContext, noted: int) -> None: ...

    @staticmethod
    @step
    async def close(it: object) -> int:
        return 1


@transactional_step
async def save(session: AsyncSession, it: object) -> int:
    return 1


@transactional_step(retry=2)
def save_plain(session: Session, it: Any = None) -> int:
    return 1


class Desk:
    @transactional_step
    async def save(self, session: AsyncSession, it: object) -> int:
        return 1

    @transactional_step
    async def note(self, session: AsyncSession, it: Any) -> int:
        return 1

    @transactional_step(retry=2)
    def note_two(self, session: Session, number: int, it: Any = None) -> int:
        return number

    @note.compensate
    async def forget(self, session: AsyncSession, s: CompensationContext, noted: int) -> None: ...


@workflow("any")
async def takes_anything(ctx: Context, it: object) -> None:
    assert_type(await of_object(it), int)
    assert_type(await of_object(it=it), int)
    number: int = await of_any("x", 3)
    number = await of_any("x", number=number)
    assert_type(await of_anything(), Any)
    assert_type(await of_all(1, "x"), int)
    assert_type(await of_options(a=1, b="x"), int)
    assert_type(await of_kind(1), Any)
    word: str = await second(1)
    word = await second(1, it) + word
    word = await second(1, it=word)
    assert_type(await second_object(1, it), str)
    assert_type(await after_context(it), str)
    assert_type(await after_context(it=it, number=1), str)
    assert_type(await plain(it), int)
    assert_type(await plain_second(1, 2, "x"), int)
    assert_type(await with_options(it), int)
    number = await plain_with_options(it)
    shop = Shop()
    assert_type(await shop.keep(it), int)
    assert_type(await shop.keep.named("again")(it), int)
    assert_type(await shop.keep_two(1), int)
    assert_type(await shop.keep_two(number, it), int)
    assert_type(await shop.put(1, it), int)
    number = await shop.note(it)
    number = await shop.note.named("again")(it=number) + number
    number = await shop.note_two(1)
    number = await shop.note_two(number, it=it)
    assert_type(await shop.note_all(it, number), Any)
    assert_type(await Shop.close(it), int)
    assert_type(await save(it), int)
    number = await save_plain()
    number = await save_plain(it) + number
    assert_type(await Desk().save(it), int)
    number = await Desk().note(it)
    number = await Desk().note_two(number, it) + number


async def in_a_test(session: AsyncSession) -> None:
    assert_type(await save.within(session, 5), int)
