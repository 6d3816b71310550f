"""Without an annotation a value's text describes itself, and every value comes back as exactly its type."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from outlast.errors import ValueNotStorable
from outlast.model.values import shape_of
from support.anatomy import anatomy
from support.stored_classes import (
    Box,
    Cat,
    Charge,
    Colour,
    Corner,
    Counted,
    Currency,
    Dollar,
    Either,
    Event,
    Incomparable,
    Level,
    Line,
    Order,
    Outer,
    Parcel,
    Patch,
    Permission,
    Ping,
    Point,
    Ratio,
    RushOrder,
    Secretive,
    Sku,
    Tree,
    UserId,
)

anything = shape_of(Any)
NAIVE = datetime.fromisoformat("2026-01-02T03:04:05.000006")
HELSINKI = ZoneInfo("Europe/Helsinki")

PLAIN: list[object] = [
    None,
    True,
    False,
    0,
    0.0,
    -0.0,
    1,
    1.0,
    "",
    "x",
    [],
    {},
    [[], {}, [None]],
    {"a": {"b": [1, 1.0, True, "1"]}},
    {"": ""},
    9007199254740993,
    1970670598291982290,
    2**63,
    2**64 + 1,
    -(2**70),
    10**400,
    5e-324,
    1.7976931348623157e308,
]

TEXTS = [
    "a\x00b",
    "\\u0000",
    "\\\\u0000",
    "\\\\\\u0000",
    "\x01\x1f\x7f\u2028\u2029",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U00020bb7",
    "e\u0301",
    "\u00e9",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\ufeff\uffff",
    '{"$":"tuple","v":[]}',
    "null",
    "NaN",
]

TAGGED: list[object] = [
    (),
    (1, (2, [3])),
    set(),
    {1, 2, "a"},
    frozenset({(1, 2)}),
    b"",
    bytes(range(256)),
    NAIVE,
    NAIVE.replace(fold=1),
    NAIVE.replace(tzinfo=UTC),
    NAIVE.replace(tzinfo=timezone(timedelta(hours=5, minutes=45))),
    NAIVE.replace(tzinfo=HELSINKI),
    datetime(2023, 10, 29, 3, 30, tzinfo=HELSINKI),
    datetime(2023, 10, 29, 3, 30, fold=1, tzinfo=HELSINKI),
    datetime(2023, 3, 26, 3, 30, tzinfo=HELSINKI),
    datetime(1800, 1, 1, tzinfo=HELSINKI),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    date(2026, 1, 2),
    time(1, 2, 3, 4),
    time(1, 2, fold=1),
    time(1, 2, tzinfo=UTC),
    time(1, 2, tzinfo=HELSINKI),
    timedelta.max,
    timedelta.min,
    timedelta(microseconds=1),
    Decimal("1.10"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("-0"),
    UUID(int=7),
    Path("/a/b"),
    Path("\u00e9"),
    PurePosixPath("a/b"),
    PureWindowsPath("c:\\a"),
    {1: "a", None: "b", (1, 2): "c", 1.5: "d", b"x": "e"},
    {"$": "tuple", "v": [1]},
    {"$": {"$": "$"}},
    {"a": {"$": None}},
    {Currency.EUR: 1},
    {Sku("a"): 1},
    Colour.RED,
    Level.HIGH,
    Currency.EUR,
    Corner.FAR,
    Permission.READ | Permission.WRITE,
    Permission(0),
    UserId(5),
    UserId(2**70),
    Sku(""),
    Ratio(0.5),
    Point(1, 2),
    Line("a", 1.5),
    Order("o", [Line("a", 1.5)]),
    RushOrder("o", [], hours=2),
    Charge(UUID(int=7), Decimal("1.10"), NAIVE, tags=frozenset({"a", "b"}), file=Path("/a"), where=Point(1)),
    Event("e", {"at": NAIVE, "$": 1}),
    Tree("root", [Tree("leaf")]),
    Either(Line("a", 1.0)),
    Either(Event("e")),
    Box((1, {2})),
    Counted(["a", "b"]),
    Outer.Inner(1),
    Parcel(3, "x"),
    Secretive(1, 2),
    Ping("h", 1),
    Cat("tom"),
    Patch(age=None),
    Dollar(5),
    [Line("a", 1.0), {"b": Line("b", 2.0)}],
]


@pytest.mark.parametrize("value", PLAIN)
def test_json_itself_stands_as_it_is(value: object) -> None:
    text, copy = anything.settle(value, "result")

    assert anatomy(json.loads(text)) == anatomy(value)
    assert anatomy(copy) == anatomy(value)
    assert anatomy(anything.decode(text, "result")) == anatomy(value)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back_character_for_character(text: str) -> None:
    for shape, value in (
        (anything, text),
        (shape_of(str), text),
        (anything, {text: [text]}),
        (shape_of(dict), {text: text}),
    ):
        stored, copy = shape.settle(value, "result")
        assert copy == value
        assert json.loads(stored) == value
        assert "\x00" not in stored
        stored.encode()


@pytest.mark.parametrize("value", TAGGED)
def test_every_other_value_comes_back_as_exactly_its_type(value: object) -> None:
    text, copy = anything.settle(value, "result")

    assert anatomy(copy) == anatomy(value)
    assert anatomy(anything.decode(text, "result")) == anatomy(value)
    assert '"$"' in text


def test_empty_and_missing_values_are_distinct() -> None:
    texts = [anything.encode(value, "result") for value in ("", b"", None, [], {}, (), set(), False, 0, 0.0)]

    assert len(set(texts)) == len(texts)


def test_a_class_is_named_by_module_and_qualified_name() -> None:
    text = anything.encode([Outer.Inner(1), Colour.RED], "result")

    assert json.loads(text) == [
        {"$": "support.stored_classes:Outer.Inner", "v": {"number": 1}},
        {"$": "support.stored_classes:Colour", "v": "RED"},
    ]


def test_a_zone_keeps_its_name() -> None:
    summer = datetime(2026, 7, 1, 12, tzinfo=HELSINKI)

    copy = anything.settle(summer, "result")[1]

    assert copy + timedelta(days=180) == summer + timedelta(days=180)
    assert copy.tzinfo is HELSINKI


def test_an_instant_outlives_a_change_of_its_zones_rules() -> None:
    text = '{"$":"datetime","v":"2026-07-01T12:00:00+02:00","zone":"Europe/Helsinki"}'

    assert anything.decode(text, "result") == datetime(2026, 7, 1, 10, tzinfo=UTC)


def test_equal_sets_have_equal_texts() -> None:
    """Their own order differs from process to process."""
    one, other = {"a", "b", 3, (4, 5)}, {(4, 5), 3, "b", "a"}

    assert anything.encode(one, "result") == anything.encode(other, "result")


def test_a_value_that_nothing_compares_with_is_walked() -> None:
    assert anything.settle(Incomparable(3), "result")[1].number == 3


def test_subclasses_that_drivers_make_come_back_as_the_standard_type() -> None:
    class DriverUUID(UUID):
        pass

    class Moment(datetime):
        pass

    class Day(date):
        pass

    for value, kept in [
        (DriverUUID(int=5), UUID(int=5)),
        (Moment(2026, 1, 2, 3, 4, 5, 6), NAIVE),
        (Day(2026, 1, 1), date(2026, 1, 1)),
    ]:
        assert anatomy(anything.settle([value], "result")[1]) == anatomy([kept])


@pytest.mark.parametrize("value", [[], {}, [1], {"a": [1]}, ([1],), Order("o", [])])
def test_the_copy_shares_nothing_with_the_value(value: object) -> None:
    """A step returned a module's list and the workflow appended to it: the journal said one thing, the run another."""
    copy = anything.settle(value, "result")[1]

    assert copy == value
    assert copy is not value


def test_later_changes_of_the_live_object_do_not_reach_what_was_settled() -> None:
    value = {"items": [1]}
    text, copy = shape_of(dict[str, list[int]]).settle(value, "result")

    value["items"].append(2)
    copy["items"].append(3)

    assert json.loads(text) == {"items": [1]}


def test_the_deepest_value_can_be_read_with_little_stack_left() -> None:
    deepest: object = ()
    for _ in range(99):
        deepest = (deepest,)

    text, copy = anything.settle(deepest, "result")

    assert copy == deepest
    with pytest.raises(ValueNotStorable, match="nested more than 100 levels deep"):
        anything.encode((deepest,), "result")
    assert anything.decode(text, "result") == deepest
