"""pydantic models are values, alone and inside others, though outlast never imports pydantic."""

from __future__ import annotations

import math
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from pydantic import SecretStr

from outlast.errors import ValueNotStorable, ValueUnreadable
from outlast.model import pydantic_models
from outlast.model.values import shape_of
from support.anatomy import anatomy
from support.stored_models import (
    Aliased,
    Basket,
    Broken,
    Choosy,
    GiftBasket,
    Item,
    Listing,
    Login,
    Loose,
    Measured,
    Names,
    Partial,
    Remembering,
    Shipment,
    Strict,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
basket = Basket(id=1, items=[Item(sku="a", price=1.5)], at=NOON, total=Decimal("1.10"), tags={"x", "y"})

VALUES: list[tuple[object, object]] = [
    (Basket, basket),
    (Basket | None, basket),
    (Basket | None, None),
    (list[Basket], [basket, basket]),
    (dict[str, Basket], {"k": basket}),
    (tuple[Basket, int], (basket, 1)),
    (Shipment, Shipment(basket, Item(sku="b"), {"c": Item(sku="d")})),
    (list[Shipment], [Shipment(basket)]),
    (Aliased, Aliased.model_validate({"userId": 5})),
    (Strict, Strict(at=NOON, amount=Decimal("1.10"))),
    (Listing[Item], Listing[Item](items=[Item(sku="a")])),
    (Names, Names(["a", "b"])),
    (Loose, Loose(data={"a": [1, 1.0, None], "$": 1})),
]


def refusal(annotation: object, value: object) -> ValueNotStorable:
    with pytest.raises(ValueNotStorable) as caught:
        shape_of(annotation).settle(value, "result")
    return caught.value


@pytest.mark.parametrize("annotation,value", VALUES)
def test_a_model_comes_back_as_its_annotated_type(annotation: object, value: object) -> None:
    shape = shape_of(annotation)

    text, copy = shape.settle(value, "result")

    assert anatomy(copy) == anatomy(value)
    assert anatomy(shape.decode(text, "result")) == anatomy(value)
    assert not text.startswith('{"$":')


@pytest.mark.parametrize("value", [value for _, value in VALUES if "[" not in type(value).__name__])
def test_a_model_without_an_annotation_describes_itself(value: object) -> None:
    shape = shape_of(Any)

    text, copy = shape.settle(value, "result")

    assert anatomy(copy) == anatomy(value)
    assert anatomy(shape.decode(text, "result")) == anatomy(value)


@pytest.mark.parametrize("annotation", [Basket, list[Basket], dict[str, Any], Basket | Item])
def test_a_model_of_a_subclass_stays_one(annotation: object) -> None:
    gift = GiftBasket(id=1, message="hello")
    value = {list[Basket]: [gift], dict[str, Any]: {"k": gift}}.get(annotation, gift)  # type: ignore[call-overload]

    assert anatomy(shape_of(annotation).settle(value, "result")[1]) == anatomy(value)


@pytest.mark.parametrize("annotation", [Loose, Any])
@pytest.mark.parametrize("data", [{"$": [1, 1.0, None]}, {"$": "tuple", "v": [1]}])
def test_what_looks_like_a_tag_inside_a_model_is_left_alone(annotation: object, data: object) -> None:
    shape = shape_of(annotation)

    text, copy = shape.settle(Loose(data=data), "result")

    assert anatomy(copy.data) == anatomy(data)
    assert anatomy(shape.decode(text, "result").data) == anatomy(data)


def test_fields_are_stored_by_their_names() -> None:
    assert shape_of(Aliased).encode(Aliased.model_validate({"userId": 5}), "result") == '{"user_id":5}'


@pytest.mark.parametrize(
    "annotation,value,where",
    [
        (Item, Item(sku="a", price=math.nan), "result.price"),
        (Any, Item(sku="a", price=math.inf), "result.price"),
        (list[Item], [Item(sku="a"), Item(sku="a", price=math.nan)], "result[1].price"),
        (Any, {"k": Measured(items=[Item(sku="a"), Item(sku="b", price=math.nan)])}, "result['k'].items[1].price"),
        (Measured, Measured(maybe=math.nan), "result.maybe"),
        (Choosy, Choosy(choice=Item(sku="a", price=math.nan)), "result.choice.price"),
        (Shipment, Shipment(basket, more={"k": Item(sku="a", price=-math.inf)}), "result.more['k'].price"),
    ],
)
def test_not_a_number_in_a_model_is_refused_by_its_place(annotation: object, value: object, where: str) -> None:
    refused = refusal(annotation, value)

    assert refused.where == where
    assert "use None, or Decimal" in refused.reason


@pytest.mark.parametrize("annotated", [True, False])
@pytest.mark.parametrize(
    "value,where,reason",
    [
        (Login(user="ann", password=SecretStr("s3cret")), "result.password", "would come back as"),
        (Partial(shown=1, left_out=2), "result.left_out", "2 would come back as 0"),
        (Loose(data=(1, 2)), "result.data", "its type is tuple, and it would come back as list"),
        (Loose(data=NOON), "result.data", "its type is datetime, and it would come back as str"),
        (Broken(number=1), "result", "the model cannot write itself"),
        (Item.model_construct(sku=5), "result.sku", "the model does not take back what it wrote"),
        (Measured.model_construct(items=[5]), "result.items[0]", "the model does not take back what it wrote"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the values are wrong on purpose
def test_what_a_model_does_not_give_back_is_refused(annotated: bool, value: object, where: str, reason: str) -> None:
    refused = refusal(type(value) if annotated else Any, value)

    assert refused.where == where
    assert reason in refused.reason
    assert "s3cret" not in str(refused)


def test_private_attributes_are_no_part_of_a_model() -> None:
    value = Remembering(number=1)
    value._seen = 5

    assert shape_of(Remembering).settle(value, "result")[1].number == 1


def test_a_model_that_no_longer_validates_is_unreadable() -> None:
    for annotation, text in (Item, '{"price":1}'), (Any, '{"$":"support.stored_models:Item","v":{"price":1}}'):
        with pytest.raises(ValueUnreadable, match="sku"):
            shape_of(annotation).decode(text, "result")


def test_an_older_pydantic_reads_fields_by_their_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic, "VERSION", "2.10.6")
    pydantic_models._reads_names.cache_clear()
    try:
        assert shape_of(Basket).settle(basket, "result")[1] == basket
    finally:
        monkeypatch.undo()
        pydantic_models._reads_names.cache_clear()


def test_an_error_that_tells_no_place_is_told_as_it_is() -> None:
    assert pydantic_models.fault(basket, RuntimeError("odd"), "result") == (basket, "result", "odd")


def test_pydantic_is_never_imported() -> None:
    program = (
        "import sys; from typing import Any; from outlast.model.values import shape_of; "
        "shape_of(Any).settle({'a': (1, 2)}, 'result'); print('pydantic' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
