"""What a transactional step may write in its own transaction, and who lets it.

When the function has returned its attempt asks its turn. The turn gives a grant: all that the run has not made durable, and
the step's own record after it. From then until the attempt tells what became of the transaction the run records nothing
else, so the place of that record stays free; other runs go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from outlast.engine.decision import StepCall
from outlast.model.ids import RunId
from outlast.model.journal import Record
from outlast.ports.store import Batch, Lease
from outlast.worker.steps import Ending


@dataclass(frozen=True, slots=True)
class Grant:
    """What is written in the step's transaction, under which lease. `entry` is the step's own record, the last of the batch.

    Records that a flush has under way are in it too: whichever comes first writes them, and the other changes nothing.
    """

    run_id: RunId
    lease: Lease
    batch: Batch
    entry: Record
    lose: Callable[[], None]
    """To be called when the lease is found to be over."""

    give_back: Callable[[], None]
    """To be called when nothing of this is committed and the attempt goes on: it asks again."""


class Asking(Protocol):
    """An attempt whose function has returned. Its answer comes from a plain callback of the loop."""

    call: StepCall

    @property
    def is_heard(self) -> bool:
        """False when the turn does not listen to it any more."""
        ...

    def grant(self, grant: Grant) -> None:
        """Write this and commit."""
        ...

    def refuse(self, error: BaseException) -> None:
        """Roll back, and end as having raised this."""
        ...


Ask = Callable[[Asking, object], None]


class Grants:
    """The grants of one turn: one at a time."""

    __slots__ = ("asking", "current", "included", "late")

    def __init__(self) -> None:
        self.current: StepCall | None = None
        self.included: int = 0
        """How many of the records that wait to be flushed are in the current grant."""
        self.asking: deque[tuple[Asking, object]] = deque()
        self.late: deque[tuple[StepCall, Ending]] = deque()
        """How other attempts ended meanwhile."""

    def next_asking(self) -> tuple[Asking, object] | None:
        """Return who asked first and still listens."""
        while self.asking:
            attempt, value = self.asking.popleft()
            if attempt.is_heard:
                return attempt, value
        return None

    def clear(self) -> None:
        """Forget all: the attempts are dropped, so of those that ask none is listened to any more."""
        self.current = None
        self.late.clear()


NO_GRANTS: Final = Grants()
"""For turns without a transactional step, which are nearly all. Never changed."""
