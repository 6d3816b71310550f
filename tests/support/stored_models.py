"""pydantic models that tests store values of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, field_serializer

T = TypeVar("T")


class Item(BaseModel):
    sku: str
    price: float = 0.0


class Basket(BaseModel):
    id: int
    items: list[Item] = []
    at: datetime | None = None
    total: Decimal = Decimal(0)
    tags: set[str] = set()


class GiftBasket(Basket):
    message: str = ""


class Aliased(BaseModel):
    user_id: int = Field(validation_alias="userId", serialization_alias="USER")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    at: datetime
    amount: Decimal


class Loose(BaseModel):
    data: Any = None


class Login(BaseModel):
    user: str
    password: SecretStr


class Partial(BaseModel):
    shown: int
    left_out: int = Field(default=0, exclude=True)


class Measured(BaseModel):
    items: list[Item] = []
    maybe: float | None = None


class Choosy(BaseModel):
    choice: Item | Basket


class Broken(BaseModel):
    number: int

    @field_serializer("number")
    def refuse(self, _value: int) -> int:
        raise RuntimeError("no serializing today")


class Remembering(BaseModel):
    number: int
    _seen: int = PrivateAttr(default=0)


class Listing(BaseModel, Generic[T]):
    items: list[T]


class Names(RootModel[list[str]]):
    pass


@dataclass
class Shipment:
    basket: Basket
    spare: Item | None = None
    more: dict[str, Item] | None = None
