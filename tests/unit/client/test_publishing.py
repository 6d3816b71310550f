"""What a publication is to write, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from outlast.client.calls import Calls
from outlast.client.catalog import Catalog
from outlast.client.publishing import Publishing
from outlast.engine.context import Context
from outlast.engine.definition import workflow
from outlast.errors import InvalidName, ValueNotStorable
from outlast.events.mappings import mappings_of, signals_on, starts_on
from outlast.events.routes import Routes
from outlast.model.signal import Signal


@dataclass
class Placed:
    order: str


@dataclass
class Poked:
    order: str


poked = Signal("poked")


@starts_on(Placed, id=lambda event: event.order)
@signals_on(Poked, signal=poked, key=lambda event: event.order)
@workflow("fulfil")
async def fulfil(ctx: Context, event: Placed) -> None: ...


@pytest.fixture
def room() -> Publishing:
    calls = Calls(cast("Any", None), Catalog([fulfil]))
    return Publishing(calls, Routes([(fulfil, mappings_of(fulfil, fulfil))]))


def test_events_that_mean_nothing_are_nothing_to_write(room: Publishing) -> None:
    assert room.plan([7, "text"], id=None).is_empty
    assert not room.plan([7, Placed("o-1")], id=None).is_empty
    assert not room.plan([7, Poked("o-1")], id=None).is_empty


def test_a_lone_start_is_told_from_all_else(room: Publishing) -> None:
    lone = room.plan([Placed("o-1")], id=None).lone_start
    assert lone is not None
    assert lone.run.id == "o-1"
    for events in ([Placed("o-1"), Placed("o-2")], [Placed("o-1"), Poked("o-1")], [Poked("o-1")], [7]):
        assert room.plan(events, id=None).lone_start is None


def test_what_cannot_be_stored_says_which_mapping_made_it() -> None:
    shouted = Signal("shouted", str)
    wrong: Any = lambda event: 7  # noqa: E731

    @starts_on(Placed, id=lambda event: event.order, input=wrong)
    @signals_on(Poked, signal=shouted, payload=wrong)
    @workflow("wants-text")
    async def wants_text(ctx: Context, text: str) -> None: ...

    routes = Routes([(wants_text, mappings_of(wants_text, wants_text))])
    room = Publishing(Calls(cast("Any", None), Catalog([wants_text])), routes)

    for event, mapping in ((Placed("o-1"), "@starts_on(Placed)"), (Poked("o-1"), "@signals_on(Poked)")):
        with pytest.raises(ValueNotStorable) as caught:
            room.plan([event], id=None)
        (note,) = caught.value.__notes__
        assert note.startswith(f"It is what {mapping} of workflow 'wants-text' version 1 made of an event")


def test_signals_without_an_id_get_one_each_that_no_other_publication_makes(room: Publishing) -> None:
    """One that was made a second time would be taken for a message that came twice, and not be sent."""
    sent = [
        message.new.dedupe_id
        for _ in range(2)
        for message in room.plan([Poked("o-1"), Poked("o-1"), Poked("o-2")], id=None).messages
    ]

    assert len(set(sent)) == 6


def test_signals_of_a_publication_with_an_id_get_the_same_ones_whenever_it_comes(room: Publishing) -> None:
    first, again = (
        [message.new.dedupe_id for message in room.plan([Poked("o-1"), Poked("o-1")], id="m-1").messages]
        for _ in range(2)
    )

    assert first == again
    assert first[0] == "m-1"
    assert first[1] != "m-1"


def test_the_id_of_a_publication_is_checked_whatever_its_events_mean(room: Publishing) -> None:
    with pytest.raises(InvalidName, match="A signal id"):
        room.plan([Placed("o-1")], id="")
