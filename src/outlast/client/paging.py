"""Cursors: where the next page of a list begins, as a text that callers hand back without looking into it."""

from __future__ import annotations

import base64
import binascii

from outlast.errors import InvalidArgument
from outlast.ports.store import StoredRun


def cursor_after(run: StoredRun) -> str:
    """Return the cursor that continues after this run."""
    return base64.urlsafe_b64encode(f"{run.created_at},{run.id}".encode()).decode()


def position_after(cursor: str) -> tuple[int, str]:
    """Return the (created_at, id) that a cursor stands for."""
    try:
        created_at, comma, run_id = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(",")
        if comma and run_id and abs(int(created_at)) < 2**63:
            return int(created_at), run_id
    except (TypeError, ValueError, binascii.Error):
        pass
    raise InvalidArgument(f"cursor must be the one that came with the page before; {cursor!r} is not one.")
