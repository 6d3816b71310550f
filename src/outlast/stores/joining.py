"""placeholder"""

from __future__ import annotations

from typing import Any


async def join(tx: object, make: Any, dialect: Any, *, read_committed: bool) -> Any:
    raise NotImplementedError


def join_blocking(tx: object, make: Any, dialect: Any, *, read_committed: bool) -> Any:
    raise NotImplementedError
