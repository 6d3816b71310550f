"""What the verbs accept, as types: for the signatures that type checkers see."""

from __future__ import annotations

from typing import TypedDict

from outlast.model.durations import Duration


class StartOptions(TypedDict, total=False):
    """How a run is started, apart from its workflow, its input, its id and the transaction."""

    timeout: Duration | None
    priority: int
    version: int | None


class OneStart(StartOptions, total=False):
    """The options of `start`."""

    id: str | None
    tx: object


class AwaitedStart(StartOptions, total=False):
    """The options of `start_and_wait`: the run must have started before anyone can wait for it, so no transaction."""

    id: str | None
    wait: Duration | None
