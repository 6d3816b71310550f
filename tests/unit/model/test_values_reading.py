"""Stored text outlives the code that wrote it: what can still be read is, what cannot is named."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from outlast.errors import OutlastError, ValueNotStorable, ValueUnreadable
from outlast.model.classes import find_class
from outlast.model.values import canonical, shape_of
from support.anatomy import anatomy
from support.stored_classes import Box, Charge, Event, Line, Order, Parcel, Point, Reading
from support.stored_models import Basket

CLASSES = "support.stored_classes"


def unreadable(annotation: object, text: str) -> ValueUnreadable:
    with pytest.raises(ValueUnreadable) as caught:
        shape_of(annotation).decode(text, "result")
    assert isinstance(caught.value, OutlastError)
    return caught.value


@pytest.mark.parametrize("annotation", [Any, Order, int, dict[str, Any], Basket])
@pytest.mark.parametrize("text", ["", "{", '{"a":', "nul", '"\\ud800"', "[1,]", '{"$":"tuple","v":[1,2'])
def test_damaged_text_is_unreadable(annotation: object, text: str) -> None:
    assert unreadable(annotation, text).where == "result"


def test_text_cut_short_is_unreadable() -> None:
    text = shape_of(list[Line]).encode([Line("a", 1.0)] * 20, "result")

    assert "truncated" in unreadable(list[Line], text[:100]).reason
    assert "truncated" in unreadable(Any, text[:100]).reason


@pytest.mark.parametrize(
    "text,where,reason",
    [
        ('{"$":"no.such.module:Line","v":{}}', "result", "the module of the class no.such.module:Line cannot be"),
        (
            '[{"$":"support.stored_classes:Renamed","v":{}}]',
            "result[0]",
            "there is no class support.stored_classes:Ren",
        ),
        (
            '{"$":"support.stored_classes:Line.Gone","v":{}}',
            "result",
            "there is no class support.stored_classes:Line.G",
        ),
        ('{"$":"support.stored_classes:Colour","v":"GREEN"}', "result", "GREEN"),
        ('{"$":"support.stored_classes:Level","v":{}}', "result", "does not take what was stored"),
        ('{"$":"support.stored_classes:UserId","v":"x"}', "result", "does not take what was stored"),
        ('{"$":"support.stored_classes:Line","v":{"sku":"a"}}', "result", "missing 1 required positional argument"),
        ('{"$":"support.stored_classes:Line","v":[1]}', "result", "is damaged"),
        ('{"$":"support.stored_classes:Line"}', "result", "is damaged"),
        ('{"$":"quaternion","v":[1]}', "result", "knows no 'quaternion'"),
        ('{"$":5,"v":1}', "result", "knows no 5"),
        ('{"$":[],"v":1}', "result", "is damaged"),
        ('{"$":"tuple"}', "result", "is damaged"),
        ('{"$":"decimal","v":"x"}', "result", "the stored decimal is damaged"),
        ('{"a":{"$":"uuid","v":"x"}}', "result['a']", "the stored uuid is damaged"),
        ('{"$":"bytes","v":"!"}', "result", "the stored bytes is damaged"),
        (
            '{"$":"datetime","v":"2026-01-01T00:00:00+01:00","zone":"No/Where"}',
            "result",
            "the stored datetime is damaged",
        ),
        ('{"$":"dict","v":[[[],1]]}', "result", "the stored dict is damaged"),
        ('{"$":"set","v":[{"$":"tuple","v":[{"$":"odd"}]}]}', "result[0][0]", "is damaged"),
    ],
)
def test_a_text_that_describes_itself_wrongly_is_unreadable_by_its_place(text: str, where: str, reason: str) -> None:
    found = unreadable(Any, text)

    assert found.where == where
    assert reason in found.reason
    assert str(found) == f"{where} cannot be read back: {found.reason}"


@pytest.mark.parametrize(
    "name",
    ["os:system", "builtins:eval", "builtins:dict", "builtins:int", "subprocess:Popen", "sys:path", f"{CLASSES}:Plain"],
)
def test_stored_text_never_makes_anything_else_be_called(name: str) -> None:
    assert "is no class whose values can be stored" in unreadable(Any, f'{{"$":"{name}","v":{{}}}}').reason


def test_a_module_that_fails_to_import_makes_its_values_unreadable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "module_that_fails.py").write_text("raise RuntimeError('no import today')")
    monkeypatch.syspath_prepend(tmp_path)

    assert "no import today" in unreadable(Any, '{"$":"module_that_fails:Line","v":{}}').reason


def test_text_nested_more_deeply_than_the_stack_is_unreadable() -> None:
    for annotation in Any, list[Any]:
        assert unreadable(annotation, "[" * 100_000 + "]" * 100_000)
    assert unreadable(Any, '{"$":"tuple","v":[' * 400 + "]}" * 400).where == "result"
    assert unreadable(Any, '{"$":"tuple","v":[' * 5000 + "]}" * 5000).where == "result"


@pytest.mark.parametrize("annotation", [Any, Box])
def test_a_full_stack_is_an_error_of_this_library(annotation: object) -> None:
    """Values are read and written wherever a workflow or a request happens to be."""
    shape = shape_of(annotation)
    value = Box(())
    for _ in range(40):
        value = Box((value,))
    text = shape.encode(value, "result")

    with pytest.raises(ValueUnreadable, match="deep"):
        _with_stack_for(40, lambda: shape.decode(text, "result"))
    with pytest.raises(ValueNotStorable, match="deep"):
        _with_stack_for(40, lambda: shape.encode(value, "result"))


def _with_stack_for(frames: int, call: Callable[[], object]) -> object:
    here, used = sys._getframe(), 0
    while here is not None:
        here, used = here.f_back, used + 1
    return _deeper(sys.getrecursionlimit() - used - frames, call)


def _deeper(frames: int, call: Callable[[], object]) -> object:
    return call() if frames <= 0 else _deeper(frames - 1, call)


@pytest.mark.parametrize(
    "annotation,text,where",
    [
        (Order, '{"id":"o","lines":[{"sku":"a","price":"1"}]}', "result.lines[0].price"),
        (Order, '{"lines":[]}', "result"),
        (int, '"1"', "result"),
        (Charge, "null", "result"),
        (dict[str, int], '{"a":"1"}', "result[...]"),
    ],
)
def test_text_of_another_type_is_unreadable_by_its_place(annotation: object, text: str, where: str) -> None:
    assert unreadable(annotation, text).where == where


def test_fields_that_came_and_went_are_no_hindrance() -> None:
    for annotation in Any, Order:
        for text in '{"id":"o","lines":[],"gone":1}', '{"lines":[],"id":"o"}':
            stored = text if annotation is Order else f'{{"$":"support.stored_classes:Order","v":{text}}}'
            assert shape_of(annotation).decode(stored, "result") == Order("o", [], note=None)
    assert shape_of(Any).decode('{"$":"support.stored_classes:Parcel","v":{"weight":1}}', "result") == Parcel(1)
    assert shape_of(Any).decode('{"$":"support.stored_classes:Point","v":{"x":1}}', "result") == Point(1, 0)


@pytest.mark.parametrize(
    "annotation,value",
    [
        (Order, Order("o", [Line("a", 1.0)])),
        (list[Line], [Line("a", 1.0)]),
        (Line | None, Line("a", 1.0)),
        (tuple[int, str], (1, "a")),
        (UUID, UUID(int=1)),
        (Decimal, Decimal("1.10")),
        (list[dict[str, Decimal]], [{"a": Decimal("1.10")}]),
        (int, 5),
        (dict[str, int], {"a": 1}),
        (dict[str, Any], {"at": (1, 2)}),
        (Event, Event("e", {"line": Line("a", 1.0), "$": 1})),
    ],
)
def test_text_from_before_the_annotation_was_there_can_be_read(annotation: object, value: object) -> None:
    """A return annotation is added while runs are under way."""
    before = shape_of(Any).encode(value, "result")

    assert anatomy(shape_of(annotation).decode(before, "result")) == anatomy(value)


def test_text_from_before_that_does_not_fit_the_annotation_is_unreadable() -> None:
    before = shape_of(Any).encode([Line("a", 1.0), Event("e")], "result")

    found = unreadable(list[Line], before)

    assert (found.where, found.reason) == ("result[1]", "its type is Event, and the annotation says Line")


def test_a_class_that_comes_back_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"$":"module_to_come:Line","v":{"sku":"a"}}'
    assert "cannot be imported" in unreadable(Any, text).reason

    module = types.ModuleType("module_to_come")
    module.Line = dataclass(type("Line", (), {"__annotations__": {"sku": str}}))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "module_to_come", module)

    assert shape_of(Any).decode(text, "result").sku == "a"
    find_class.cache_clear()


@pytest.mark.parametrize(
    "one,other",
    [
        ('{"a":1,"b":2}', '{"b":2,"a":1}'),
        ('{ "a" : [ {"c":1,"b":2} ] }', '{"a":[{"b":2,"c":1}]}'),
        ('"\\u00e9"', '"\u00e9"'),
    ],
)
def test_canonical_text_does_not_depend_on_order_or_blanks(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


def test_canonical_text_tells_values_apart() -> None:
    texts = [
        "1",
        "1.0",
        "true",
        '"1"',
        "null",
        "[]",
        "{}",
        "[1,2]",
        "[2,1]",
        '""',
        "18446744073709551617",
        "not json",
        "{",
    ]

    assert len({canonical(text) for text in texts}) == len(texts)
    assert canonical("18446744073709551617") == "18446744073709551617"
    assert canonical("not json") == "not json"
    assert canonical("[" * 100_000) == "[" * 100_000


@pytest.mark.parametrize(
    "annotation,one,other,same",
    [
        (dict[str, int], '{"a":1,"b":2}', '{"b":2,"a":1}', True),
        (Charge | None, "null", "null", True),
        (set[str], '["a","b"]', '["b","a"]', True),
        (list[str], '["a","b"]', '["b","a"]', False),
        (float, "1", "1.0", True),
        (Any, "1", "1.0", False),
        (Any, "1", "true", False),
        (Any, "1.0", "1", False),
        (Line, '{"sku":"a","price":1}', '{"price":1.0,"sku":"a"}', True),
        (Reading, '{"sensor":"a","value":1}', '{"sensor":"a","value":2}', False),
        (Basket, '{"id":1,"tags":["a","b"]}', '{"id":1,"tags":["b","a"]}', True),
        (Basket, '{"id":1,"tags":["a","b"]}', '{"id":1,"tags":["b"]}', False),
        (Any, '{"a":', '{"b":', False),
        (Line, '{"sku":"a"}', '{"sku":"b"}', False),
    ],
)
def test_two_texts_hold_the_same_value_or_not(annotation: object, one: str, other: str, same: bool) -> None:
    assert shape_of(annotation).same(one, other) is same
    assert shape_of(annotation).same(other, one) is same


@dataclass
class Receipt:
    number: int


@pytest.mark.parametrize(
    "annotation, text, reason",
    [
        (Receipt, '"ok"', "Expected `object`, got `str` (it is read as `Receipt`)"),
        (Receipt, "{}", "Object missing required field `number` (it is read as `Receipt`)"),
        (list[Receipt], '["ok"]', f"Expected `object`, got `str` (it is read as `list[{__name__}.Receipt]`)"),
        (int, '"ok"', "Expected `int`, got `str`"),
    ],
)
def test_the_type_that_was_expected_is_named_as_its_author_knows_it(annotation: object, text: str, reason: str) -> None:
    """A dataclass was an `object`, whichever it was."""
    assert unreadable(annotation, text).reason == reason
