"""Sleeps: a deadline is fixed when the code first comes to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlast import (
    Context,
    InvalidArgument,
    Signal,
    workflow,
)
from outlast.engine.decision import Finished, Parked
from outlast.model.run import Status
from support.replaying import START, Rehearsal, ended

HOUR = 3_600_000_000


@dataclass
class Approval:
    by: str


approve = Signal("approve", Approval)
reject = Signal("reject", str)
number = Signal("number", int)
ping = Signal("ping")


def completed(output: str) -> Finished:
    return Finished(Status.COMPLETED, output, None)


@workflow("sleep")
async def sleep(ctx: Context, duration: Any) -> str:  # noqa: ANN401, RUF100
    await ctx.sleep("pause", duration)
    return "slept"


def test_a_sleep_keeps_the_deadline_it_was_given_first() -> None:
    run = Rehearsal(sleep, "1h")
    assert run.turn().state == Parked(Status.SUSPENDED, START + HOUR, ())
    assert run.log == ["pause open"]

    run.advance("59m")
    assert run.turn().parked().due_at == START + HOUR

    run.advance("1m")
    assert run.turn().finished() == completed('"slept"')
    assert run.log == ["pause open", "pause done"]


@pytest.mark.parametrize("duration", ["0s", "-5s", timedelta(0), timedelta(seconds=-5), timedelta.resolution * 0])
def test_no_time_or_less_is_journaled_and_returns_at_once(duration: str | timedelta) -> None:
    run = Rehearsal(sleep, duration)

    assert run.turn().finished() == completed('"slept"')
    assert run.log == ["pause open", "pause done"]


def test_a_nanosecond_in_text_is_a_microsecond() -> None:
    run = Rehearsal(sleep, "0.000001ms")
    assert run.turn().parked().due_at == START + 1


@pytest.mark.parametrize("duration", ["nan", "inf", "400 years", "36526d", timedelta.max, 5, "5", "1m 5x", None])
def test_absurd_durations_are_refused_before_anything_is_journaled(duration: object) -> None:
    run = Rehearsal(sleep, duration)
    end = run.end()

    assert isinstance(end, Finished)
    assert end.failure is not None
    assert (end.status, end.failure.type) == (Status.FAILED, "outlast.errors.InvalidDuration")
    assert run.names == ["$stop"]


def test_a_hundred_years_is_the_longest() -> None:
    assert Rehearsal(sleep, "36525d").turn().parked().due_at == START + 36525 * 24 * HOUR


@workflow("until")
async def until(ctx: Context, when: datetime) -> str:
    await ctx.sleep_until("pause", when)
    return "slept"


def test_sleeping_until_an_instant_in_any_zone() -> None:
    run = Rehearsal(until, datetime(2026, 1, 1, 2, tzinfo=UTC).astimezone())
    assert run.turn().parked().due_at == START + 2 * HOUR


def test_an_instant_that_has_passed_returns_at_once() -> None:
    run = Rehearsal(until, datetime(1999, 1, 1, tzinfo=UTC))
    assert run.turn().finished() == completed('"slept"')
    assert run.log == ["pause open", "pause done"]


@pytest.mark.parametrize(
    "when", [datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
)
def test_the_end_of_dates_is_kept_within_dates(when: datetime) -> None:
    due_at = Rehearsal(until, when).turn().parked().due_at
    assert due_at is not None
    assert datetime.fromtimestamp(due_at / 1e6, UTC).year == 9999


@pytest.mark.parametrize("when", [datetime(2026, 1, 1), "tomorrow", None])  # noqa: DTZ001 - what is refused
def test_a_datetime_that_names_no_instant_is_refused(when: Any) -> None:  # noqa: ANN401, RUF100
    @workflow("naive")
    async def naive(ctx: Context) -> str:
        errors = list[str]()
        for verb in (lambda: ctx.sleep_until("pause", when), lambda: ctx.first("race", ctx.timer(when))):
            try:
                await verb()
            except InvalidArgument as error:
                errors.append(type(error).__name__)
        return " ".join(errors)

    assert ended(naive) in ("InvalidArgument InvalidArgument", "InvalidArgument InvalidDuration")
