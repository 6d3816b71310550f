"""Tables of SQLModel, for the tests of stored values. Classes of a module, so that any process can find them."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID, uuid4

from pydantic import field_validator
from sqlmodel import JSON, Column, Field, Relationship, SQLModel


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class TeamBase(SQLModel):
    name: str
    founded: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class Team(TeamBase, table=True):
    id: int | None = Field(default=None, primary_key=True)
    heroes: list["Hero"] = Relationship(back_populates="team")


class Hero(SQLModel, table=True):
    id: UUID = Field(default_factory=uuid4, primary_key=True)
    name: str = Field(alias="heroName")
    paid: Decimal = Field(default=Decimal("1.10"), max_digits=8, decimal_places=2)
    colour: Colour | None = None
    powers: list[str] = Field(default_factory=list, sa_column=Column(JSON))
    team_id: int | None = Field(default=None, foreign_key="team.id")
    team: Team | None = Relationship(back_populates="heroes")

    @field_validator("name")
    @classmethod
    def _is_named(cls, name: str) -> str:
        if not name:
            raise ValueError("a hero has a name")
        return name
