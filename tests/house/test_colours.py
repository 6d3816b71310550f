"""The same verbs with the same signatures, whether they are awaited or block."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from outlast.app import Outlast
from outlast.client.blocking import BlockingClient
from outlast.client.client import Client
from outlast.client.handle import BlockingHandle, Handle

VERBS = {"start", "start_many", "start_and_wait", "signal", "cancel", "terminate", "result", "get", "list"}
OWN = {"close", "migrate"}
"""Each colour opens and closes connections of its own."""


def public(kind: type[object]) -> set[str]:
    return {name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(name, one.kind, one.default) for name, one in inspect.signature(function).parameters.items()]


def test_the_blocking_verbs_are_those_of_the_app() -> None:
    assert public(BlockingClient) == VERBS | OWN
    assert public(Outlast) >= VERBS | OWN
    assert public(Client) >= VERBS


@pytest.mark.parametrize("verb", sorted(VERBS | OWN))
def test_a_verb_has_the_same_signature_in_both_colours(verb: str) -> None:
    awaited, blocking = getattr(Outlast, verb), getattr(BlockingClient, verb)

    assert parameters(awaited) == parameters(blocking)
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_app_passes_a_verb_on_as_it_is(verb: str) -> None:
    assert parameters(getattr(Outlast, verb)) == parameters(getattr(Client, verb))


def test_handles_of_both_colours_are_alike() -> None:
    assert public(Handle) == public(BlockingHandle)
    awaited, blocking = vars(Handle)["result"], vars(BlockingHandle)["result"]
    assert parameters(awaited) == parameters(blocking)
