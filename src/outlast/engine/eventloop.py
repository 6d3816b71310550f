"""The event loop that workflow code runs on: a queue of callbacks and nothing else.

It does no I/O, never blocks and knows no time of its own. What is ready runs in the order it became ready, so the same
deliveries lead to the same run of the code; timers and the clock are asked of the run, which records them.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from contextvars import Context
from itertools import chain
from types import FrameType, TracebackType
from typing import Any, Final, Protocol, TypeAlias, TypeVar, TypeVarTuple, Unpack, cast

from outlast.engine.calls import CallToBeAwaited
from outlast.model.origins import frame_of_application

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

MOST_HANDLES: Final = 1_000_000
_MOST_CLOSES: Final = 1_000


class LoopHost(Protocol):
    """The run that a loop belongs to."""

    def refuse_call(self, call: str) -> asyncio.Future[Any]:
        """Workflow code called something of the loop that it may not. What is returned instead of raising never ends."""
        ...

    def loop_time(self) -> float:
        """Return the recorded time in seconds."""
        ...

    def start_timer(self, handle: asyncio.TimerHandle, delay: float | None) -> None:
        """Make the handle ready after `delay` seconds, or at the time of its `when`; durably."""
        ...

    def drop_timer(self, handle: asyncio.TimerHandle) -> None:
        """The handle is not to run any more."""
        ...

    def report_unhandled(self, context: dict[str, Any]) -> None:
        """An error came out of a callback, or nobody asked for a task's error."""
        ...


class _Nobody:
    """Whose loop it is when its run is over: what is collected later may still tell the loop of it."""

    def refuse_call(self, call: str) -> asyncio.Future[Any]:
        raise RuntimeError(f"{call}: the run is over")

    def loop_time(self) -> float:
        return 0.0

    def start_timer(self, handle: asyncio.TimerHandle, delay: float | None) -> None:
        """Nothing runs any more."""

    def drop_timer(self, handle: asyncio.TimerHandle) -> None:
        """Nothing runs any more."""

    def report_unhandled(self, context: dict[str, Any]) -> None:
        """Nobody is there to be told."""


_NOBODY: Final = _Nobody()


class TooManyHandles(Exception):
    """The code never comes to rest."""


