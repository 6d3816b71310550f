"""Who is told of an event once what it does to workflows is written; and what is said when it does nothing."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass

import pytest

from outlast import Context, DefinitionError, InvalidArgument, Outlast, starts_on, workflow
from support.colours import Ask, ask_blocking, opened, written
from support.programs.publishing import OrderDelivered, OrderPlaced, make_app


@dataclass(frozen=True)
class Broken:
    order: str


class Unmade(Exception):
    """What an application's own function raises."""


async def test_handlers_are_called_in_order_once_everything_is_written(database_url: str, ask: Ask) -> None:
    told: list[str] = []
    async with opened(make_app(database_url)) as app:

        @app.on(object)
        def any_event(event: object) -> None:
            told.append(f"any {type(event).__name__}")

        @app.on(OrderPlaced)
        def placed(event: OrderPlaced) -> None:
            told.append(f"placed {event.order}")

        await ask(app, "publish", OrderPlaced("7"), OrderDelivered("7", "p-1"))

        assert told == ["any OrderPlaced", "placed 7", "any OrderDelivered"]


async def test_a_handler_sees_what_was_written_and_may_be_awaited(database_url: str) -> None:
    seen: list[object] = []
    async with opened(make_app(database_url)) as app:

        @app.on(OrderPlaced)
        async def look(event: OrderPlaced) -> None:
            seen.append(await app.get(f"order-{event.order}"))

        await app.publish(OrderPlaced("7"))

        assert [run is not None for run in seen] == [True]


async def test_the_first_error_of_a_handler_is_raised_and_undoes_nothing(database_url: str, ask: Ask) -> None:
    told: list[object] = []
    async with opened(make_app(database_url)) as app:

        @app.on(OrderPlaced)
        def fails(event: OrderPlaced) -> None:
            raise Unmade

        app.on(OrderPlaced)(told.append)
        with pytest.raises(Unmade):
            await ask(app, "publish", OrderPlaced("7"))

        assert told == []
        assert await written(app) == ["order-7", "thanks-7"]


async def test_a_blocking_publish_refuses_an_awaited_handler_before_it_writes(database_url: str) -> None:
    async with opened(make_app(database_url)) as app:

        @app.on(OrderPlaced)
        async def awaited(event: OrderPlaced) -> None: ...

        with pytest.raises(DefinitionError, match="awaited of OrderPlaced is awaited"):
            await ask_blocking(app, "publish", OrderPlaced("7"))

        assert await written(app) == []


async def test_a_blocking_publish_says_so_when_a_handler_turns_out_to_be_awaited(database_url: str) -> None:
    async def told(event: OrderPlaced) -> None: ...

    async with opened(make_app(database_url)) as app:
        app.on(OrderPlaced)(functools.partial(lambda call, event: call(event), told))

        with pytest.raises(DefinitionError, match="gave something to await"):
            await ask_blocking(app, "publish", OrderPlaced("7"))


async def test_an_event_that_nothing_maps_is_warned_of_once(
    database_url: str, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(make_app(database_url)) as app:
        with caplog.at_level(logging.WARNING, "outlast.events"):
            for order in ("7", "8"):
                assert await ask(app, "publish", Broken(order)) == await ask(app, "publish")
            await ask(app, "publish", OrderPlaced("7"))

        (record,) = [record for record in caplog.records if record.name == "outlast.events"]
        assert record.getMessage().startswith(
            "Broken is published, but no workflow of this app is started or signalled"
        )


async def test_an_event_that_only_a_handler_takes_is_not_warned_of(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[object] = []
    async with opened(make_app(database_url)) as app:
        app.on(Broken)(told.append)

        await app.publish(Broken("7"))

        assert told == [Broken("7")]
        assert [record for record in caplog.records if record.name == "outlast.events"] == []


async def test_the_warning_tells_of_a_mapping_that_the_highest_version_does_not_have(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow("bill", version=2)
    async def second(ctx: Context, order: str) -> None: ...

    @starts_on(Broken, id=lambda event: event.order)
    @workflow("bill", version=3)
    async def third(ctx: Context) -> None: ...

    @workflow("bill", version=4)
    async def fourth(ctx: Context) -> None: ...

    async with opened(Outlast(database_url, workflows=[second, third, fourth], worker=False)) as app:
        await app.publish(Broken("7"))

    assert "Only older versions of bill map it." in caplog.text


def test_an_app_tells_what_it_would_do_with_an_event() -> None:
    app = make_app("sqlite://")
    app.on(Broken)(lambda event: None)

    class Late(OrderPlaced): ...

    assert [app.maps(kind) for kind in (OrderPlaced, OrderDelivered, Broken, Late, str)] == [
        True,
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("given", [OrderPlaced, str])
async def test_a_type_is_no_event(ask: Ask, given: object) -> None:
    async with opened(make_app("sqlite://")) as app:
        with pytest.raises(InvalidArgument, match="is a type"):
            await ask(app, "publish", given)
