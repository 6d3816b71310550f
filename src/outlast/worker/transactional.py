"""Performs attempts of transactional steps: in a transaction of the application's, which commits with their record.

    begin      the application's transaction is begun and marked
    function   it is called with the session or connection
    ask        the turn gives what is to be written, or nothing: a timeout, a shutdown or a lost lease came first
    write      in the same transaction, if it is still the same: the lease is proven, the record inserted
    commit     by the application's context manager
    confirm    where it is not certain what became of that, the journal is asked

What the database refuses because others were in the way (a deadlock, what it cannot serialize) says nothing about the step:
nothing is recorded, and the attempt begins from the top after a short pause (`transactional_tries`).

Until the grant an attempt can be interrupted like any other, and rolls back. After it nothing is interrupted: only the
database decides. Held by tests/faults/test_interrupted_transactions.py.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, Final

from outlast.engine.decision import StepCall
from outlast.engine.performing import discard
from outlast.errors import (
    DatabaseUnavailable,
    DefinitionError,
    InvalidArgument,
    LeaseLost,
    NotATransaction,
    OutlastError,
    TransactionEnded,
)
from outlast.model.ids import RunId
from outlast.ports.database import Database, MakeOp
from outlast.ports.store import Batch, FlushOutcome
from outlast.ports.transactions import Transactions
from outlast.worker.granting import Ask, Grant
from outlast.worker.steps import RECORDED, Attempt, Ending, Raised, Report, Steps, ThreadAttempt
from outlast.worker.transactional_tries import Tries

logger: Final = logging.getLogger("outlast.worker")

_PATIENCE: Final = 5.0
_PAUSE: Final = 1.0
_LOOK: Final = 1.0
"""Seconds between two looks of a waiting thread at whether there is still a loop that could answer it."""


class _Withdrawn(Exception):
    """Nobody waits for this attempt any more: roll back."""


class _IsAwaited(Exception):
    """A plain function, or a source whose colour only a call tells, gave something to await."""


class TransactionalSteps:
    """Begin attempts in transactions."""

    def __init__(
        self, database: Database, transactions: Transactions, steps: Steps, *, look: Callable[[], None]
    ) -> None:
        self.database = database
        self.transactions = transactions
        self.steps = steps
        self._look = look
        self._most = 1 if transactions.has_one_writer else None
        self._inside: set[_TransactionAttempt] = set()
        self._waiting: deque[_TransactionAttempt] = deque()

    def perform(self, run_id: RunId, call: StepCall, report: Report, ask: Ask) -> Attempt:
        """Begin an attempt and report its outcome once, from a plain callback of the loop.

        Raises InvalidArgument when the application gives no transaction that the function could use: its run is held.
        """
        awaits = self._awaits(call)
        attempt = _TransactionAttempt(self, run_id, call, report, ask, awaits=awaits)
        self.admit(attempt)
        return attempt

    def admit(self, attempt: _TransactionAttempt) -> None:
        """Have it begin as soon as it may."""
        self._waiting.append(attempt)
        self._admit()

    def is_conflict(self, error: BaseException) -> bool:
        """Tell whether others were in the way of the transaction. An error of ours was raised after patience enough."""
        return not isinstance(error, OutlastError) and self.database.is_conflict(error)

    def withdraw(self, attempt: _TransactionAttempt) -> bool:
        """Take back an attempt that waits for others of this process; False when it has begun."""
        try:
            self._waiting.remove(attempt)
        except ValueError:
            return False
        return True

    def leave(self, attempt: _TransactionAttempt) -> None:
        """Its transaction is over; the next may begin."""
        self._inside.discard(attempt)
        self._admit()

    def committed(self) -> None:
        """Look for what it may have started, where nobody is told of a commit."""
        if self.transactions.has_one_writer:
            self._look()

    def _admit(self) -> None:
        while self._waiting and (self._most is None or len(self._inside) < self._most):
            attempt = self._waiting.popleft()
            self._inside.add(attempt)
            attempt.enter()

    def _awaits(self, call: StepCall) -> bool:
        has_awaiting, has_blocking = self.transactions.awaiting is not None, self.transactions.blocking is not None
        if not (has_awaiting or (has_blocking and not call.is_async)):
            if has_blocking:
                raise InvalidArgument(
                    f"Transactional step {call.name!r} is an `async def`, but this app's transactions are blocking. Make it "
                    "a plain function, which runs on a thread, or give Outlast(transactions=...) one that is awaited, such "
                    "as an async_sessionmaker."
                )
            raise InvalidArgument(
                f"Transactional step {call.name!r} needs a transaction, and this app has none to give: pass "
                "Outlast(transactions=...), such as a sessionmaker."
            )
        return call.is_async or not has_blocking

    async def confirm(self, grant: Grant) -> bool:
        """Ask whether the record is in the journal, until there is an answer. Raises LeaseLost."""
        entry = Batch(records=((grant.run_id, grant.entry),))
        store = self.database.store
        while True:
            try:
                # It waits for a COMMIT that is still on its way. Held by tests/faults/test_transactional_steps.py.
                return await self.database.run(lambda: store.flushed(grant.lease, entry), patience=_PATIENCE)
            except DatabaseUnavailable as error:
                logger.warning("What became of a step of run %r is not known yet: %s", grant.run_id, error)
                await asyncio.sleep(_PAUSE)

    def writing(self, grant: Grant) -> MakeOp[FlushOutcome]:
        """Return the op that records the step."""
        store = self.database.store
        return lambda: store.flush(grant.lease, grant.batch)


class _TransactionAttempt(ThreadAttempt):
    """An attempt in a transaction: on the loop when that is awaited, else on a thread."""

    __slots__ = (
        "_answer", "_ask", "_awaits", "_error", "_granted", "_is_aborted", "_is_entering", "_pause", "_room", "_tries",
    )  # fmt: skip

    def __init__(
        self, room: TransactionalSteps, run_id: RunId, call: StepCall, report: Report, ask: Ask, *, awaits: bool
    ) -> None:
        super().__init__(room.steps, run_id, call, report)
        self._room = room
        self._ask = ask
        self._awaits = awaits
        self._answer: Future[Grant] | None = None
        self._granted: Grant | None = None
        self._error: BaseException | None = None
        self._tries = Tries(call.timeout)
        self._pause: asyncio.TimerHandle | None = None
        self._is_aborted = False
        self._is_entering = False

    def enter(self) -> None:
        """Begin: no other has the database."""
        if self._awaits:
            self._await(self._perform_awaiting)
            self.started()
        else:
            self._steps.threads.run(self)

    def started(self) -> None:
        left = self._tries.left(self._steps.loop.time())
        if left is not None and self._report is not None:
            self._disarm()
            self._arm(self._expire, left)

    # In the transaction.

    async def _perform_awaiting(self) -> object:
        begin, database = self._room.transactions.awaiting, self._room.database
        assert begin is not None
        manager = begin()
        if not hasattr(manager, "__aenter__"):
            raise self._unfit(manager, "`async with`")
        self._is_entering = True
        async with manager as tx:
            self._is_entering = False
            if not self.is_heard:
                raise _Withdrawn
            await database.mark(tx)
            value = self.call.invoke(tx)
            if inspect.isawaitable(value):
                value = await value
            elif not self.call.is_async:
                raise self._plain(tx)
            answer: Future[Grant] = Future()
            self._settles(value, answer)
            grant = await asyncio.wrap_future(answer)
            _check(grant, await database.join_marked(tx, self._room.writing(grant)))
        self._check_granted()
        return None

    def work(self) -> object:
        return self._context.run(self._perform)

    def _perform(self) -> None:
        begin, database = self._room.transactions.blocking, self._room.database
        assert begin is not None
        manager = begin()
        if not hasattr(manager, "__enter__"):
            if hasattr(manager, "__aenter__"):
                raise _IsAwaited
            raise self._unfit(manager, "`with`")
        with manager as tx:
            database.mark_blocking(tx)
            value = self.call.invoke(tx)
            if inspect.isawaitable(value):
                discard(value)
                raise _IsAwaited
            grant = self._granted_from_loop(value)
            _check(grant, database.join_marked_blocking(tx, self._room.writing(grant)))
        self._check_granted()

    def _check_granted(self) -> None:
        if self._granted is None:
            raise TransactionEnded(
                f"What transactions= returned swallowed the error of step {self.call.name!r}. It has to let errors out."
            )

    def _granted_from_loop(self, value: object) -> Grant:
        answer: Future[Grant] = Future()
        loop = self._steps.loop
        loop.call_soon_threadsafe(self._settles, value, answer, context=self._steps.context)
        while True:
            try:
                return answer.result(_LOOK)
            except NotYet:
                if loop.is_closed():
                    raise _Withdrawn from None

    def _unfit(self, manager: object, how: str) -> NotATransaction:
        return NotATransaction(
            f"transactions= returned a {type(manager).__qualname__} for step {self.call.name!r}, which cannot be entered "
            f"with {how}."
        )

    def _plain(self, tx: object) -> DefinitionError:
        """What it asked of the session would never be awaited, and so never be done, while the step counts as done."""
        return DefinitionError(
            f"Transactional step {self.call.name!r} is a plain function, but this app's transactions are awaited: of the "
            f"{type(tx).__qualname__} it was given it can await nothing. Make it an `async def`, or give "
            "Outlast(transactions=...) one that blocks, such as a sessionmaker."
        )

    # The turn's answer.

    @property
    def is_heard(self) -> bool:
        return self._report is not None and not self._is_cut

    def _settles(self, value: object, answer: Future[Grant]) -> None:
        self._answer = answer
        if self.is_heard:
            self._ask(self, value)
        else:
            self.refuse(_Withdrawn())

    def grant(self, grant: Grant) -> None:
        self._disarm()
        self._granted = grant
        self._reply().set_result(grant)

    def refuse(self, error: BaseException) -> None:
        self._reply().set_exception(error)

    def _reply(self) -> Future[Grant]:
        answer, self._answer = self._answer, None
        assert answer is not None
        return answer

    # When others were in the way.

    def _tries_again(self, error: BaseException) -> bool:
        """Begin from the top, after a pause, if that is why nothing is committed, and nobody wants it to end."""
        loop = self._steps.loop
        if self._is_aborted or not self.is_heard or not self._room.is_conflict(error):
            return False
        pause = self._tries.next_pause(loop.time())
        if pause is None:
            return False
        if self._tries.conflicts == 1:
            logger.info(
                "The transaction of step %r of run %r is begun again; others were in its way: %s",
                self.call.name, self._run_id, error,
            )  # fmt: skip
        self._granted = self._error = self._task = None
        self._context = self._steps.context.copy()
        self.started()
        self._pause = loop.call_later(pause, self._begin_again, context=self._steps.context)
        return True

    def _begin_again(self) -> None:
        self._pause = None
        self._room.admit(self)

    def _withdraw(self) -> bool:
        """Take it back from wherever it waits to begin; False when it has begun."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            return True
        if self._room.withdraw(self):
            return True
        if self._task is None and self._steps.threads.withdraw(self):
            self._room.leave(self)
            return True
        return False

    def _late(self) -> Raised:
        conflicts = self._tries.conflicts
        if not conflicts:
            return super()._late()
        return Raised(
            TimeoutError(
                f"step {self.call.name!r} took longer than its timeout of {self.call.timeout}; others were in the way of "
                f"its transaction {conflicts} times"
            )
        )

    # What others want of it.

    def _end(self, ending: Ending) -> None:
        if self._answer is not None:
            self.refuse(_Withdrawn())
        super()._end(ending)

    def request_stop(self) -> None:
        self._is_aborted = self.call.on_cancel == "abort"
        super().request_stop()

    def _expire(self) -> None:
        self._withdraw()
        super()._expire()

    def cut(self) -> None:
        if self._granted is None:
            super().cut()

    def _interrupt(self, ending: Ending) -> bool:
        if self._granted is not None:
            return False  # Only the database can tell any more.
        if self._is_entering and self._is_cut and self._report is not None:
            # asyncpg complains on stderr, when it is collected, of each connection that is cut short while it is made.
            return True
        if self._answer is not None:
            self.refuse(_Withdrawn())
        if self._withdraw():
            self._end_soon(ending)
            return True
        return super()._interrupt(ending)

    # How it ended.

    def _done(self, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._granted is not None:
            del self._steps.tasks[task]
            self._finish(error)
            return
        if error is not None and self._tries_again(error):
            del self._steps.tasks[task]
        else:
            super()._done(task)
        self._room.leave(self)

    def returned(self, value: object) -> None:  # noqa: ARG002  what the function returned is recorded
        self._finish(None)

    def raised(self, error: BaseException) -> None:
        if self._granted is not None:
            self._finish(error)
        elif isinstance(error, _IsAwaited) and self._room.transactions.awaiting is not None and self.is_heard:
            self._disarm()
            self._awaits = True
            self.enter()
        else:
            if not self._tries_again(error):
                self._end(Raised(self._told(error)))
            self._room.leave(self)

    def _told(self, error: BaseException) -> BaseException:
        if not isinstance(error, _IsAwaited):
            return error
        return InvalidArgument(
            f"The function of transactional step {self.call.name!r} gave something to await, but this app's transactions "
            "are blocking. Do the work in a plain function, or give Outlast(transactions=...) one that is awaited."
        )

    def _finish(self, error: BaseException | None) -> None:
        """The transaction that was granted is over; `error` left it."""
        is_certain = error is None and self._room.transactions.is_sure
        if self._report is None or is_certain:
            self._room.leave(self)
            if self._report is not None:
                self._recorded()
            return
        self._error = error
        grant = self._granted
        assert grant is not None
        task = self._steps.task(
            lambda: self._room.confirm(grant), self._run_id, self.call.name, self._steps.context.copy()
        )
        task.add_done_callback(self._confirmed, context=self._steps.context)

    def _confirmed(self, task: asyncio.Task[Any]) -> None:
        del self._steps.tasks[task]
        # Only now: where one writes at a time, the next would hold what the answer waited for, and wait for the turn.
        self._room.leave(self)
        failed = asyncio.CancelledError() if task.cancelled() else task.exception()
        grant = self._granted
        assert grant is not None
        if isinstance(failed, LeaseLost):
            grant.lose()
        elif failed is not None:
            self._end(Raised(failed))
        elif task.result():
            self._recorded()
        else:
            why = self._why_not()
            if self._tries_again(why):
                grant.give_back()
            else:
                self._end(Raised(why))

    def _recorded(self) -> None:
        self._room.committed()
        self._end(RECORDED)

    def _why_not(self) -> BaseException:
        """Say why nothing was committed, though the lease holds."""
        error = self._error
        if isinstance(error, LeaseLost):
            return NotATransaction(
                f"The transaction of step {self.call.name!r} does not see this worker's lease. It has to be on the database "
                "in which outlast's tables are."
            )
        if error is None:
            return TransactionEnded(
                f"The transaction of step {self.call.name!r} ended without an error, and yet it was not committed. What "
                "transactions= returns has to commit at its end: `async_sessionmaker.begin` does, a bare session does not."
            )
        return error


def _check(grant: Grant, outcome: FlushOutcome) -> None:
    if outcome.lost:
        raise LeaseLost(f"Run {grant.run_id!r} is not this worker's any more; its step was rolled back.")
