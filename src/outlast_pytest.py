"""The pytest plugin `outlast`: an app over SQLite in memory, on a clock that the test moves.

pytest imports the plugins of everything that is installed, in every project. So this module stands beside the package, which
it imports when a test asks for one of the fixtures, and not before. Held by tests/integration/test_pytest_plugin.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from outlast import Outlast
    from outlast.testing import ManualClock

T = TypeVar("T")

_HOW = "pytest.mark.outlast(workflows=[...])"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "outlast(workflows=[...]): what the fixture outlast_app can start and execute.")


@pytest.fixture
def manual_clock() -> ManualClock:
    """The clock of `outlast_app`. It stands at the start of 2026 until the test moves it: `manual_clock.advance("3d")`."""
    from outlast.testing import ManualClock  # noqa: PLC0415 -- see the module's docstring

    return ManualClock()


@pytest.fixture
def outlast_workflows(request: pytest.FixtureRequest) -> Sequence[object]:
    """The workflows of `outlast_app`: those of the marker. Override it to give a whole folder of tests the same ones."""
    marker = request.node.get_closest_marker("outlast")
    if marker is None:
        return ()
    if marker.args or set(marker.kwargs) != {"workflows"}:
        raise pytest.UsageError(f"The marker takes one argument by its name: {_HOW}.")
    workflows: Sequence[object] = marker.kwargs["workflows"]
    return workflows


@pytest.fixture
def outlast_options() -> Mapping[str, Any]:
    """What `outlast_app` is made with beside the workflows and the clock: none. Override it where steps need transactions
    of the application's, such as `{"database": engine, "transactions": async_sessionmaker(engine)}`, or a `retry`."""
    return {}


@pytest.fixture
def outlast_app(
    outlast_workflows: Sequence[object], manual_clock: ManualClock, outlast_options: Mapping[str, Any]
) -> Iterator[Outlast]:
    """An Outlast over a database in memory of its own, without a worker: `await outlast_app.drain()` runs what is due.

    For tests of both colours: `async def` under any plugin that gives them an asyncio loop, such as pytest-asyncio or anyio,
    and plain ones, which use `outlast_app.blocking` and `outlast_drain`.
    """
    from outlast import Outlast  # noqa: PLC0415 -- see the module's docstring

    usual: dict[str, Any] = {
        "database": "sqlite://", "workflows": outlast_workflows, "worker": False, "clock": manual_clock,
    }  # fmt: skip
    app = Outlast(**{**usual, **outlast_options})
    yield app
    _run(app.close)


@pytest.fixture
def outlast_drain(outlast_app: Outlast) -> Callable[[], int]:
    """`outlast_app.drain()` for plain tests: call it to run what is due; it returns how many turns were begun."""
    from outlast import WrongColour  # noqa: PLC0415 -- see the module's docstring

    def drain() -> int:
        if _has_loop():
            raise WrongColour("drain", called="outlast_drain()")
        return _run(outlast_app.drain)

    return drain


def _run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end: here, or on a thread where a loop runs already.

    The runner gets its loop from a factory, and so leaves alone which loop the tests around it find current.
    """

    def run() -> T:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(make())

    if _has_loop():
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(run).result()
    return run()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
