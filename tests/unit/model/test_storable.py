"""An annotation that promises what can never be stored is refused by its name; what may turn out well passes."""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NewType, Protocol, TypedDict, TypeVar

import pytest

from outlast import DefinitionError, Signal
from outlast.model.storable import check_storable
from support.stored_models import Basket

T = TypeVar("T")
Number = NewType("Number", int)


class Receipt:
    """A plain class: nothing says what it is made of."""

    def __init__(self, number: str) -> None:
        self.number = number


class Marker:
    pass


class Event:
    pass


@dataclass
class Paid(Event):
    number: str


@dataclass
class Holding:
    receipt: Receipt


@dataclass
class MayHold:
    number: str
    receipt: Receipt | None = None


@dataclass
class Tree:
    parts: list[Tree]


class Row(TypedDict):
    receipt: Receipt


class Numbered(Protocol):
    number: str


class Abstract(abc.ABC):
    @abc.abstractmethod
    def number(self) -> str: ...


NEVER = [
    Receipt,
    Marker,
    threading.Event,
    list[Receipt],
    dict[str, Receipt],
    tuple[int, Receipt],
    Receipt | None,
    Receipt | Marker,
    Holding,
    Row,
]
PERHAPS = [
    Any, object, None, T, int, str, Number, Path, Paid, Paid | Receipt, Event, MayHold, Tree, Numbered, Abstract, Basket,
    Sequence[int], Iterable[Any], list[Paid], dict[str, Any], "Nowhere", BaseException.__init__,
]  # fmt: skip


@pytest.mark.parametrize("annotation", NEVER, ids=str)
def test_what_no_value_can_be_stored_of_is_refused(annotation: object) -> None:
    with pytest.raises(DefinitionError, match="Make it a dataclass"):
        check_storable("the result of step 'pay'", annotation)


@pytest.mark.parametrize("annotation", PERHAPS, ids=str)
def test_what_may_turn_out_well_passes(annotation: object) -> None:
    check_storable("the result of step 'pay'", annotation)


def test_the_message_names_the_class_and_where_it_stands() -> None:
    with pytest.raises(
        DefinitionError, match=r"^The input of workflow 'pay' is annotated with Receipt, whose instances"
    ):
        check_storable("the input of workflow 'pay'", list[Receipt])


def test_a_class_without_a_constructor_may_have_subclasses_further_down() -> None:
    check_storable("the result of step 'pay'", Marker, is_declared=False)

    with pytest.raises(DefinitionError):
        check_storable("the result of step 'pay'", Receipt, is_declared=False)


def test_a_signal_that_could_never_be_sent_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DefinitionError, match="The payload of signal 'paid' is annotated with Receipt"):
        Signal("paid", Receipt)
