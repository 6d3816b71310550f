"""Statements that list runs.

A page filtered by one status reads the index on (status, created_at, id); any other page the one on (created_at, id). Both
are read in their order from the last page's end, so a page costs the same wherever it lies.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, Text, and_, bindparam, or_, select

from outlast.ports.operation import Op, Statement
from outlast.ports.store import RunFilter, StoredRun
from outlast.stores.basis import Basis
from outlast.stores.runs import stored_run
from outlast.stores.tables import RUN_COLUMNS, Query


class Inspecting:
    """Pages of runs."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        # One statement for each set of filters in use, so that each is compiled once.
        self._pages: dict[frozenset[str], Query] = {}

    def list(self, wanted: RunFilter) -> Op[tuple[StoredRun, ...]]:
        params = self._params(wanted)
        shape = frozenset(params)
        if shape not in self._pages:
            self._pages[shape] = self._page(shape)
        found = yield Statement(self._pages[shape], params, span="alone")
        return tuple(stored_run(row) for row in found.rows)

    def _params(self, wanted: RunFilter) -> dict[str, object]:
        params: dict[str, object] = {"limit": wanted.limit}
        match [str(status) for status in wanted.statuses]:
            case []:
                pass
            case [status]:
                params["status"] = status
            case statuses:
                params["statuses"] = self._basis.dialect.listed(statuses)
        for name in ("workflow", "version", "created_after", "created_before"):
            value: object = getattr(wanted, name)
            if value is not None:
                params[name] = value
        if wanted.after is not None:
            params["after_at"], params["after_id"] = wanted.after
        return params

    def _page(self, shape: frozenset[str]) -> Query:
        runs = self._basis.tables.runs
        after_at, after_id = bindparam("after_at", type_=BigInteger), bindparam("after_id", type_=Text)
        filters = {
            "status": runs.c.status == bindparam("status", type_=Text),
            "statuses": self._basis.dialect.is_among(runs.c.status, "statuses"),
            "workflow": runs.c.workflow == bindparam("workflow", type_=Text),
            "version": runs.c.version == bindparam("version", type_=Integer),
            "created_after": runs.c.created_at >= bindparam("created_after", type_=BigInteger),
            "created_before": runs.c.created_at < bindparam("created_before", type_=BigInteger),
            # The first half is implied by the second; it is what an index range can be made of.
            "after_at": and_(runs.c.created_at >= after_at, or_(runs.c.created_at > after_at, runs.c.id > after_id)),
        }
        page = (
            select(*(runs.c[name] for name in RUN_COLUMNS))
            .where(*(condition for name, condition in filters.items() if name in shape))
            .order_by(runs.c.created_at, runs.c.id)
            .limit(bindparam("limit", type_=Integer))
        )
        index = "runs_status" if "status" in shape else "runs_created"
        return self._basis.dialect.by_index(page, runs, f"{self._basis.tables.name}_{index}")
