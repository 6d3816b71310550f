"""Start runs as one statement over arrays, with the wake-up in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outlast.model.ids import RunId
from outlast.ports.operation import Op, Params, Span, Statement
from outlast.ports.store import NewRun, StartOutcome
from outlast.stores.basis import Basis
from outlast.stores.rows.starting import created_run, existing_runs, in_order
from outlast.stores.tables import Query

# The notice is sent by the statement that creates; once, however many runs it creates. `made` must be named by the last
# part, or it would be run but not told of.
_START: Final = """
with made as (
  insert into {runs} (
    id, workflow, version, status, priority, input, ready, due_at, deadline_at, stop_unseen, signal_cursor,
    turns, lapses, created_at, updated_at
  )
  select new.id, new.workflow, new.version, 'pending', new.priority, new.input, 1, at.now, at.now + new.timeout, 0,
    (select coalesce(max(id), 0) from {signals}), 0, 0, at.now, at.now
  from (select {now} as now{limit}) at, unnest(
    cast(:ids as text[]), cast(:workflows as text[]), cast(:versions as integer[]), cast(:priorities as integer[]),
    cast(:inputs as text[]), cast(:timeouts as bigint[])
  ) new (id, workflow, version, priority, input, timeout)
  on conflict (id) do nothing
  returning id, created_at
)
select id, created_at, (select {notice} where exists (select 1 from made)) from made
"""


AT_ONCE: Final = ", set_config('lock_timeout', '20ms', true) as limited"
"""How long a statement waits for the run of another transaction, set by what stands before its inserts and is read for their
first row. It lasts for the transaction, which is one of ours."""


class StartByArrays:
    """Insert what is absent; read what was there."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        notice = basis.notice("ready")
        self._start = basis.worded(_START, notice=notice, limit="")
        self._start_at_once = basis.worded(_START, notice=notice, limit=AT_ONCE)
        self._existing: Query = existing_runs(basis)

    def start(self, runs: Sequence[NewRun], *, together: bool, waits: bool) -> Op[tuple[StartOutcome, ...]]:
        # One statement creates them all. Only a caller that may still refuse them all needs a transaction around it.
        span: Span = "write" if together and len(runs) > 1 else "alone"
        start = self._start if waits else self._start_at_once
        made = yield Statement(start, start_params(runs), span=span)
        rows = {row[0]: row for row in made.rows}
        if len(rows) == len(runs):
            return tuple(created_run(run, rows[run.id][1]) for run in runs)
        created = {RunId(run_id) for run_id in rows}
        # A new statement, which sees the run of the transaction that the insert waited for.
        found = yield Statement(self._existing, {"ids": [run.id for run in runs]})
        return in_order(runs, created, {row[0]: row for row in found.rows})


def start_params(runs: Sequence[NewRun]) -> Params:
    """Return the arrays of new runs, by id: two calls with the same runs never wait for each other in a circle."""
    ordered = sorted(runs, key=lambda run: run.id)
    return {
        "ids": [run.id for run in ordered],
        "workflows": [run.workflow for run in ordered],
        "versions": [run.version for run in ordered],
        "priorities": [run.priority for run in ordered],
        "inputs": [run.input for run in ordered],
        "timeouts": [run.timeout for run in ordered],
    }
