"""Classes that tests store values of. They stand in a module of their own, since stored text may name them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec

if TYPE_CHECKING:
    OnlyForTypeCheckers = tuple[int, int]

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Currency(enum.StrEnum):
    EUR = "EUR"
    USD = "USD"


class Corner(enum.Enum):
    NEAR = (0, 0)
    FAR = (1, 1)


class Permission(enum.Flag):
    READ = 1
    WRITE = 2


class UserId(int):
    pass


class Sku(str):
    __slots__ = ()


class Ratio(float):
    pass


class Point(NamedTuple):
    x: int
    y: int = 0


class Address(TypedDict):
    street: str
    city: NotRequired[str]


@dataclass
class Line:
    sku: str
    price: float


@dataclass
class Order:
    id: str
    lines: list[Line]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    id: UUID
    amount: Decimal
    at: datetime
    colour: Colour = Colour.RED
    receipt: bytes = b""
    tags: frozenset[str] = frozenset()
    pair: tuple[int, str] = (0, "")
    where: Point | None = None
    file: Path | None = None
    to: Address | None = None


@dataclass
class RushOrder(Order):
    hours: int = 1


@dataclass
class Event:
    kind: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Box:
    content: Any


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list["Tree"])


@dataclass
class Page(Generic[T]):
    items: list[T]
    after: T | None = None


@dataclass
class Reading:
    """A reading whose value takes no part in comparisons."""

    sensor: str
    value: float | None = field(default=None, compare=False)


@dataclass
class Counted:
    words: list[str]
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.words)


@dataclass
class Grown:
    """A class that is not what it was built from: building it again changes it again."""

    size: int

    def __post_init__(self) -> None:
        self.size += 1


@dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("number must not be negative")


@dataclass(eq=False)
class Incomparable:
    number: int

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("these are not to be compared")

    __hash__ = None  # type: ignore[assignment]  # unhashable, as whatever defines __eq__ alone


class Touchy(str):
    """A text that is not to be compared."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("these are not to be compared")

    __hash__ = str.__hash__


@dataclass
class Either:
    """JSON alone cannot tell which of two classes a field held."""

    chosen: Line | Event


@attrs.define
class Parcel:
    weight: int
    label: str = "none"


@attrs.define
class Secretive:
    shown: int
    _hidden: int = 0


@attrs.define
class Sealed:
    _secret: int
    shown: str = ""


@attrs.define
class Later:
    shown: int
    _count: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._count = self.shown


@dataclass
class Crate:
    sealed: Sealed
    more: list[Sealed | None]


class Ping(msgspec.Struct):
    host: str
    port: int = 80


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


class Patch(msgspec.Struct):
    name: str | msgspec.UnsetType = msgspec.UNSET
    age: int | msgspec.UnsetType | None = msgspec.UNSET


class Dollar(msgspec.Struct, rename={"amount": "$"}):
    amount: int


class Outer:
    @dataclass
    class Inner:
        number: int


@dataclass
class Unresolved:
    """Its annotation is a name that exists for type checkers alone."""

    content: OnlyForTypeCheckers


class Plain:
    """No class that can be stored."""
