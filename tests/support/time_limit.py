"""No test hangs: one that takes longer than 60 s fails where it stands. `@pytest.mark.time_limit(300)` allows more."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator

import pytest

DEFAULT = 60.0
# An `async` test is stopped first by its own loop, which shows where it was waiting.
GRACE = 5.0


def limit_of(item: pytest.Item) -> float:
    marker = item.get_closest_marker("time_limit")
    return float(marker.args[0]) if marker else DEFAULT


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    if threading.current_thread() is not threading.main_thread():
        return (yield)
    limit = limit_of(item)

    def fail(*_: object) -> None:
        raise TimeoutError(f"the test took longer than {limit:g} s")

    former = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, limit + GRACE)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
