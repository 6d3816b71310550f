"""Values that came back as something else, or not at all, or only the first time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import UUID

import psycopg
import pytest

from outlast import Context, DatabaseUnavailable, Outlast, Signal, StepFailed, ValueNotStorable, step, workflow
from outlast.testing import ManualClock
from support.field_apps import forgetful, run_of
from support.stored_classes import Address, Charge, Colour, Currency, Level, Line, Order, Parcel, Ping, Point, Sku, Tree
from tools.postgres import PrivatePostgres

told = Signal("told", object)

BERLIN: Final = timezone(timedelta(hours=2))
CHARGE: Final = Charge(
    id=UUID(int=7),
    amount=Decimal("1.10"),
    at=datetime(2026, 3, 29, 1, 59, 59, 999_999, tzinfo=UTC),
    colour=Colour.BLUE,
    receipt=bytes(range(256)),
    tags=frozenset({"a"}),  # one: the order of several is not the same in each set
    pair=(1, "x"),
    where=Point(1),
    to=Address(street="Lane"),
)
RICH: Final[list[object]] = [
    datetime(2026, 1, 1, 12, tzinfo=BERLIN),
    datetime(2026, 1, 1, 12),  # noqa: DTZ001
    date(2026, 1, 1),
    timedelta(days=1, microseconds=1),
    Decimal("1.10"),
    UUID(int=1),
    bytes(range(256)),
    {1, 2, 3},
    frozenset({"a"}),
    (1, ("x", [2])),
    Colour.RED,
    Level.HIGH,
    Currency.EUR,
    Point(1, 2),
    PurePosixPath("/srv/x.txt"),
    Sku("s-1"),
    CHARGE,
    Order("o-1", [Line("a", 1.5)]),
    Parcel(3),
    Ping("here"),
    Tree("root", [Tree("leaf")]),
    {(1, 2): {3: Decimal(1)}},
    "",
    b"",
    None,
    2**70,
    10**400,
    -0.0,
]


def exactly(value: object) -> tuple[str, object]:
    return repr(value), type(value)


async def test_a_rich_value_is_the_same_on_the_first_run_and_on_every_replay(database_url: str) -> None:
    """As input, step result, signal and output, where no annotation says what it is."""
    seen: list[list[object]] = []

    @workflow("rich")
    async def rich(ctx: Context, values: list[object]) -> object:
        returned = await ctx.step("return", lambda s: values)
        payload = await ctx.wait_for("told", ctx.signal(told))
        seen.append([values, returned, payload])
        await ctx.sleep("pause", "1h")
        return payload

    clock = ManualClock()
    async with forgetful(database_url, rich, clock=clock) as app:
        run = await app.start(rich, RICH)
        await app.signal(told, RICH)
        await app.drain()
        clock.advance("1h")
        await app.drain()
        output = await run.result(timeout="0s")

    assert len(seen) == 2
    for values in (*seen[0], *seen[1], output):
        assert [exactly(value) for value in values] == [exactly(value) for value in RICH]  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]


@pytest.mark.parametrize(
    "value", [CHARGE, {"a": (Point(1), None)}, [Colour.RED]], ids=lambda value: type(value).__name__
)
async def test_a_rich_value_is_the_same_where_its_annotation_names_it(database_url: str, value: object) -> None:
    kinds: dict[type, Any] = {Charge: Charge, dict: dict[str, tuple[Point, int | None]], list: list[Colour]}
    kind = kinds[type(value)]
    seen: list[object] = []

    def give(s: object) -> object:
        return value

    async def code(ctx: Context, given: object) -> object:
        returned = await ctx.step("give", give)
        seen.extend([given, returned])
        await ctx.sleep("pause", "1h")
        return returned

    give.__annotations__ |= {"return": kind}
    code.__annotations__ |= {"given": kind, "return": kind}
    rich = workflow("rich")(code)

    clock = ManualClock()
    async with forgetful(database_url, rich, clock=clock) as app:
        run = await app.start(rich, value)
        await app.drain()
        clock.advance("1h")
        await app.drain()
        seen.append(await run.result(timeout="0s"))
        seen.append((await run_of(app, run.id)).input)

    assert [exactly(each) for each in seen] == [exactly(value)] * 6


@step
async def empty_text() -> str:
    return ""


@step
async def empty_bytes() -> bytes:
    return b""


@step
async def none() -> str | None:
    return None


@step
def no_return(number: int):
    number += 1


async def test_empty_and_missing_results_stay_apart(database_url: str) -> None:
    seen: list[list[object]] = []

    @workflow("empty")
    async def empty(ctx: Context) -> list[object]:
        seen.append([await empty_text(), await empty_bytes(), await none(), await no_return(1)])
        await ctx.sleep("pause", "1h")
        return seen[-1]

    clock = ManualClock()
    async with forgetful(database_url, empty, clock=clock) as app:
        run = await app.start(empty)
        await app.drain()
        clock.advance("1h")
        await app.drain()
        output = await run.result(timeout="0s")
        journal = (await run_of(app, run.id, journal=True)).journal

    assert [*seen, output] == [["", b"", None, None]] * 3
    payloads = {entry.name: entry.payload for entry in journal}
    assert (payloads["none"], payloads["no_return"]) == ("null", "null")


async def test_what_is_changed_later_was_not_so_when_it_was_recorded(database_url: str) -> None:
    shared: list[int] = [1]
    metadata = {"by": "ada"}
    passed: list[object] = []

    @step
    async def give() -> list[int]:
        return shared

    @step
    async def keep(values: list[int], metadata: dict[str, str]) -> list[int]:
        passed.append((list(values), dict(metadata)))
        values.append(99)
        metadata["by"] = "eve"
        return values

    @workflow("mutable")
    async def mutable(ctx: Context, given: list[int]) -> list[list[int]]:
        first = await give()
        shared.append(2)
        first.append(3)
        second = await keep.named("keep-1")(first, dict(metadata))
        given.append(4)
        third = await keep.named("keep-2")(second, dict(metadata))
        await ctx.sleep("pause", "1h")
        return [given, first, second, third]

    clock, given = ManualClock(), [0]
    async with forgetful(database_url, mutable, clock=clock) as app:
        run = await app.start(mutable, given)
        given.append(-1)
        await app.drain()
        clock.advance("1h")
        await app.drain()

        output = await run.result(timeout="0s")
        found = await run_of(app, run.id, journal=True)
    payloads = {entry.name: entry.payload for entry in found.journal}
    assert payloads["give"] == "[1]"
    assert payloads["keep-1"] == "[1,3,99]"
    assert payloads["keep-2"] == "[1,3,99,99]"
    assert passed == [([1, 3], {"by": "ada"}), ([1, 3, 99], {"by": "ada"})]
    assert found.input == [0]
    assert metadata == {"by": "ada"}
    # On replay no step runs, so nothing but the code itself changes its copies.
    assert output == [[0, 4], [1, 3], [1, 3, 99], [1, 3, 99, 99]]


NOT_NUMBERS: Final[dict[str, object]] = {
    "['m']": {"m": math.nan},
    "['p']": {"p": math.inf},
    "[0]": [-math.inf],
    "[0][0]['a'][0]['b']": [[{"a": [{"b": math.nan}]}]],
}


async def test_what_json_cannot_say_is_refused_with_its_place(database_url: str) -> None:
    """Where it is produced: by the caller, by the sender, by the step, by the code."""
    refused: list[str] = []

    @workflow("numbers")
    async def numbers(ctx: Context, place: object) -> object:
        value = NOT_NUMBERS[str(place)]
        try:
            ctx.set_status(value)
        except ValueNotStorable as error:
            refused.append(error.where)
        try:
            await ctx.step("return", lambda s: value, retry=5)
        except StepFailed as error:
            refused.append(f"{error.attempts}: {error.cause.message}")
        return value

    for place, value in NOT_NUMBERS.items():
        refused.clear()
        async with forgetful(database_url, numbers) as app:
            with pytest.raises(ValueNotStorable) as given:
                await app.start(numbers, value)
            with pytest.raises(ValueNotStorable) as sent:
                await app.signal(told, value)
            run = await app.start(numbers, place)
            await app.drain()
            failure = (await run_of(app, run.id)).failure

        assert [given.value.where, sent.value.where] == [
            f"input of workflow '{numbers.name}'{place}",
            f"payload of signal 'told'{place}",
        ]
        assert refused[0] == f"custom status{place}"
        assert refused[1].startswith(f"1: result of step 'return'{place} cannot be stored")
        assert failure is not None
        assert failure.message.startswith(f"output{place} cannot be stored")


async def test_a_decimal_that_is_no_number_is_itself(database_url: str) -> None:
    @workflow("echo")
    async def echo(ctx: Context, value: Decimal) -> Decimal:
        return await ctx.step("return", lambda s: value)

    async with forgetful(database_url, echo) as app:
        run = await app.start(echo, Decimal("NaN"))
        await app.drain()

        assert exactly(await run.result(timeout="0s")) == exactly(Decimal("NaN"))


# Databases with an encoding of their own.


@pytest.fixture
def make_database(postgres: PrivatePostgres, postgres_url: str) -> Callable[[str], str]:
    def make(encoding: str) -> str:
        name = f"{postgres_url.rpartition('/')[2]}_{encoding.lower()}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                f"create database {name} template template0 encoding '{encoding}' lc_collate 'C' lc_ctype 'C'".encode()
            )
        return postgres.url(name)

    return make


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_a_database_that_cannot_hold_every_text_is_refused_at_once(
    make_database: Callable[[str], str], encoding: str
) -> None:
    """Otherwise a step's result could not be written when its effect is done."""
    url = make_database(encoding)

    async def opened() -> None:
        async with Outlast(url):
            pass

    with pytest.raises(DatabaseUnavailable, match=encoding):
        asyncio.run(opened())
    app = Outlast(url)
    with pytest.raises(DatabaseUnavailable, match=encoding):
        app.blocking.list()
    app.blocking.close()


async def test_a_clients_encoding_that_somebody_set_does_not_matter(postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"alter database {name} set client_encoding = 'LATIN1'".encode())
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f467"

    @workflow("echo")
    async def echo(ctx: Context, value: str) -> str:
        return await ctx.step("return", lambda s: value)

    async with forgetful(postgres_url, echo) as app:
        await asyncio.to_thread(app.blocking.start, echo, family, id=family)
        await app.drain()

        assert await asyncio.to_thread(app.blocking.result, family, timeout="0s") == family
        assert (await run_of(app, family)).input == family
        await asyncio.to_thread(app.blocking.close)
