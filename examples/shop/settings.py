"""What differs between a laptop, the demo and production, read once from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`SHOP_LEASE=2s` in the environment sets `lease`, and so on. Durations are those of outlast: "3d", "1h30m"."""

    database_url: str = "sqlite+aiosqlite:///shop.db"
    providers_url: str = "http://127.0.0.1:8001"
    lease: str = "30s"
    delivery_within: str = "3d"
    review_after: str = "7d"

    @classmethod
    def from_environment(cls) -> Settings:
        """Take every field from its variable, or leave its default."""
        variables = {name: os.environ.get(f"SHOP_{name.upper()}") for name in cls.__dataclass_fields__}
        return cls(**{name: value for name, value in variables.items() if value is not None})


settings = Settings.from_environment()
