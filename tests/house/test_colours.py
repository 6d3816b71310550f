"""The same verbs with the same signatures, whether they are awaited or block."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from outlast.app import Outlast
from outlast.client.blocking import BlockingClient
from outlast.client.client import Client
from outlast.client.handle import BlockingHandle, BlockingKnownRun, Handle, KnownRun

VERBS = {"start", "start_many", "start_and_wait", "signal", "publish", "cancel", "terminate", "result", "get", "list"}
OWN = {"close", "migrate", "schema_version", "migration_statements"}
"""Each colour opens and closes connections of its own."""
OPENING = {"open"}
"""What `async with app` does is `with app.blocking` there, which has this name too."""
NAMING = {"handle"}
"""What asks the database nothing, and so has no colour but in what it returns."""


def public(kind: type[object]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(name, one.kind, one.default) for name, one in inspect.signature(function).parameters.items()]


def test_the_blocking_verbs_are_those_of_the_app() -> None:
    assert public(BlockingClient) == VERBS | OWN | NAMING | OPENING
    assert public(Outlast) >= VERBS | OWN | NAMING
    assert public(Client) >= VERBS | NAMING


@pytest.mark.parametrize("verb", sorted(VERBS | OWN))
def test_a_verb_has_the_same_signature_in_both_colours(verb: str) -> None:
    awaited, blocking = getattr(Outlast, verb), getattr(BlockingClient, verb)

    assert parameters(awaited) == parameters(blocking)
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize("name", sorted(NAMING))
def test_what_asks_nothing_has_the_same_signature_in_both_colours(name: str) -> None:
    awaited, blocking = getattr(Outlast, name), getattr(BlockingClient, name)

    assert parameters(awaited) == parameters(blocking)
    assert not inspect.iscoroutinefunction(awaited)


@pytest.mark.parametrize("verb", sorted(VERBS | NAMING))
def test_the_app_passes_a_verb_on_as_it_is(verb: str) -> None:
    assert parameters(getattr(Outlast, verb)) == parameters(getattr(Client, verb))


@pytest.mark.parametrize("awaiting, blocks", [(Handle, BlockingHandle), (KnownRun, BlockingKnownRun)])
def test_handles_of_both_colours_are_alike(awaiting: type[object], blocks: type[object]) -> None:
    assert public(awaiting) == public(blocks)
    awaited, blocking = vars(awaiting)["result"], vars(blocks)["result"]
    assert parameters(awaited) == parameters(blocking)
