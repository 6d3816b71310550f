"""What the types alone tell of whether a value can be stored as another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NewType, Protocol, TypedDict, TypeVar, Union

import pytest

from outlast.events.fitting import fits
from outlast.model.classes import type_name


class Base: ...


class Derived(Base): ...


class Row(TypedDict):
    id: str


class Named(Protocol):
    name: str


OrderId = NewType("OrderId", str)
Number = TypeVar("Number")


@pytest.mark.parametrize(
    "given, wanted",
    [
        (Derived, Base),
        (Base, Base),
        (Base, object),
        (Base, Any),
        (Any, Base),
        (object, Base),
        (int, float),
        (bool, int),
        (str, str | None),
        (None, str | None),
        (str | None, str | int | None),
        (int | bool, int),
        (Number, float),
        (Number, Row),
        (OrderId, str),
        (str, OrderId),
        (Annotated[str, "an id"], str),
        (list[int], list[str]),
        (list[int], Sequence),
        (dict, Row),
        (Row, Row),
        (Base, Named),
        ("a forward reference", Base),
    ],
)
def test_what_fits_or_cannot_be_judged(given: object, wanted: object) -> None:
    assert fits(given, wanted)


@pytest.mark.parametrize(
    "given, wanted",
    [
        (Base, Derived),
        (Base, str),
        (str, None),
        (str | None, str),
        (Union[int, str], int),  # noqa: UP007  the older spelling
        (float, int),
        (str, float),
        (OrderId, int),
        (Annotated[str, "an id"], int),
        (list[int], dict[str, int]),
        (Base, Row),
        (bytes, str | None),
    ],
)
def test_what_does_not_fit(given: object, wanted: object) -> None:
    assert not fits(given, wanted)


def test_a_type_is_named_as_its_reader_knows_it() -> None:
    kinds = (Base, Row, OrderId, Any, str | None, list[int], None)

    assert [type_name(kind) for kind in kinds] == ["Base", "Row", "OrderId", "Any", "str | None", "list[int]", "None"]
