"""Whom an event is told to."""

from __future__ import annotations

from typing import Any, cast

import pytest

from outlast.errors import DefinitionError
from outlast.events.handlers import Handlers


class Placed: ...


class Urgent(Placed): ...


def test_handlers_are_found_by_type_in_the_order_in_which_they_were_added() -> None:
    handlers = Handlers()
    added: list[Any] = [handlers.on(kind)(lambda event: None) for kind in (Urgent, Placed, Urgent, str)]

    assert handlers.of(Urgent) == added[:3]
    assert handlers.of(Placed) == [added[1]]
    assert handlers.of(int) == []


def test_a_handler_stays_what_it_is() -> None:
    def told(event: Placed) -> int:
        return 7

    assert Handlers().on(Placed)(told) is told


def test_a_handler_that_is_awaited_is_refused_where_nobody_awaits() -> None:
    handlers = Handlers()

    @handlers.on(Urgent)
    def told(event: Urgent) -> None: ...

    assert handlers.of_blocking(Urgent) == [told]

    @handlers.on(Placed)
    async def awaited(event: Placed) -> None: ...

    assert handlers.of(Urgent) == [told, awaited]
    with pytest.raises(DefinitionError, match="awaited of Urgent is awaited, which a blocking publish cannot do"):
        handlers.of_blocking(Urgent)
    assert handlers.of_blocking(str) == []


def test_what_is_no_type_and_what_is_no_function_are_refused() -> None:
    with pytest.raises(DefinitionError, match="an event's type"):
        Handlers().on(cast("Any", "order.placed"))
    with pytest.raises(DefinitionError, match="is a function"):
        Handlers().on(Placed)(cast("Any", "handler"))
