"""A workflow under a name that another one has."""

from __future__ import annotations

from outlast import Context, workflow


@workflow("fulfil")
async def fulfil_twice(ctx: Context) -> None:
    """Do nothing."""
