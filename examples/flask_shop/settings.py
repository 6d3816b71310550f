"""The settings of `examples.shop`, with a database that blocking code can use."""

from __future__ import annotations

from dataclasses import dataclass

from examples.shop.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaskSettings(Settings):
    """`SHOP_DATABASE_URL` and the others, from the environment."""

    database_url: str = "sqlite:///shop.db"


settings = FlaskSettings.from_environment()
