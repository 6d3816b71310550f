"""What cannot be stored is refused where it is produced, by its place and by what it is."""

from __future__ import annotations

import asyncio
import collections
import enum
import io
import math
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import InitVar, dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from outlast.errors import OutlastError, ValueNotStorable
from outlast.model.values import shape_of
from support.stored_classes import (
    Address,
    Charge,
    Colour,
    Crate,
    Event,
    Grown,
    Line,
    Order,
    Parcel,
    Ping,
    Plain,
    Point,
    Positive,
    Ratio,
    Reading,
    Sealed,
    Sku,
    Touchy,
    Tree,
    UserId,
)

NAN = math.nan


def refusal(annotation: object, value: object, where: str = "result") -> ValueNotStorable:
    with pytest.raises(ValueNotStorable) as caught:
        shape_of(annotation).settle(value, where)
    assert str(caught.value) == f"{caught.value.where} cannot be stored: {caught.value.reason}"
    return caught.value


def a_generator() -> Iterator[int]:
    yield 1


async def an_async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "annotation,value,where",
    [
        (Any, NAN, "result"),
        (Any, {"m": NAN}, "result['m']"),
        (Any, {"m": math.inf}, "result['m']"),
        (Any, [-math.inf], "result[0]"),
        (Any, {"a": [{"b": {"c": [1, NAN]}}]}, "result['a'][0]['b']['c'][1]"),
        (Any, Line("a", NAN), "result.price"),
        (Any, {NAN: 1}, "result[key nan]"),
        (Any, {NAN}, "result{nan}"),
        (Any, Ratio(NAN), "result"),
        (float, NAN, "result"),
        (float | None, NAN, "result"),
        (list[float | None], [1.0, None, math.inf], "result[2]"),
        (dict[str, float], {"m": -math.inf}, "result['m']"),
        (dict[float, int], {NAN: 1}, "result[key nan]"),
        (dict[str, Any], {"a": {"b": NAN}}, "result['a']['b']"),
        (Order, Order("o", [Line("a", 1.0), Line("b", 2.0), Line("c", NAN)]), "result.lines[2].price"),
        (Reading, Reading("s", NAN), "result.value"),
        (list[Reading], [Reading("s", None), Reading("s", math.inf)], "result[1].value"),
        (Event, Event("e", {"m": NAN}), "result.data['m']"),
        (float, Ratio(NAN), "result"),
    ],
)
def test_not_a_number_is_refused_wherever_it_is(annotation: object, value: object, where: str) -> None:
    refused = refusal(annotation, value)

    assert refused.where == where
    assert "use None, or Decimal" in refused.reason


@pytest.mark.parametrize(
    "annotation,value,where",
    [
        (Any, "\ud800", "result"),
        (str, "a\udfff", "result"),
        (Any, {"k": ["\ud800"]}, "result['k'][0]"),
        (Any, {"\ud800": 1}, "result[key '\\ud800']"),
        (dict[str, int], {"\ud800": 1}, "result[key '\\ud800']"),
        (Order, Order("\ud800", []), "result.id"),
        (Any, Sku("\ud800"), "result"),
        (Any, {"\ud800", "b"}, "result{'\\ud800'}"),
    ],
)
def test_a_lone_surrogate_is_refused(annotation: object, value: object, where: str) -> None:
    refused = refusal(annotation, value)

    assert refused.where == where
    assert "lone surrogate" in refused.reason
    str(refused).encode()


@pytest.mark.parametrize("annotation", [Any, dict[str, Any], dict])
@pytest.mark.parametrize(
    "value,named",
    [
        (io.StringIO(), "StringIO has no stored form"),
        (threading.Lock(), "lock has no stored form"),
        (Plain(), "Plain has no stored form"),
        (1j, "complex has no stored form"),
        (a_generator(), "generator, which can be read only once"),
        (an_async_generator(), "async_generator, which can be read only once"),
        (iter([]), "list_iterator has no stored form"),
        (Order, "a class, Order"),
        (refusal, "function, which is code"),
        (lambda: 1, "function, which is code"),
        (len, "builtin_function_or_method, which is code"),
        (asyncio, "module has no stored form"),
        (ValueError("x"), "ValueError has no stored form"),
        (collections.deque([1]), "deque has no stored form"),
        (msgspec.UNSET, "UnsetType has no stored form"),
    ],
)
def test_what_is_no_value_is_refused_by_place_and_type(annotation: object, value: object, named: str) -> None:
    refused = refusal(annotation, {"a": [value]})

    assert refused.where == "result['a'][0]"
    assert named in refused.reason


