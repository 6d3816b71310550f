"""The database's time between two of its answers."""

from __future__ import annotations

import pytest

from outlast.worker import databasetime as module
from outlast.worker.databasetime import DatabaseTime


class Monotonic:
    """The process's clock, moved by the test. In microseconds."""

    def __init__(self) -> None:
        self.at = 1_000_000

    def __call__(self) -> int:
        return self.at * 1000


@pytest.fixture
def mono(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    clock = Monotonic()
    monkeypatch.setattr(module, "monotonic_ns", clock)
    return clock


def answered(time: DatabaseTime, mono: Monotonic, database_now: int, *, took: int = 100) -> None:
    time.observe(database_now, sent=mono.at - took, received=mono.at)


def test_it_goes_on_from_the_last_answer(mono: Monotonic) -> None:
    time = DatabaseTime(None)
    answered(time, mono, 50_000_000)
    assert time.now() == 50_000_000
    mono.at += 7
    assert time.now() == 50_000_007


def test_before_the_first_answer_nothing_is_due() -> None:
    assert DatabaseTime(None).now() == 0


def test_it_is_never_ahead_of_the_database(mono: Monotonic) -> None:
    """The answer was on its way for 40 ms: by the time it is here the database's clock shows more, never less."""
    time = DatabaseTime(None)
    answered(time, mono, 50_000_000, took=40_000)
    assert time.now() == 50_000_000


def test_a_slow_answer_does_not_set_it_back(mono: Monotonic) -> None:
    time = DatabaseTime(None)
    answered(time, mono, 50_000_000)
    mono.at += 5_000_000
    answered(time, mono, 50_000_500, took=5_000_000)
    assert time.now() == 55_000_000


def test_a_better_answer_sets_it_forward(mono: Monotonic) -> None:
    time = DatabaseTime(None)
    answered(time, mono, 50_000_000, took=40_000)
    answered(time, mono, 50_030_000, took=90_000)
    assert time.now() == 50_030_000


def test_it_does_not_go_back_when_a_quick_answer_is_a_little_lower(mono: Monotonic) -> None:
    time = DatabaseTime(None)
    answered(time, mono, 50_000_000)
    assert time.now() == 50_000_000
    answered(time, mono, 49_999_000)
    assert time.now() == 50_000_000
    mono.at += 2_000
    assert time.now() == 50_001_000


def test_it_follows_a_database_whose_clock_was_set_back(mono: Monotonic) -> None:
    time = DatabaseTime(None)
    answered(time, mono, 50_000_000_000)
    assert time.now() == 50_000_000_000
    answered(time, mono, 10_000_000_000)
    assert time.now() == 10_000_000_000


def test_waiting_is_told_in_seconds(mono: Monotonic) -> None:
    time = DatabaseTime(None)
    answered(time, mono, 50_000_000)
    assert time.seconds_until(51_500_000) == 1.5
    assert time.seconds_until(50_000_000) == 0
    assert time.seconds_until(1) == 0


def test_a_test_clock_stands_in_for_it_and_is_looked_at_often() -> None:
    class Clock:
        at = 10

        def now(self) -> int:
            return self.at

    time = DatabaseTime(Clock())
    time.observe(999_999, sent=0, received=1)
    assert time.is_manual
    assert time.now() == 10
    assert 0 < time.seconds_until(10**12) < 0.1
    Clock.at = 10**12
    assert time.seconds_until(10**12) == 0
