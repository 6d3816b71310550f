"""What a mismatch tells of the code: the line that asked, or the error that it raised instead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from outlast import Context, Failure, workflow
from outlast.model.origins import in_one_line
from support.replaying import Rehearsal


@workflow("order")
async def order(ctx: Context) -> None:
    await ctx.step("charge", lambda s: "ok-1")
    await ctx.sleep("pause", "1h")


def held(code: Callable[[Context], Awaitable[None]]) -> Failure:
    """Why the recorded run of `order` is held when its code has been changed to this."""

    @workflow("order")
    async def changed(ctx: Context) -> None:
        await code(ctx)

    run = Rehearsal(order)
    run.end()
    return run.replaced(changed).turn().held().failure


def line_of(ending: str) -> str:
    """Return the place of the first line of this file that ends so."""
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(number for number, line in enumerate(lines, 1) if line.endswith(ending))}"


async def broken(ctx: Context) -> None:
    await ctx.step("charge", lambda s: "ok-1")
    raise KeyError("new bug")


def test_what_new_code_raised_before_all_that_is_recorded_is_told_with_its_line() -> None:
    """A bug in newly deployed code was told as `the end of the workflow`, and its error nowhere."""
    failure = held(broken)

    place = line_of('raise KeyError("new bug")')
    assert f"is sleep 'pause', but the code raised KeyError: 'new bug' ({place}). " in failure.message
    assert "mend what it raised, or restore the old code" in failure.message
    assert [str(reason) for reason in failure.inner] == ["KeyError: 'new bug'"]
    assert in_one_line(failure).count("new bug") == 1


async def asks_at_once(ctx: Context) -> None:
    ctx.commit("charge")


async def asks_for_a_step(ctx: Context) -> None:
    await ctx.step("refund", lambda s: "refunded")


async def asks_in_a_task(ctx: Context) -> None:
    await asyncio.gather(ctx.sleep("charge", "1h"))


async def asks_for_nothing(ctx: Context) -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    "code, line",
    [
        (asks_at_once, 'ctx.commit("charge")'),
        (asks_for_a_step, 'await ctx.step("refund", lambda s: "refunded")'),
        (asks_in_a_task, 'await asyncio.gather(ctx.sleep("charge", "1h"))'),
        (asks_for_nothing, "await asyncio.get_running_loop().create_future()"),
    ],
)
def test_a_mismatch_names_the_line_that_asked(code: Callable[[Context], Awaitable[None]], line: str) -> None:
    failure = held(code)

    place = line_of(line)
    assert f"({place}). " in failure.message
    assert in_one_line(failure).count(place) == 1
