"""Rows of SQLModel are values: they come back as their type, with their columns, and belong to no session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, inspect
from sqlalchemy.pool import StaticPool
from sqlmodel import Session, SQLModel, create_engine, select

from outlast.errors import ValueNotStorable, ValueUnreadable
from outlast.model.values import shape_of
from support.stored_tables import Colour, Hero, Team, TeamBase

NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)


@dataclass
class Transfer:
    hero: Hero
    to: Team | None


def hero(**columns: Any) -> Hero:
    given: dict[str, Any] = {"name": "Ada", "paid": Decimal("2.50"), "colour": Colour.BLUE, "powers": ["to fly"]}
    return Hero(**(given | columns))


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = create_engine("sqlite://", poolclass=StaticPool)
    SQLModel.metadata.create_all(made, tables=[SQLModel.metadata.tables[name] for name in ("team", "hero")])
    yield made
    made.dispose()


@pytest.mark.parametrize(
    "annotation, value",
    [
        (Hero, hero()),
        (Hero | None, hero()),
        (Hero | None, None),
        (list[Hero], [hero(), hero(name="Bob", colour=None)]),
        (dict[str, Team], {"one": Team(id=1, name="Blue", founded=NOON)}),
        (Transfer, Transfer(hero(), Team(name="Red"))),
        (TeamBase, TeamBase(name="Green", founded=NOON)),
        (Any, hero()),
        (Any, [Team(name="Red", founded=NOON), {"hero": hero()}]),
    ],
)
def test_a_row_comes_back_as_its_type_with_its_columns(annotation: object, value: object) -> None:
    shape = shape_of(annotation)

    text, copy = shape.settle(value, "result")

    assert copy == value
    assert shape.decode(text, "result") == value
    assert type(shape.decode(text, "result")) is type(value)


def test_columns_have_their_types_and_not_those_of_json() -> None:
    given = hero()

    _, copy = shape_of(Hero).settle(given, "result")

    assert (copy.id, copy.paid, copy.colour) == (given.id, Decimal("2.50"), Colour.BLUE)
    assert {type(value) for value in (copy.id, copy.paid, copy.colour)} == {type(given.id), Decimal, Colour}


def test_a_row_that_comes_back_belongs_to_no_session_and_can_be_merged_into_one(engine: Engine) -> None:
    with Session(engine) as session:
        given = hero(team=Team(name="Blue"))
        session.add(given)
        session.commit()
        session.refresh(given)
        text, copy = shape_of(Hero).settle(given, "result")
        assert inspect(copy).session is None
        assert inspect(given).session is session

    restored = shape_of(Hero).decode(text, "result")
    restored.name = "Grace"
    with Session(engine) as session:
        session.merge(restored)
        session.commit()
        found = session.exec(select(Hero)).one()
        assert (found.id, found.name) == (restored.id, "Grace")
        assert found.team is not None
        assert found.team.name == "Blue"


@pytest.mark.parametrize("annotation", [Hero, Any, list[Hero]])
def test_a_row_that_a_commit_has_expired_is_refused_with_what_to_do(engine: Engine, annotation: object) -> None:
    """Its columns are not in it any more: stored as it is it would come back with its defaults, or not at all."""
    with Session(engine) as session:
        given = hero()
        session.add(given)
        session.commit()
    value = [given] if annotation == list[Hero] else given

    with pytest.raises(ValueNotStorable, match=r"column 'id' is not loaded.*expire_on_commit=False"):
        shape_of(annotation).settle(value, "result")


def test_a_row_whose_columns_were_never_checked_is_refused_where_they_are_wrong() -> None:
    """A table of SQLModel takes anything when it is made."""
    with pytest.raises(ValueNotStorable, match=r"result\.name"):
        shape_of(Hero).settle(hero(name=""), "result")


def test_a_stored_row_that_does_not_fit_its_table_any_more_is_unreadable() -> None:
    text, _ = shape_of(Hero).settle(hero(), "result")

    with pytest.raises(ValueUnreadable):
        shape_of(Hero).decode(text.replace('"2.50"', '"many"'), "result")
