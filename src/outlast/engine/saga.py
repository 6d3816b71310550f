"""Undoing: which completed steps are undone, in which order, and how that ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from outlast.engine.host import StepOptions, Undo
from outlast.engine.performing import Action
from outlast.engine.replaying import Journal
from outlast.engine.stepcontext import CompensationContext, StepContext, compensation_name
from outlast.errors import Failure
from outlast.model.ids import RunId
from outlast.model.journal import Kind, Phase
from outlast.model.options import Retry, RetryPolicy
from outlast.model.values import Shape


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one step in the order of undoing. It is armed by the step's recorded result."""

    step: str
    undo: Undo
    retry: Retry | None
    shape: Shape[Any]
    result: str | None = None
    is_armed: bool = False

    def arm(self, result: str | None) -> None:
        """The step has completed: it can be undone from now on."""
        self.result = result
        self.is_armed = True


class Saga:
    """The compensations of one run."""

    def __init__(self, run_id: RunId, journal: Journal, default_retry: RetryPolicy) -> None:
        self._run_id = run_id
        self._journal = journal
        self._default_retry = default_retry
        self._slots: list[Slot] = []

    def reserve(self, step: str, options: StepOptions, shape: Shape[Any]) -> Slot | None:
        """Take the next place, if the step can be undone: undoing goes by the order in which steps were called."""
        if options.undo is None:
            return None
        slot = Slot(step, options.undo, options.undo_retry or options.retry, shape)
        self._slots.append(slot)
        return slot

    def commit(self) -> None:
        """What has completed so far is not undone any more."""
        self._slots = [slot for slot in self._slots if not slot.is_armed]

    def check(self) -> None:
        """Raise JournalMismatch when something else was undone before than this code would undo."""
        known = {compensation_name(slot.step) for slot in self._slots if slot.is_armed}
        for name, recorded in self._journal.compensations.items():
            if name not in known:
                raise self._journal.mismatched(recorded.first, "no compensation of that name")

    def next(self, reason: Failure) -> Action | None:
        """Return what is to be undone next, the last called step first; None when all is done."""
        while self._slots:
            slot = self._slots[-1]
            recorded = self._journal.compensations.get(compensation_name(slot.step))
            is_undone = recorded is not None and recorded.final is not None and recorded.final.phase is Phase.DONE
            if slot.is_armed and not is_undone:
                action = self._action(slot, reason)
                action.recall(recorded)
                return action
            self._slots.pop()
        return None

    def undone(self) -> None:
        """What `next` returned has been done."""
        self._slots.pop()

    def _action(self, slot: Slot, reason: Failure) -> Action:
        return Action(
            name=compensation_name(slot.step),
            kind=Kind.COMPENSATION,
            function=partial(_undo, self._run_id, slot),
            make_context=partial(self._context, slot, reason),
            is_awaited=slot.undo.is_awaited,
            policy=self._default_retry if slot.retry is None else slot.retry.over(self._default_retry),
            shape=None,
            is_transactional=slot.undo.is_transactional,
        )

    def _context(self, slot: Slot, reason: Failure, attempt: int) -> StepContext:
        return CompensationContext(self._run_id, slot.step, attempt, reason=reason)


def _undo(run_id: RunId, slot: Slot, context: CompensationContext, *tx: object) -> object:
    # Read again for each attempt: what the workflow's code did to its own copy is not recorded.
    result = slot.shape.decode(slot.result or "", f"result of step {slot.step!r} of run {run_id!r}")
    return slot.undo.function(*tx, context, result)