class WorkflowTask(asyncio.Task[T]):
    """A task whose hash is its place in its run: `asyncio.wait` returns sets of tasks, and by this they are iterated in the
    same order on every replay. Held by tests/replay/test_asyncio.py."""

    call: CallToBeAwaited | None = None
    """The call of a step or verb that it was made of."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        order: int,
        **options: Any,  # noqa: ANN401  those of a task, whatever this Python has
    ) -> None:
        self._order = order
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._order


class WorkflowLoop(asyncio.AbstractEventLoop):
    """Run workflow code until it waits. What the base class offers and this one does not is refused."""

    def __init__(self, host: LoopHost, *, first_order: int = 0) -> None:
        self.host: LoopHost = host
        self.owner: Any = host
        """The same, as authors' objects know it: a `Host`."""
        self._ready: list[asyncio.Handle] = []
        self._tasks: list[WorkflowTask[Any]] = []
        self._most_tasks = 16
        self._next_order = first_order
        self._left: list[AsyncGenerator[Any, Any]] | None = None
        self._is_dropped = False

    # What drives it.

    @property
    def tasks(self) -> list[WorkflowTask[Any]]:
        """The tasks that have not ended, in the order they were made."""
        return [task for task in self._tasks if not task.done()]

    def standing(self) -> FrameType | None:
        """Return where the application's code waits in the first task that tells; None when none does."""
        return frame_of_application(self._waiting_frames())

    def asking(self) -> FrameType | None:
        """Return the frame of the application's code that runs now, or where it waits; None when that is not known."""
        return frame_of_application(chain(self._running_frames(), self._waiting_frames()))

    def behind(self) -> TracebackType | None:
        """Return where the application's code waits while a task of a library runs or none does, as the end of a traceback;
        None when it runs itself, and a traceback has it anyway."""
        running = [*self._running_frames()]
        frame = frame_of_application(chain(running, self._waiting_frames()))
        return None if frame is None or frame in running else TracebackType(None, frame, frame.f_lasti, frame.f_lineno)

    def _running_frames(self) -> Iterator[FrameType]:
        """Give the frames of what runs now, the innermost first. What drives the loop is the application's code too."""
        frame: FrameType | None = sys._getframe(1) if running_loop() is self else None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  nothing else tells
        while frame is not None and frame.f_code is not WorkflowLoop.run_ready.__code__:
            yield frame
            frame = frame.f_back

    def _waiting_frames(self) -> Iterator[FrameType]:
        return chain.from_iterable(reversed([*_frames_of(task)]) for task in self.tasks)

    def run_ready(self, *, most: int | None = None) -> None:
        """Run what is ready, and what becomes ready by that, until nothing is. Raises TooManyHandles if that never ends.

        It must be called from a plain callback: since Python 3.14 no task can run inside another one.
        """
        left = MOST_HANDLES if most is None else most
        around = _take_over(self)
        try:
            while self._ready:
                batch, self._ready = self._ready, []
                left -= len(batch)
                if left < 0:
                    raise TooManyHandles
                for handle in batch:
                    try:
                        if not handle.cancelled():
                            handle._run()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  loops are what calls this
                    except SystemExit:
                        # It is the outcome of the task that raised it already; it must not end this process.
                        pass
        finally:
            _hand_back(around)

    def forget_ended(self) -> bool:
        """Let go of tasks that have ended; asyncio then tells of errors that nobody asked for. True when any is left."""
        self._tasks = self.tasks
        self._most_tasks = max(16, 2 * len(self._tasks))
        return bool(self._tasks)

    def make_ready(self, handle: asyncio.Handle) -> None:
        """Run a handle at the next `run_ready`."""
        self._ready.append(handle)

    def drop(self) -> None:
        """Forget what is ready, and close the coroutines of all tasks without letting them go on."""
        self._is_dropped = True
        self._ready.clear()
        tasks = self.tasks
        self._tasks.clear()
        if tasks or self._left:
            around = _take_over(self)
            try:
                for task in tasks:
                    _close_task(task)
                while self._left:
                    _close_generator(self._left.pop())
            finally:
                _hand_back(around)
            self._ready.clear()
            self._tasks.clear()

    def leave(self) -> None:
        """Be no run's loop any more. A run and its loop would else be a circle, which only the garbage collector frees."""
        self.host = self.owner = _NOBODY

    def finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Python calls this for an async generator that was begun here and that nobody can go on with any more.

        Mostly that is where the code let go of it, and then it is closed right there. But it may be collected at any other
        time, on any thread; there a step in its `finally` would be done outside of the run. Then it waits for the end.
        """
        if running_loop() is self and not self._is_dropped:
            named: Any = generator
            closing: Any = _closing(generator)
            closing.__qualname__ = f"closing of {named.__qualname__}"
            self.create_task(closing)
        else:
            self._left = [*(self._left or ()), generator]

    # What asyncio and workflow code may use.

    def call_soon(
        self, callback: Callable[[Unpack[Arguments]], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Arguments]], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        if running_loop() is not self:
            # The run is told. Raised here it would end a driver's thread, or be printed there for nobody.
            with suppress(Exception):
                self.host.refuse_call("loop.call_soon_threadsafe() from another thread")
            refused = asyncio.Handle(callback, args, self, context)
            refused.cancel()
            return refused
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(delay, callback, args, self, context)
        self.host.start_timer(handle, delay)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.host.start_timer(handle, None)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio's name for it: a timer handle calls this when it is cancelled."""
        self.host.drop_timer(handle)

    def time(self) -> float:
        return self.host.loop_time()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **options: Any,  # noqa: ANN401  what a later Python adds
    ) -> asyncio.Task[T]:
        if (
            _is_unordered(sys._getframe(1))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  nobody else knows them
            and self.owner.check("asyncio.as_completed")
        ):
            coro.close()
            self.owner.refuse(
                "asyncio.as_completed was given coroutines, of which it makes tasks in another order at each replay. "
                "Make the tasks first: `asyncio.as_completed([asyncio.create_task(call) for call in calls])`."
            )
        call = coro if type(coro) is CallToBeAwaited else None
        # Asyncio is faster with a coroutine of Python's own.
        begun = coro if call is None else call.cr_coroutine
        task = WorkflowTask(begun, order=self._next_order, loop=self, name=name, context=context, **options)
        if call is not None:
            task.call = call
        self._next_order += 1
        self._tasks.append(task)
        if len(self._tasks) > self._most_tasks:
            self.forget_ended()
        return task

    def get_task_factory(self) -> None:
        return None

    def get_exception_handler(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.host.report_unhandled(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.host.report_unhandled(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return running_loop() is self

    def is_closed(self) -> bool:
        return False

    async def shutdown_asyncgens(self) -> None:
        return

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002  asyncio's signature
        return


_UNORDERED: Final = (
    asyncio.as_completed.__code__,
    # Since Python 3.13 that only makes one of these.
    getattr(getattr(asyncio.tasks, "_AsCompletedIterator", asyncio.as_completed).__init__, "__code__", None),
)
"""What makes tasks of a set of coroutines, by where these lie in memory. Held by tests/replay/test_asyncio.py."""


def _is_unordered(caller: FrameType | None) -> bool:
    """Tell whether a task is made by that."""
    while caller is not None and caller.f_globals.get("__name__") == "asyncio.tasks":
        if caller.f_code in _UNORDERED:
            return True
        caller = caller.f_back
    return False


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs on this thread, if any does."""
    return events._get_running_loop()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the public one raises


_Around: TypeAlias = tuple[asyncio.AbstractEventLoop | None, Any]

_set_running_loop: Final = events._set_running_loop  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only one


def _take_over(loop: WorkflowLoop) -> _Around:
    """Make this the running loop of the thread, in the place of the one that runs already."""
    around = (running_loop(), sys.get_asyncgen_hooks())
    _set_running_loop(loop)
    # Those of the loop outside would close an async generator of the workflow over there.
    sys.set_asyncgen_hooks(None, loop.finalize)
    return around


def _hand_back(around: _Around) -> None:
    loop, hooks = around
    _set_running_loop(loop)
    sys.set_asyncgen_hooks(*hooks)


def workflow_loop(host: LoopHost, *, first_order: int) -> WorkflowLoop:
    """Make the loop of a run. `first_order` should differ between runs: asyncio keeps all tasks of a process in one set."""
    return WorkflowLoop(host, first_order=first_order)  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]  the rest is set below


def _close_task(task: asyncio.Task[Any]) -> None:
    # Without this asyncio complains when a task is collected before its end.
    setattr(task, "_log_destroy_pending", False)  # noqa: B010  asyncio's own, and not in its stubs
    coroutine = cast("Coroutine[Any, Any, Any]", task.get_coro())
    waited_for = cast("asyncio.Future[Any] | None", getattr(task, "_fut_waiter", None))
    for _ in range(_MOST_CLOSES):
        # Whatever the code makes of it, it is not heard any more.
        with suppress(BaseException):
            coroutine.close()
            break
    # A task and what it waits for name each other until one of them ends, and so do tasks and what gathers them.
    _forget_waiting(task)
    if waited_for is not None:
        _forget_waiting(waited_for)
        with suppress(BaseException):
            waited_for.cancel()


def _forget_waiting(future: asyncio.Future[Any]) -> None:
    """Tell nobody of its end. Held by tests/replay/test_leftovers.py."""
    with suppress(BaseException):
        for callback, _ in getattr(future, "_callbacks", None) or ():
            future.remove_done_callback(callback)
        if sys.version_info >= (3, 14):  # which knows for tools who waits for what
            for waiting in getattr(future, "_asyncio_awaited_by", None) or ():
                asyncio.future_discard_from_awaited_by(future, waiting)


async def _closing(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()


def _close_generator(generator: AsyncGenerator[Any, Any]) -> None:
    closing = _closing(generator)
    with suppress(BaseException):
        closing.send(None)
    for _ in range(_MOST_CLOSES):
        with suppress(BaseException):
            closing.close()
            return


def _refusal(name: str) -> Callable[..., asyncio.Future[Any]]:
    def refused(self: WorkflowLoop, *_args: object, **_options: object) -> asyncio.Future[Any]:
        return self.host.refuse_call(f"loop.{name}()")

    refused.__name__ = name
    return refused


# Found by looking, so that what a later Python adds is refused too.
for _name in dir(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in vars(WorkflowLoop):
        setattr(WorkflowLoop, _name, _refusal(_name))


def waiting_frame(task: asyncio.Task[Any]) -> FrameType | None:
    """Return where the application's code waits in a task; None when it is not in there."""
    return frame_of_application(reversed([*_frames_of(task)]))


def _frames_of(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Give the frames that a task stands in, the outermost first."""
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None)
        if frame is not None:
            yield frame
        inner = getattr(inner, "cr_await", None)
