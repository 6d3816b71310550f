"""How many runs are claimed before there are slots for them."""

from __future__ import annotations

import pytest

from outlast.worker.turnover import Turnover


def with_left(*times: float, concurrency: int = 100) -> Turnover:
    turnover = Turnover(concurrency)
    for at in times:
        turnover.left(at)
    return turnover


def test_nothing_is_claimed_ahead_where_nobody_leaves() -> None:
    assert Turnover(100).ahead(0.0) == 0
    assert Turnover(100).ahead(1e9) == 0


def test_half_of_what_left_just_now_will_leave_while_a_claim_is_under_way() -> None:
    assert with_left(*[5.0] * 60).ahead(5.0) == 30


def test_a_moment_later_it_counts_for_a_third_and_a_tenth_of_a_second_later_for_nothing() -> None:
    turnover = with_left(*[5.0] * 60)
    assert [turnover.ahead(5.0 + later) for later in (0.01, 0.02, 0.04, 0.1)] == [18, 11, 4, 0]


def test_what_leaves_again_and_again_adds_up() -> None:
    assert with_left(*[5.0 + number * 0.001 for number in range(200)]).ahead(5.2) == 9


@pytest.mark.parametrize("concurrency, most", [(16, 16), (100, 100), (15, 0), (1, 0)])
def test_no_more_are_claimed_ahead_than_there_are_slots_and_none_where_these_are_few(
    concurrency: int, most: int
) -> None:
    assert with_left(*[5.0] * 1000, concurrency=concurrency).ahead(5.0) == most


def test_after_runs_waited_in_vain_none_is_claimed_ahead_for_ten_seconds() -> None:
    turnover = with_left(*[5.0] * 60)
    turnover.disappointed(5.0)
    for _ in range(60):
        turnover.left(14.99)
    assert turnover.ahead(14.99) == 0
    for _ in range(60):
        turnover.left(15.0)
    assert turnover.ahead(15.0) > 0
