"""What takes back, on a connection of ours to PostgreSQL, all that an application's step may have left on its session."""

from __future__ import annotations

import importlib
from typing import Any, Final

RESET: Final = (
    # A role is no setting that RESET ALL takes back. Of the two that RESET ROLE could go back to, the one of the beginning.
    "set session authorization default; reset role; select pg_advisory_unlock_all(); close all; unlisten *; reset all; "
    "discard temp; discard sequences"
)
"""One round trip. DISCARD ALL would take back statements too that the driver has prepared and goes on using."""


def reset_blocking(connection: Any, _record: object, state: Any) -> None:  # noqa: ANN401 - psycopg's, and SQLAlchemy's
    """Hear of a connection that comes back to the pool of an engine."""
    if state.terminate_only:
        return
    connection.rollback()
    connection.autocommit = True
    driver: Any = importlib.import_module("psycopg")
    connection.row_factory, connection.cursor_factory = driver.rows.tuple_row, driver.Cursor
    connection.execute(RESET)
    connection.autocommit = False
