"""What an application puts around its plain steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast import Context, InvalidArgument, Outlast, RunFailed, WorkerOptions, step, workflow

said: list[str] = []


@step(retry=False)
def divide(by: int) -> float:
    said.append("called")
    return 1 / by


@step
async def greet() -> str:
    said.append("awaited")
    return "hello"


@workflow("divide")
async def dividing(ctx: Context, by: int) -> float:
    await greet()
    return await divide(by)


def around(call: Callable[[], object]) -> object:
    said.append("before")
    try:
        return call()
    finally:
        said.append("after")


async def test_plain_steps_are_called_through_it_and_awaited_ones_are_not() -> None:
    said.clear()
    async with Outlast("sqlite://", workflows=[dividing], worker=WorkerOptions(around_steps=around)) as app:
        assert await app.start_and_wait(dividing, 2, wait="10s") == 0.5

    assert said == ["awaited", "before", "called", "after"]


async def test_an_error_of_the_step_passes_through_it() -> None:
    async with Outlast("sqlite://", workflows=[dividing], worker=WorkerOptions(around_steps=around)) as app:
        with pytest.raises(RunFailed, match="division by zero"):
            await app.start_and_wait(dividing, 0, wait="10s")


async def test_an_error_of_its_own_is_the_steps() -> None:
    def breaks(call: Callable[[], object]) -> object:
        raise LookupError("no connection to be had")

    async with Outlast("sqlite://", workflows=[dividing], worker=WorkerOptions(around_steps=breaks)) as app:
        with pytest.raises(RunFailed, match="no connection to be had"):
            await app.start_and_wait(dividing, 2, wait="10s")


def test_what_is_no_function_is_refused() -> None:
    wrong: object = "close_old_connections"
    with pytest.raises(InvalidArgument, match="around_steps"):
        WorkerOptions(around_steps=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  the test's point
