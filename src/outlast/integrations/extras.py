"""What to install for an integration whose framework is not there."""

from __future__ import annotations


def missing(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return what to raise in the place of `error`: it says which extra brings what could not be imported."""
    return ModuleNotFoundError(
        f'{error.name} is not installed, which outlast.integrations.{extra} is for: pip install "outlast[{extra}]"',
        name=error.name,
    )
