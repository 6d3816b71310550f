"""Times for people to read."""

from __future__ import annotations

from typing import Any

from outlast.model.times import shown_time


def test_a_time_is_shown_to_the_second_in_utc() -> None:
    assert shown_time(1_780_000_000_999_999) == "2026-05-28 20:26:40 UTC"


def test_a_time_that_no_datetime_holds_is_shown_all_the_same() -> None:
    assert shown_time(400_000_000_000_000_000) == "a time that cannot be shown, 400000000000000000"
    damaged: Any = "soon"
    assert shown_time(damaged) == "a time that cannot be shown, 'soon'"
