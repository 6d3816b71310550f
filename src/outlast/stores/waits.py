"""What counts as a signal for a wait. The index on signals (topic, id) serves it, from the wait's place on."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, FromClause, and_, case, or_

LATE_IDS: Final = 10_000
"""How far below `after_id` a signal may lie that was recorded after `after_at`.

A run's cursor is the highest signal id at its start. A signal sent in the same moment may have drawn a lower id a little
before and be recorded a little later. The bound keeps the search a short range of the index instead of the topic's history.
"""

PER_WAIT: Final = 100
"""Signals handed to one wait at once. A run that takes more than these parks, is found claimable and gets the next."""


def counts(signal: FromClause, wait: FromClause) -> ColumnElement[bool]:
    """Return "this signal is one for this wait"."""
    below = case((wait.c.after_at.is_(None), 0), else_=LATE_IDS)
    return and_(
        signal.c.topic == wait.c.topic,
        signal.c.id > wait.c.after_id - below,
        or_(signal.c.id > wait.c.after_id, signal.c.created_at > wait.c.after_at),
    )
