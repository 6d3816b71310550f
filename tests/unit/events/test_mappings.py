"""What may be declared of an event and a workflow, and where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import Any, TypedDict, cast

import pytest

from outlast.engine.context import Context
from outlast.engine.definition import workflow, workflow_of
from outlast.engine.step import step
from outlast.errors import DefinitionError, InvalidArgument
from outlast.events.mappings import SignalsOn, StartsOn, mappings_of, signals_on, starts_on
from outlast.model.signal import Signal


@dataclass
class Placed:
    order: str


class Urgent(Placed):
    pass


@dataclass
class Delivered:
    parcel: str


class Loose(TypedDict):
    order: str


delivered = Signal("delivered", str)
arrived = Signal("arrived", Delivered)
poked = Signal("poked")


def order_id(event: Placed) -> str:
    return event.order


def parcel(event: Delivered) -> str:
    return event.parcel


def told(declared: object) -> list[str]:
    return [str(mapping) for mapping in mappings_of(declared, workflow_of(declared))]


def test_a_mapping_may_stand_above_and_below_workflow() -> None:
    @starts_on(Urgent, id=order_id)
    @workflow("above-and-below")
    @starts_on(Placed, id=order_id)
    async def both(ctx: Context, event: Placed) -> None: ...

    assert told(both) == ["@starts_on(Urgent)", "@starts_on(Placed)"]


def test_mappings_are_kept_in_the_order_in_which_they_are_written() -> None:
    @workflow("in-order")
    @starts_on(Placed, id=order_id)
    @signals_on(Delivered, signal=delivered, payload=parcel)
    @signals_on(Placed, signal=delivered, payload=order_id)
    async def in_order(ctx: Context) -> None: ...

    assert told(in_order) == ["@starts_on(Placed)", "@signals_on(Delivered)", "@signals_on(Placed)"]


def test_a_class_and_its_instances_carry_what_was_declared_on_it() -> None:
    @starts_on(Placed, id=order_id)
    @workflow("of-a-class")
    @signals_on(Delivered, signal=arrived)
    class Fulfil:
        async def run(self, ctx: Context, event: Placed) -> None: ...

    assert told(Fulfil) == told(Fulfil()) == ["@starts_on(Placed)", "@signals_on(Delivered)"]


def test_a_class_that_inherits_a_workflow_inherits_its_mappings_and_changes_none_of_them() -> None:
    @starts_on(Placed, id=order_id)
    @workflow("inherited")
    class Fulfil:
        async def run(self, ctx: Context, event: Placed) -> None: ...

    @signals_on(Delivered, signal=arrived)
    class Careful(Fulfil): ...

    assert told(Careful()) == ["@signals_on(Delivered)", "@starts_on(Placed)"]
    assert told(Fulfil()) == ["@starts_on(Placed)"]


def test_a_class_that_is_declared_anew_begins_without_mappings() -> None:
    @starts_on(Placed, id=order_id)
    @workflow("first")
    class Fulfil:
        async def run(self, ctx: Context, event: Placed) -> None: ...

    @workflow("second")
    class Other(Fulfil): ...

    assert told(Other()) == []


def test_what_stands_on_a_base_that_is_no_workflow_is_nobodys() -> None:
    @starts_on(Urgent, id=order_id)
    class Mixed:
        async def run(self, ctx: Context, event: Placed) -> None: ...

    @starts_on(Placed, id=order_id)
    @workflow("mixing")
    class Fulfil(Mixed): ...

    assert told(Fulfil()) == ["@starts_on(Placed)"]


def test_a_workflow_made_twice_of_one_function_does_not_share_what_stands_above() -> None:
    async def work(ctx: Context, event: Placed) -> None: ...

    first, second = workflow("work")(work), workflow("work", version=2)(work)
    starts_on(Placed, id=order_id)(second)

    assert told(first) == []
    assert told(second) == ["@starts_on(Placed)"]


def test_a_mapping_below_another_decorator_is_kept() -> None:
    def traced(function: Any) -> Any:
        @wraps(function)
        async def traced_function(ctx: Context, event: Placed) -> None:
            await function(ctx, event)

        return traced_function

    @workflow("traced")
    @traced
    @starts_on(Placed, id=order_id)
    async def work(ctx: Context, event: Placed) -> None: ...

    assert told(work) == ["@starts_on(Placed)"]


@step
async def charge(order: str) -> None: ...


@pytest.mark.parametrize("code", [charge, "fulfil", print, Placed("7")])
def test_a_mapping_on_what_can_be_no_workflow_is_refused_at_once(code: object) -> None:
    with pytest.raises(DefinitionError, match=r"@starts_on\(Placed\) stands on a workflow"):
        cast("Any", starts_on(Placed, id=order_id))(code)


@pytest.mark.parametrize("event", ["order.placed", Placed("7"), Loose, list[int], None])
def test_an_event_type_is_a_class(event: Any) -> None:
    with pytest.raises(DefinitionError, match="an event's type is a class"):
        starts_on(event, id=order_id)
    with pytest.raises(DefinitionError, match="an event's type is a class"):
        signals_on(event, signal=poked)


async def awaited(event: object) -> Any: ...


@pytest.mark.parametrize(
    "option, given", [("id", 7), ("id", None), ("id", awaited), ("input", "7"), ("input", awaited)]
)
def test_what_makes_ids_and_inputs_is_a_plain_function(option: str, given: object) -> None:
    options: Any = {"id": order_id, option: given}

    with pytest.raises(DefinitionError, match=f"{option}= "):
        starts_on(Placed, **options)


@pytest.mark.parametrize("option, given", [("key", 7), ("key", awaited), ("id", 7), ("payload", awaited)])
def test_what_makes_keys_ids_and_payloads_is_a_plain_function(option: str, given: object) -> None:
    options: Any = {"payload": parcel, option: given}

    with pytest.raises(DefinitionError, match=f"{option}= "):
        signals_on(Delivered, signal=delivered, **options)


@pytest.mark.parametrize("wrong", ["x" * 256, "a\nb"])
def test_a_value_that_can_never_be_an_id_or_a_key_is_refused_at_once(wrong: str) -> None:
    with pytest.raises(DefinitionError, match=r"@starts_on\(Placed\): id= cannot be used. A run id"):
        starts_on(Placed, id=wrong)
    with pytest.raises(DefinitionError, match=r"@signals_on\(Placed\): key= cannot be used. A signal key"):
        signals_on(Placed, signal=poked, key=wrong)
    with pytest.raises(DefinitionError, match=r"@signals_on\(Placed\): id= cannot be used. A signal id"):
        signals_on(Placed, signal=poked, id=wrong)


def test_an_input_that_is_a_value_is_refused_with_what_to_write() -> None:
    with pytest.raises(DefinitionError, match=r"with every event write input=lambda event: "):
        starts_on(Placed, id=order_id, input=cast("Any", "express"))


def test_a_priority_that_can_never_be_one_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, match="priority"):
        starts_on(Placed, id=order_id, priority=-1)
    with pytest.raises(DefinitionError, match="priority= "):
        starts_on(Placed, id=order_id, priority=cast("Any", awaited))


def test_a_signal_is_one_that_was_declared() -> None:
    with pytest.raises(DefinitionError, match="signal= is a Signal"):
        signals_on(Delivered, signal=cast("Any", "delivered"))


def wrong_payload(event: Delivered) -> int:
    return 1


def test_a_payload_that_is_never_the_signals_is_refused_at_once() -> None:
    with pytest.raises(DefinitionError, match="is str; the event itself is Delivered"):
        signals_on(Delivered, signal=cast("Any", delivered))
    with pytest.raises(DefinitionError, match="is str; what wrong_payload returns is int"):
        signals_on(Delivered, signal=cast("Any", delivered), payload=wrong_payload)
    with pytest.raises(
        DefinitionError, match=r"@signals_on\(Delivered\): payload= cannot be used. .*signal 'delivered'"
    ):
        signals_on(Delivered, signal=cast("Any", delivered), payload=7)
    with pytest.raises(DefinitionError, match="has no payload, but payload= is given"):
        signals_on(Delivered, signal=cast("Any", poked), payload="7")
    with pytest.raises(DefinitionError, match="has no payload, but payload= is given"):
        signals_on(Delivered, signal=cast("Any", poked), payload=wrong_payload)


def test_payloads_that_fit_or_cannot_be_judged_are_taken() -> None:
    made = [
        signals_on(Delivered, signal=arrived),
        signals_on(Delivered, signal=delivered, payload=parcel),
        signals_on(Delivered, signal=delivered, payload="it came"),
        signals_on(Delivered, signal=delivered, payload=lambda event: event.parcel),
        signals_on(Delivered, signal=Signal("anything", object), payload=wrong_payload),
        signals_on(Delivered, signal=poked),
    ]

    assert all(callable(one) for one in made)


def test_mappings_say_what_they_are() -> None:
    assert str(StartsOn(Placed, order_id, None, 0)) == "@starts_on(Placed)"
    assert str(SignalsOn(Delivered, arrived, None, None, None)) == "@signals_on(Delivered)"
