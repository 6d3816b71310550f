"""A value comes back as the type that its annotation names, and its text is the plain JSON of that type."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from outlast.model.values import shape_of
from support.anatomy import anatomy
from support.stored_classes import (
    Address,
    Cat,
    Charge,
    Colour,
    Corner,
    Counted,
    Crate,
    Currency,
    Dog,
    Dollar,
    Event,
    Incomparable,
    Later,
    Level,
    Line,
    Order,
    Outer,
    Page,
    Parcel,
    Patch,
    Permission,
    Ping,
    Plain,
    Point,
    Ratio,
    Reading,
    RushOrder,
    Sealed,
    Secretive,
    Sku,
    Tree,
    Unresolved,
    UserId,
)

NAIVE = datetime.fromisoformat("2026-01-02T03:04:05.000006")

charge = Charge(
    id=UUID(int=7),
    amount=Decimal("1.10"),
    at=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    colour=Colour.BLUE,
    receipt=bytes(range(256)),
    tags=frozenset({"a", "b"}),
    pair=(1, "x"),
    where=Point(1, 2),
    file=Path("/tmp/receipt"),
    to={"street": "Main"},
)

VALUES: list[tuple[Any, Any]] = [
    (Order, Order("o-1", [Line("a", 1.5), Line("b", 0.1)], note="n")),
    (Order, Order("o-1", [], note=None)),
    (Charge, charge),
    (list[Charge], [charge]),
    (dict[str, Charge], {"k": charge}),
    (Charge | None, None),
    (Charge | None, charge),
    (Ping, Ping("h", 1)),
    (Cat | Dog, Dog("rex")),
    (Patch, Patch()),
    (Patch, Patch(name="n", age=None)),
    (Parcel, Parcel(3, "x")),
    (Address, {"street": "Main", "city": "X"}),
    (Point, Point(1, 2)),
    (Tree, Tree("root", [Tree("leaf"), Tree("branch", [Tree("leaf")])])),
    (Page[Line], Page([Line("a", 1.0)], Line("b", 2.0))),
    (Outer.Inner, Outer.Inner(1)),
    (Counted, Counted(["a", "b"])),
    (Reading, Reading("s", 1.5)),
    (Reading, Reading("s", None)),
    (datetime, NAIVE),
    (datetime, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (datetime, datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=-5)))),
    (date, date(2026, 1, 2)),
    (time, time(1, 2, 3, 4)),
    (timedelta, timedelta(days=-1, microseconds=3)),
    (timedelta, timedelta.max),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("NaN")),
    (Decimal, Decimal("sNaN")),
    (Decimal, Decimal("-Infinity")),
    (Decimal, Decimal("1E+500")),
    (UUID, UUID(int=5)),
    (bytes, bytes(range(256))),
    (bytearray, bytearray(b"x")),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Currency, Currency.EUR),
    (Permission, Permission.READ | Permission.WRITE),
    (Path, Path("/a/b")),
    (PurePosixPath, PurePosixPath("a")),
    (list[Path], [Path("/a")]),
    (UserId, UserId(5)),
    (Sku, Sku("s")),
    (Ratio, Ratio(0.5)),
    (dict[str, UserId], {"a": UserId(1)}),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (list[tuple[int, set[str]]], [(1, {"a"})]),
    (dict[int, str], {2: "b", 1: "a"}),
    (dict[UUID, int], {UUID(int=1): 1}),
    (dict[date, int], {date(2026, 1, 1): 1}),
    (dict[Colour, int], {Colour.RED: 1}),
    (dict[Decimal, int], {Decimal("1.10"): 1}),
    (Literal["a", 1], 1),
    (Annotated[int, msgspec.Meta(ge=0)], 0),
    (int | str, "1"),
    (bool, False),
    (float, -0.0),
    (float, 5e-324),
    (type(None), None),
    (None, None),
    (Sequence[int], [1]),
    (Mapping[str, int], {"a": 1}),
]


@pytest.mark.parametrize("annotation,value", VALUES)
def test_a_value_comes_back_as_its_annotated_type(annotation: object, value: object) -> None:
    shape = shape_of(annotation)

    text, copy = shape.settle(value, "result")

    assert anatomy(copy) == anatomy(value)
    assert anatomy(shape.decode(text, "result")) == anatomy(value)
    assert shape.encode(value, "result") == text
    # msgspec before 0.22 writes no dict with such keys, which then describes itself.
    assert '"$"' not in text or (annotation == dict[Colour, int] and not _writes(value))


def _writes(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except TypeError:
        return False
    return True


def test_the_text_is_plain_json() -> None:
    order = Order("o-1", [Line("a", 1.5)])

    assert shape_of(Order).encode(order, "input") == '{"id":"o-1","lines":[{"sku":"a","price":1.5}],"note":null}'


def test_the_order_of_a_dict_is_kept() -> None:
    assert list(shape_of(dict[str, int]).settle({"b": 1, "a": 2}, "result")[1]) == ["b", "a"]


@pytest.mark.parametrize(
    "annotation,value,kept",
    [
        (float, 5, 5.0),
        (float, UserId(5), 5.0),
        (Order, Order("o", [Line("a", 2)]), Order("o", [Line("a", 2.0)])),
        (list[int], (1, 2), [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], frozenset({1}), {1}),
        (frozenset[int], {1}, frozenset({1})),
        (bytes, bytearray(b"x"), b"x"),
        (bytes, memoryview(b"x"), b"x"),
        (str, Currency.EUR, "EUR"),
        (int, Level.LOW, 1),
        (str, Sku("s"), "s"),
        (int, UserId(3), 3),
        (float, Ratio(0.5), 0.5),
        (dict[str, int], {Currency.EUR: 1}, {"EUR": 1}),
        (Sequence[int], (1, 2), [1, 2]),
    ],
)
def test_what_fits_an_annotation_comes_back_as_what_it_names(annotation: object, value: object, kept: object) -> None:
    assert anatomy(shape_of(annotation).settle(value, "result")[1]) == anatomy(kept)


def test_subclasses_of_the_standard_scalars_come_back_as_what_the_annotation_names() -> None:
    class Moment(datetime):
        pass

    class Day(date):
        pass

    class Hour(time):
        pass

    class Length(timedelta):
        pass

    class Amount(Decimal):
        pass

    class Key(UUID):
        pass

    for annotation, value, kept in [
        (datetime, Moment(2026, 1, 2, 3, 4, 5, 6), NAIVE),
        (date, Day(2026, 1, 1), date(2026, 1, 1)),
        (time, Hour(1, 2), time(1, 2)),
        (timedelta, Length(seconds=5), timedelta(seconds=5)),
        (Decimal, Amount("1.10"), Decimal("1.10")),
        (UUID, Key(int=5), UUID(int=5)),
    ]:
        assert anatomy(shape_of(annotation).settle(value, "result")[1]) == anatomy(kept)


def test_a_zone_becomes_its_offset() -> None:
    """Inside a clock change too, where Python calls datetimes of two zones unequal whatever they show."""
    value = datetime(2023, 10, 29, 3, 30, fold=1, tzinfo=ZoneInfo("Europe/Helsinki"))

    text, copy = shape_of(datetime).settle(value, "result")

    assert text == '"2023-10-29T03:30:00+02:00"'
    assert copy.isoformat() == value.isoformat()


@pytest.mark.parametrize(
    "annotation,value",
    [
        (Order, RushOrder("o-1", [], hours=2)),
        (list[Order], [Order("o-1", []), RushOrder("o-2", [])]),
        (Secretive, Secretive(1, 2)),
        (Sealed, Sealed(1, "a")),
        (Sealed | None, Sealed(1)),
        (dict[str, list[Sealed]], {"a": [Sealed(1), Sealed(2)]}),
        (Later, Later(3)),
        (Crate, Crate(Sealed(1), [None, Sealed(2)])),
        (Event, Event("paid", {"at": NAIVE, "pair": (1, 2), "ids": {UUID(int=1)}})),
        (Event, Event("paid", {"currency": Currency.EUR, "level": [Level.LOW]})),
        (dict[str, Any], {"amount": Decimal("1.10")}),
        (dict[str, object], {"order": Order("o-1", [])}),
        (dict, {1: "a", "1": "b"}),
        (list, [(1, 2)]),
        (dict[str, Any], {"$": 1}),
        (dict[str, int], {"$": 1, "a": 2}),
        (Dollar, Dollar(5)),
        (Address, {"street": "Main", "planet": "Earth"}),
        (tuple[int, int], Point(1, 2)),
        (float, 2**53 + 1),
        (dict[tuple[int, int], str], {(1, 2): "x"}),
        (dict[float, int], {0.5: 1}),
        (dict[int | str, int], {1: 1, "a": 2}),
        (datetime, datetime(1800, 1, 1, tzinfo=ZoneInfo("Europe/Helsinki"))),
        (time, time(1, 2, tzinfo=ZoneInfo("Europe/Helsinki"))),
    ],
)
def test_what_plain_json_would_lose_describes_itself(annotation: object, value: object) -> None:
    shape = shape_of(annotation)

    text, copy = shape.settle(value, "result")

    assert '{"$":' in text
    assert anatomy(copy) == anatomy(value)
    assert anatomy(shape.decode(text, "result")) == anatomy(value)


@pytest.mark.parametrize(
    "value",
    [{"kind": 1, "data": [1, 1.0, True, None, "x", {"deep": []}]}, {}, {"a": {"b": "null"}}],
)
def test_what_is_json_already_stays_plain_in_an_open_place(value: dict[str, Any]) -> None:
    text, copy = shape_of(dict[str, Any]).settle(value, "result")

    assert json.loads(text) == value
    assert anatomy(copy) == anatomy(value)
    assert shape_of(Event).encode(Event("e", value), "result") == f'{{"kind":"e","data":{text}}}'


def test_a_comparison_that_raises_is_not_needed() -> None:
    assert shape_of(Incomparable).settle(Incomparable(3), "result")[1].number == 3


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        object,
        Any | None,
        int | Any,
        Annotated[Any, []],
        inspect.Signature.empty,
        TypeVar("T"),
        TypeVar("B", bound=Order),
        Line | Event,
        Line | int | Event,
        Iterable[Line],
        Corner,
        Plain,
        "Line",
        5,
    ],
    ids=str,
)
def test_an_annotation_that_says_too_little_gets_texts_that_describe_themselves(annotation: object) -> None:
    shape = shape_of(annotation)

    text, copy = shape.settle(Line("a", 1.0), "result")

    assert text == '{"$":"support.stored_classes:Line","v":{"sku":"a","price":1.0}}'
    assert copy == shape.decode(text, "result") == Line("a", 1.0)


def test_a_class_whose_annotations_do_not_resolve_describes_itself() -> None:
    text, copy = shape_of(Unresolved).settle(Unresolved((1, 2)), "result")

    assert text.startswith('{"$":"support.stored_classes:Unresolved"')
    assert copy.content == (1, 2)


def test_the_same_annotation_gives_the_same_shape() -> None:
    assert shape_of(Order) is shape_of(Order)
    assert shape_of(list[Order]) is shape_of(list[Order])


def test_an_annotation_without_a_hash_has_a_shape_too() -> None:
    assert shape_of(Annotated[int, []]).settle(3, "result") == ("3", 3)
