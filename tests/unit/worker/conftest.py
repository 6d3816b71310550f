"""Both kinds of turns: of code that has the loop, and of code that has a thread."""

from __future__ import annotations

import pytest

from support.turn_desk import Desk


@pytest.fixture(params=["on the loop", "on a thread"])
def each_kind_of_turn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the code is at rest, what a turn does is the same for both."""
    monkeypatch.setattr(Desk, "is_plain", request.param == "on a thread")