def test_a_file_in_a_result_is_named() -> None:
    refused = refusal(dict[str, Any], {"fh": io.BytesIO()})

    assert refused.where == "result['fh']"


def test_an_await_that_was_left_out_is_recognized() -> None:
    async def fetch() -> int:
        return 1

    coroutine = fetch()
    try:
        assert "was an await left out?" in refusal(Any, coroutine).reason
        assert "was an await left out?" in refusal(list[int], [coroutine]).reason
    finally:
        coroutine.close()


@pytest.mark.parametrize("annotation", [Order, Any])
def test_what_is_inside_a_record_is_named_by_its_field(annotation: object) -> None:
    value = Order("o", [Line("a", 1.0), Line("b", threading.Lock())])  # type: ignore[arg-type]  # what a user gets wrong

    assert refusal(annotation, value).where == "result.lines[1].price"


@pytest.mark.parametrize(
    "value,advice",
    [
        (collections.OrderedDict(a=1), "make it dict(...)"),
        (collections.defaultdict(int, a=1), "make it dict(...)"),
        (collections.Counter("a"), "make it dict(...)"),
        (type("Rows", (list,), {})([1]), "make it list(...)"),
        (type("Row", (tuple,), {})([1]), "make it tuple(...)"),
        (type("Blob", (bytes,), {})(b"x"), "make it bytes(...)"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_subclass_of_a_container_is_refused_where_its_type_would_be_lost(value: object, advice: str) -> None:
    assert advice in refusal(Any, [value]).reason
    assert advice in refusal(dict[str, Any], {"a": value}).reason


def test_a_subclass_of_a_container_is_taken_where_the_annotation_names_the_container() -> None:
    assert shape_of(dict[str, int]).settle(collections.Counter("a"), "result")[1] == {"a": 1}
    assert shape_of(dict[str, int]).settle(collections.OrderedDict(b=1, a=2), "result")[0] == '{"b":1,"a":2}'


def test_the_first_fault_counts_beside_a_subclass_of_a_container() -> None:
    assert refusal(dict[str, float], collections.Counter({"a": NAN})).where == "result['a']"


@pytest.mark.parametrize("annotation", [Any, dict[str, Any], Tree])
def test_a_value_that_contains_itself_is_refused(annotation: object) -> None:
    loop: dict[str, Any] = {"a": 1}
    loop["me"] = [loop]
    tree = Tree("root")
    tree.children.append(Tree("leaf", [tree]))

    refused = refusal(annotation, tree if annotation is Tree else loop)

    assert refused.where == ("result.children[0].children[0]" if annotation is Tree else "result['me'][0]")
    assert refused.reason == "it contains itself"


def test_a_part_that_occurs_twice_is_no_cycle() -> None:
    part = [1]

    assert shape_of(Any).settle([part, part, (part,)], "result")[1] == [[1], [1], ([1],)]


@pytest.mark.parametrize("annotation", [Any, list, dict[str, Any], Tree])
def test_a_value_nested_too_deeply_is_refused(annotation: object) -> None:
    tree, nest = Tree("leaf"), {"a": [1]}
    for _ in range(5_000):
        nest = {"a": [nest]}
    for _ in range(5_000):
        tree = Tree("branch", [tree])

    refused = refusal(annotation, {Tree: tree, list: [nest]}.get(annotation, nest))  # type: ignore[call-overload]

    assert "deep" in refused.reason


def test_a_value_whose_parts_cannot_be_compared_is_not_known_to_be_kept() -> None:
    assert "would come back as" in refusal(Any, [Touchy("a")]).reason


@pytest.mark.parametrize("annotation,value", [(memoryview, memoryview(b"x")), (msgspec.Raw, msgspec.Raw(b"1"))])
def test_a_view_into_other_memory_is_refused(annotation: object, value: object) -> None:
    assert "has no stored form" in refusal(annotation, value).reason


@pytest.mark.parametrize("annotation", [Any, int, list[int], dict[str, Any]])
def test_an_integer_that_python_would_not_read_back_is_refused(annotation: object) -> None:
    huge = 10**5000
    value = {int: huge, list[int]: [huge], dict[str, Any]: {"a": huge}}.get(annotation, huge)  # type: ignore[call-overload]

    assert "more digits than Python reads back" in refusal(annotation, value).reason


@pytest.mark.parametrize(
    "annotation,value,where,reason",
    [
        (Line, {"sku": "a", "price": 1.0}, "result", "its type is dict, and the annotation says Line"),
        (Line, "a", "result", "its type is str, and the annotation says Line"),
        (Line, None, "result", "its type is NoneType, and the annotation says Line"),
        (Line | None, 5, "result", "its type is int, and the annotation says Line | None"),
        (type(None), 1, "result", "its type is int, and the annotation says None"),
        (str, UUID(int=1), "result", "its type is UUID, and the annotation says str"),
        (str, Colour.RED, "result", "its type is Colour, and the annotation says str"),
        (Colour, "red", "result", "its type is str, and the annotation says Colour"),
        (UUID, str(UUID(int=1)), "result", "its type is str, and the annotation says UUID"),
        (datetime, "2026-01-01T00:00:00", "result", "its type is str, and the annotation says datetime"),
        (date, datetime.fromisoformat("2026-01-01"), "result", "its type is datetime, and the annotation says date"),
        (Decimal, 5, "result", "its type is int, and the annotation says Decimal"),
        (int, True, "result", "its type is bool, and the annotation says int"),
        (float, True, "result", "its type is bool, and the annotation says float"),
        (int, 1.0, "result", "its type is float, and the annotation says int"),
        (bool, 1, "result", "its type is int, and the annotation says bool"),
        (bytes, "YQ==", "result", "its type is str, and the annotation says bytes"),
        (set[int], [1], "result", "its type is list, and the annotation says set"),
        (UserId, 5, "result", "its type is int, and the annotation says UserId"),
        (Literal["a", "b"], "c", "result", "its type is str, and the annotation says one of 'a', 'b'"),
        (int | str, 1.5, "result", "its type is float, and the annotation says int | str"),
        (dict[str, int], {"a": "1"}, "result['a']", "its type is str, and the annotation says int"),
        (dict[str, int], {1: 1}, "result[key 1]", "its type is int, and the annotation says str"),
        (list[int], [1, "2"], "result[1]", "its type is str, and the annotation says int"),
        (tuple[int, str], (1, 2), "result[1]", "its type is int, and the annotation says str"),
        (set[int], {"a"}, "result{'a'}", "its type is str, and the annotation says int"),
        (Order, Order("o", ["line"]), "result.lines[0]", "its type is str, and the annotation says Line"),  # type: ignore[list-item]
        (Order, Order("o", [], note=5), "result.note", "its type is int, and the annotation says str | None"),  # type: ignore[arg-type]
        (Address, {"street": 5}, "result['street']", "its type is int, and the annotation says str"),
        (Point, Point(1, "2"), "result.y", "its type is str, and the annotation says int"),  # type: ignore[arg-type]
        (Parcel, Ping("h"), "result", "its type is Ping, and the annotation says Parcel"),
        (Sealed, Sealed("1"), "result._secret", "its type is str, and the annotation says int"),  # type: ignore[arg-type]
        (Crate, Crate(Sealed(1), [5]), "result.more[0]", "its type is int, and the annotation says Sealed | None"),  # type: ignore[list-item]
        (list[Charge | None], [None, {}], "result[1]", "its type is dict, and the annotation says Charge | None"),
    ],

)  # fmt: skip
def test_a_value_of_another_type_than_its_annotation_is_refused(
    annotation: object, value: object, where: str, reason: str
) -> None:
    refused = refusal(annotation, value)

    assert (refused.where, refused.reason) == (where, reason)


@pytest.mark.parametrize(
    "annotation,value,where,complaint",
    [
        (Annotated[int, msgspec.Meta(gt=0)], -1, "result", "Expected `int` >= 1"),
        (list[Annotated[str, msgspec.Meta(max_length=1)]], ["a", "bb"], "result[1]", "length <= 1"),
        (Address, {}, "result", "missing required field `street`"),
        (tuple[int, int], (1, 2, 3), "result", "Expected `array` of length 2"),
    ],
)
def test_a_value_that_breaks_a_rule_of_its_annotation_is_refused(
    annotation: object, value: object, where: str, complaint: str
) -> None:
    refused = refusal(annotation, value)

    assert refused.where == where
    assert complaint in refused.reason


@pytest.mark.parametrize("annotation", [Positive, list[Positive], Any])
def test_a_value_that_its_class_does_not_build_again_is_refused(annotation: object) -> None:
    value = Positive(1)
    value.number = -1

    refused = refusal(annotation, [value] if annotation == list[Positive] else value)

    assert "number must not be negative" in refused.reason


@pytest.mark.parametrize("annotation", [Grown, Any])
def test_a_value_that_changes_when_it_is_built_again_is_refused(annotation: object) -> None:
    refused = refusal(annotation, Grown(1))

    assert (refused.where, refused.reason) == ("result.size", "2 would come back as 3")


def test_a_class_that_takes_more_than_its_fields_is_refused() -> None:
    assert "does not take what was stored" in refusal(Any, Needy(1, 2)).reason


@dataclass
class Needy:
    number: int
    helper: InitVar[int]


@pytest.mark.parametrize("annotation", [Any, dict[str, Any]])
def test_a_local_class_is_refused_where_its_name_would_be_stored(annotation: object) -> None:
    @dataclass
    class Local:
        number: int

    class Choice(enum.Enum):
        ONE = 1

    for value in (Local(1), Choice.ONE):
        assert "is local to a function" in refusal(annotation, {"a": value}).reason


def test_a_local_class_is_stored_where_the_annotation_names_it() -> None:
    @dataclass
    class Local:
        number: int

    assert shape_of(Local).settle(Local(1), "result") == ('{"number":1}', Local(1))
    assert refusal(list[Local], [Local(1), Local(NAN)]).where == "result[1].number"  # type: ignore[arg-type]


def test_a_class_that_hides_behind_another_name_is_refused() -> None:
    impostor = dataclass(type("Line", (), {"__module__": Line.__module__, "__annotations__": {"sku": str}}))
    unknown = dataclass(type("Nobody", (), {"__module__": Line.__module__, "__annotations__": {"sku": str}}))
    nowhere = dataclass(type("Nobody", (), {"__module__": "no.such.module", "__annotations__": {"sku": str}}))

    assert "is not the one that other processes find" in refusal(Any, impostor(sku="a")).reason
    assert "there is no class" in refusal(Any, unknown(sku="a")).reason
    assert "cannot be imported" in refusal(Any, nowhere(sku="a")).reason


def test_attributes_besides_a_scalar_are_not_lost_in_silence() -> None:
    marked = UserId(5)
    marked.note = "x"  # type: ignore[attr-defined]  # what some libraries do

    assert "carries attributes besides its value" in refusal(Any, marked).reason


@pytest.mark.parametrize("base", [list, dict, str, int])
def test_a_record_that_is_a_container_or_a_scalar_too_is_refused(base: type) -> None:
    both = dataclass(type("Both", (base,), {"__annotations__": {"number": int}, "number": 1}))

    assert refusal(Any, both()).where == "result"


def test_the_refusal_is_an_error_of_this_library_and_names_what_it_was_given() -> None:
    refused = refusal(int, "x", where="input")

    assert isinstance(refused, OutlastError)
    assert refused.where == "input"
