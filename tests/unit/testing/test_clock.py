from datetime import UTC, datetime, timedelta, timezone

import pytest

from outlast.errors import InvalidArgument, InvalidDuration
from outlast.model.times import to_instant
from outlast.testing.clock import ManualClock


def test_it_starts_in_2026_and_stands_still() -> None:
    clock = ManualClock()

    assert clock.time == datetime(2026, 1, 1, tzinfo=UTC)
    assert clock.now() == clock.now() == to_instant(datetime(2026, 1, 1, tzinfo=UTC), what="start")


def test_it_starts_at_the_instant_it_is_given() -> None:
    berlin = timezone(timedelta(hours=2))

    assert ManualClock(datetime(2030, 6, 1, 12, tzinfo=berlin)).time == datetime(2030, 6, 1, 10, tzinfo=UTC)


def test_advancing_moves_it_exactly_and_returns_the_new_time() -> None:
    clock = ManualClock()

    reached = clock.advance("1d2h")
    clock.advance(timedelta(microseconds=1))

    assert reached == datetime(2026, 1, 2, 2, tzinfo=UTC)
    assert clock.time == datetime(2026, 1, 2, 2, 0, 0, 1, tzinfo=UTC)


def test_it_can_be_set_to_a_later_time_or_to_the_same() -> None:
    clock = ManualClock()
    target = datetime(2027, 1, 1, tzinfo=UTC)

    clock.set(target)

    assert clock.set(target) == clock.time == target


def test_it_never_goes_back() -> None:
    clock = ManualClock()

    with pytest.raises(InvalidArgument, match="never goes back"):
        clock.set(datetime(2025, 12, 31, tzinfo=UTC))
    with pytest.raises(InvalidDuration, match="negative"):
        clock.advance(timedelta(seconds=-1))

    assert clock.time == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="aware"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 -- the mistake that is refused
    with pytest.raises(InvalidArgument, match="aware"):
        ManualClock().set(datetime(2027, 1, 1))  # noqa: DTZ001
