"""Tasks that the code leaves behind when it returns. They are cancelled, as asyncio does; but not without a word.

A task that waits for a time, a signal or another task may well be meant to end so. One that waits for a step leaves work
behind, and a step that the code asked for in its last stretch has never begun: that is a call that did nothing, and fails
the run as a forgotten `await` does. It depends on the journal alone, so a replay comes to the same end.
Held by tests/replay/test_unfinished_tasks.py.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from outlast.engine.decision import RunFacts
from outlast.engine.eventloop import WorkflowTask, waiting_frame
from outlast.engine.performing import NOT_BEGUN
from outlast.errors import DefinitionError

logger: Final = logging.getLogger("outlast.engine")

_MOST_TOLD: Final = 5
_UNNAMED: Final = re.compile(r"Task-\d+")
"""What asyncio calls a task, by how many the process has made."""


class Asked(Protocol):
    """A step that the code waits for."""

    @property
    def name(self) -> str: ...

    @property
    def delivery(self) -> int:
        """The number of the delivery after which it was asked for."""
        ...


class Unfinished(msgspec.Struct, frozen=True):
    """A task that had not ended: where it stands, and how the step does that it waits for."""

    at: str
    step: str = ""
    how: str = ""
    is_lost: bool = False
    """Whether that step has never begun."""


def unfinished(
    tasks: Iterable[WorkflowTask[Any]], steps: Mapping[int, Asked], delivery: int, standing: Callable[[str], str]
) -> tuple[Unfinished, ...]:
    """Look at the tasks of code that has returned. `steps` are by the futures that they are waited for with; `delivery` is
    the last one, and `standing` tells how a step does."""
    found: list[Unfinished] = []
    for task in tasks:
        waited_for: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
        step = steps.get(id(waited_for))
        if step is None:
            found.append(Unfinished(_described(task)))
        else:
            how = standing(step.name)
            is_lost = how == NOT_BEGUN and step.delivery == delivery
            found.append(Unfinished(_described(task), step.name, how, is_lost))
    return tuple(found)


def lost_step(left: Sequence[Unfinished]) -> DefinitionError | None:
    """Return what to say of a step that has never begun; None where there is none."""
    for task in left:
        if task.is_lost:
            return DefinitionError(
                f"The code has returned and left a task behind, {task.at}: its step {task.step!r} has not begun, and so has "
                "done nothing. Await the task before the return, as with asyncio.gather or asyncio.TaskGroup; or cancel it."
            )
    return None


def tell(facts: RunFacts, left: Sequence[Unfinished]) -> None:
    """Say in the log what was left behind."""
    if not left:
        return
    of_weight_first = sorted(left, key=lambda task: not task.step)
    told = "; ".join(_told(task) for task in of_weight_first[:_MOST_TOLD])
    more = f"; and {len(left) - _MOST_TOLD} more" if len(left) > _MOST_TOLD else ""
    logger.log(
        logging.WARNING if any(task.step for task in left) else logging.INFO,
        "Run %r of workflow %r version %d has returned and left %s behind, which cancels what had not ended: %s%s. Await "
        "what is to be done (asyncio.gather, asyncio.TaskGroup), and cancel what is not.",
        facts.id, facts.workflow, facts.version, "a task" if len(left) == 1 else f"{len(left)} tasks", told, more,
    )  # fmt: skip


def _told(task: Unfinished) -> str:
    return f"{task.at}, at step {task.step!r}, which {task.how}" if task.step else task.at


def _described(task: WorkflowTask[Any]) -> str:
    name = task.get_name()
    called = "" if _UNNAMED.fullmatch(name) else f"{name!r}: "
    if task.call is not None:
        return f"{called}{task.call.cr_name} ({task.call.cr_place})"
    frame = waiting_frame(task)
    coroutine: Any = task.get_coro()
    place = "" if frame is None else f" ({frame.f_code.co_filename}:{frame.f_lineno})"
    return f"{called}{coroutine.__qualname__}{place}"
