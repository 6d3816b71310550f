"""Processes that are killed or frozen in the middle of an order, wherever that is; another one takes it to its end."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest

from outlast import Outlast
from support.crashing import KILLED, Shop, most_calls, stride_on
from support.nursery import Nursery
from support.probing import until
from support.programs import orders
from support.programs.orders import Ending

AT_ONCE = 3
"""Orders that are begun side by side: each spends much of its time waiting."""
FROZEN_AT_ONCE = 24
"""Processes that stand still together, with the connections that they have."""


@pytest.fixture
def shop(nursery: Nursery, shared_database_url: str, tmp_path: Path) -> Shop:
    return Shop(nursery, shared_database_url, tmp_path)


@pytest.mark.time_limit(120)
def test_an_order_survives_a_kill_at_any_point_of_it(shop: Shop) -> None:
    cases = [(ending, point) for ending in get_args(Ending) for point in orders.points_of(ending)]
    endings = {version: ending for version, (ending, _) in enumerate(cases, 1)}

    codes = _side_by_side(lambda version, case: shop.begin(version, case[0], die=case[1]), enumerate(cases, 1))

    assert {case for case, code in zip(cases, codes, strict=True) if code != KILLED} == set()
    shop.finish_and_check(endings)


@pytest.mark.every_database
@pytest.mark.time_limit(180)
def test_an_order_survives_a_kill_before_any_statement(shop: Shop) -> None:
    stride = stride_on(shop.url)

    def begin(number: int) -> int:
        return shop.begin(number, "lost", before=number * stride)

    codes: list[int] = []
    while not codes or KILLED in codes[-AT_ONCE:]:
        codes += _side_by_side(begin, ((number,) for number in range(len(codes) + 1, len(codes) + 1 + AT_ONCE)))

    # Making the tables, registering, starting, claiming, recording, parking three times: it cannot be fewer.
    assert codes.count(KILLED) > 25 // stride
    shop.finish_and_check(dict.fromkeys(range(1, len(codes) + 1), "lost"))


def _side_by_side(call: Callable[..., int], arguments: Iterable[tuple[Any, ...]]) -> list[int]:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda each: call(*each), arguments))


@pytest.mark.every_database
@pytest.mark.time_limit(180)
def test_a_process_frozen_before_any_statement_writes_nothing_when_it_thaws(shop: Shop) -> None:
    """Its lease has run out and its orders were taken to their end meanwhile. It goes on with the very next statement, in
    the belief that everything is as it was."""
    with contextlib.closing(Outlast(shop.url).blocking) as client:
        client.migrate()
    version, frozen, stride = 1, FROZEN_AT_ONCE, stride_on(shop.url)
    while frozen == FROZEN_AT_ONCE:
        endings: dict[int, Ending] = dict.fromkeys(range(version, version + FROZEN_AT_ONCE), "lost")
        children = [shop.freeze(number, ending, before=number * stride) for number, ending in endings.items()]
        for child in children:
            until(lambda it=child: it.has_ended or "freezes" in it.output, "the process to freeze or to end")
        frozen = sum("freezes" in child.output for child in children)
        shop.finish_and_check(endings)
        journal = shop.tables("select * from {journal} order by run_id, seq")
        runs = _runs(shop)

        for child in children:
            child.resume()

        assert [child.wait() for child in children] == [0] * FROZEN_AT_ONCE, "\n".join(c.output for c in children)
        assert shop.tables("select * from {journal} order by run_id, seq") == journal
        assert _runs(shop) == runs
        done = Counter((effect.key, effect.step) for effect in shop.ledger.effects())
        assert {key for (key, step), count in done.items() if count > most_calls(step)} == set()
        version += FROZEN_AT_ONCE


def _runs(shop: Shop) -> list[tuple[Any, ...]]:
    rows = shop.tables("select * from {runs} order by id")
    # On MySQL and MariaDB the last column turns over when a start finds its id taken, and means nothing.
    return rows if shop.url.startswith(("sqlite", "postgres")) else [row[:-1] for row in rows]
