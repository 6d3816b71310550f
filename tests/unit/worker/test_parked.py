"""Executions of parked runs in memory."""

from __future__ import annotations

from outlast.model.ids import RunId
from outlast.worker.parked import ParkedRuns
from support.worker_fakes import ScriptedExecution

A, B, C = RunId("a"), RunId("b"), RunId("c")


def test_a_parked_run_is_found_once() -> None:
    parked, execution = ParkedRuns(2), ScriptedExecution()
    parked.put(A, execution, 3)

    assert parked.turns == {A: 3}
    assert parked.take(A) is execution
    assert parked.take(A) is None
    assert not execution.is_closed
    assert parked.turns == {}


def test_the_one_parked_longest_ago_is_forgotten_first() -> None:
    parked, executions = ParkedRuns(2), [ScriptedExecution() for _ in range(3)]
    for run_id, execution in zip((A, B, C), executions, strict=True):
        parked.put(run_id, execution, 1)

    assert set(parked.turns) == {B, C}
    assert [execution.is_closed for execution in executions] == [True, False, False]


def test_parking_again_replaces_what_was_there() -> None:
    parked, old, new = ParkedRuns(2), ScriptedExecution(), ScriptedExecution()
    parked.put(A, old, 1)
    parked.put(A, new, 2)
    assert old.is_closed
    assert (parked.turns, len(parked)) == ({A: 2}, 1)


def test_nothing_is_forgotten_while_a_claim_relies_on_it() -> None:
    """The claim was told that `a` is in memory and comes back without its journal; meanwhile others were parked."""
    parked = ParkedRuns(1)
    parked.put(A, ScriptedExecution(), 1)
    with parked.kept():
        parked.put(B, ScriptedExecution(), 1)
        assert parked.take(A) is not None
    parked.put(C, ScriptedExecution(), 1)
    assert set(parked.turns) == {C}


def test_what_is_too_much_is_forgotten_after_the_claim() -> None:
    parked = ParkedRuns(1)
    with parked.kept():
        for run_id in (A, B, C):
            parked.put(run_id, ScriptedExecution(), 1)
        assert len(parked) == 3
    assert set(parked.turns) == {C}


def test_none_are_kept_when_none_are_wanted() -> None:
    parked, execution = ParkedRuns(0), ScriptedExecution()
    parked.put(A, execution, 1)
    assert execution.is_closed
    assert not parked.turns


def test_closing_forgets_all() -> None:
    parked, executions = ParkedRuns(5), [ScriptedExecution(), ScriptedExecution()]
    parked.put(A, executions[0], 1)
    parked.put(B, executions[1], 1)
    parked.close()
    assert all(execution.is_closed for execution in executions)
    assert len(parked) == 0
