"""Whatever is made of what can be stored comes back, typed or not, and what is refused is refused in words."""

from __future__ import annotations

import contextlib
import json
import math
from datetime import timedelta, timezone
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import ValueNotStorable, ValueUnreadable
from outlast.model.values import canonical, shape_of
from support.anatomy import anatomy
from support.stored_classes import (
    Box,
    Charge,
    Colour,
    Corner,
    Currency,
    Event,
    Level,
    Line,
    Order,
    Parcel,
    Permission,
    Ping,
    Point,
    Sku,
    Tree,
    UserId,
)

anything = shape_of(Any)

finite = st.floats(allow_nan=False, allow_infinity=False)
keyed = (
    st.none()
    | st.booleans()
    | st.integers()
    | finite
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.timezones())
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.sampled_from([*Colour, *Level, *Currency, *Corner, *Permission])
    | st.builds(UserId, st.integers())
    | st.builds(Sku, st.text(max_size=5))
    | st.builds(PurePosixPath, st.text(alphabet="ab/.", max_size=5))
)
scalars = keyed | st.decimals() | st.times(timezones=st.timezones())
hashable = st.recursive(keyed, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.just("$"), inner, max_size=4)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(hashable, max_size=3)
        | st.frozensets(hashable, max_size=3)
        | st.builds(Box, inner)
        | st.builds(Event, st.text(max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3))
        | st.builds(Parcel, st.integers(), st.text(max_size=4))
        | st.builds(Ping, st.text(max_size=4), st.integers())
        | st.builds(Point, st.integers(), st.integers())
    )


values = st.recursive(scalars, _containers, max_leaves=12)

lines = st.builds(Line, st.text(max_size=5), finite)
trees = st.deferred(lambda: st.builds(Tree, st.text(max_size=3), st.lists(trees, max_size=2)))
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
charges = st.builds(
    Charge,
    id=st.uuids(),
    amount=st.decimals(),
    at=st.datetimes(timezones=st.none() | offsets).map(lambda at: at.replace(fold=0)),
    colour=st.sampled_from(Colour),
    receipt=st.binary(max_size=9),
    tags=st.frozensets(st.text(max_size=3), max_size=3),
    pair=st.tuples(st.integers(), st.text(max_size=3)),
    where=st.none() | st.builds(Point, st.integers(), st.integers()),
    file=st.none(),
    to=st.none() | st.builds(lambda street: {"street": street}, st.text(max_size=3)),
)
typed = st.one_of(
    st.tuples(
        st.just(Order), st.builds(Order, st.text(max_size=5), st.lists(lines, max_size=3), st.none() | st.text())
    ),
    st.tuples(st.just(Charge), charges),
    st.tuples(st.just(list[Charge | None]), st.lists(charges | st.none(), max_size=2)),
    st.tuples(st.just(Tree), trees),
    st.tuples(
        st.just(Event), st.builds(Event, st.text(max_size=4), st.dictionaries(st.text(max_size=4), values, max_size=2))
    ),
    st.tuples(st.just(dict[str, Any]), st.dictionaries(st.text(max_size=4) | st.just("$"), values, max_size=3)),
    st.tuples(st.just(dict[int, list[float | None]]), st.dictionaries(st.integers(), st.lists(finite | st.none()))),
    st.tuples(st.just(tuple[timedelta, ...]), st.lists(st.timedeltas()).map(tuple)),
    st.tuples(st.just(int | str | bool | None), st.integers() | st.text() | st.booleans() | st.none()),
)


@given(values)
def test_any_value_comes_back_as_itself(value: object) -> None:
    text, copy = anything.settle(value, "result")

    assert anatomy(copy) == anatomy(value)
    assert anatomy(anything.decode(text, "result")) == anatomy(value)
    assert anatomy(anything.settle(copy, "result")[1]) == anatomy(value)
    assert anything.same(text, canonical(text))


@given(typed)
def test_any_typed_value_comes_back_as_itself(pair: tuple[object, object]) -> None:
    annotation, value = pair
    shape = shape_of(annotation)

    text, copy = shape.settle(value, "result")

    assert anatomy(copy) == anatomy(value)
    assert anatomy(shape.decode(text, "result")) == anatomy(value)
    assert anatomy(shape.decode(anything.encode(value, "result"), "result")) == anatomy(value)


@given(values, st.sampled_from([Order, Charge, int, str, list[int], dict[str, Any], Line | None, Any]))
def test_any_value_is_taken_or_refused_whatever_the_annotation(value: object, annotation: object) -> None:
    shape = shape_of(annotation)

    with contextlib.suppress(ValueNotStorable):
        text, copy = shape.settle(value, "result")
        assert anatomy(shape.decode(text, "result")) == anatomy(copy)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["$", "v"]), inner),
    max_leaves=10,
)


@given(json_values, st.sampled_from([Any, Order, dict[str, Any], list[Line], UserId]))
def test_any_json_is_read_or_unreadable_and_nothing_else(value: object, annotation: object) -> None:
    text = json.dumps(value)

    with contextlib.suppress(ValueUnreadable):
        shape_of(annotation).decode(text, "result")
    assert json.loads(canonical(text)) == value


@pytest.mark.parametrize("hole", [math.nan, math.inf, object(), "\ud800"], ids=["nan", "inf", "object", "surrogate"])
@given(values)
def test_a_hole_is_found_wherever_it_is(hole: object, value: object) -> None:
    for annotation in Any, Box, dict[str, Any]:
        holed = {"a": [value, {"b": hole}]}
        root = "result.content" if annotation is Box else "result"
        with pytest.raises(ValueNotStorable) as caught:
            shape_of(annotation).settle(Box(holed) if annotation is Box else holed, "result")
        assert caught.value.where == f"{root}['a'][1]['b']"
