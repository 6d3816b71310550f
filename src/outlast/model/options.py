"""Options that authors and operators pass, as frozen values checked where they are built."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, cast

from outlast.errors import InvalidArgument
from outlast.model.durations import Duration, parse_duration

Jitter = Literal["none", "full", "equal"]
OnCancel = Literal["finish", "abort"]
MAX_PRIORITY: Final = 2_097_151
_MOST: Final = 1_000_000
"""Of anything that a worker has many of: more is a mistake, and far more no number that a database takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often, and after which wait, a step that raised is tried again.

    The wait before attempt n + 1 is `min(max_delay, delay * factor ** (n - 1))`; with jitter "full" a random part of it,
    with "equal" half of it and a random part of the other half. Waits are durable: a crash neither shortens nor resets
    them.

    What a step's own leaves out is that of `Outlast(retry=...)`, field by field. What that leaves out too is: 3 attempts
    (the first included), 1 s, doubling, at most 5 minutes (or `delay`, where that is longer), no jitter.

    `retry_if(error, attempt)` returning False gives up at once; `delays(attempt, error)` replaces the formula, and where a
    step says one of the two, it has not the application's other one. When one of the two functions raises, the step gives up
    and the journal says so.

    >>> from outlast import Retry
    >>> Retry(attempts=5, delay="2s").attempts
    5
    """

    attempts: int | None = None
    delay: Duration | None = None
    factor: float | None = None
    max_delay: Duration | None = None
    jitter: Jitter | None = None
    retry_if: Callable[[BaseException, int], bool] | None = None
    delays: Callable[[int, BaseException], Duration] | None = None

    def __post_init__(self) -> None:
        if self.attempts is not None and (type(self.attempts) is not int or self.attempts < 1):
            raise InvalidArgument(f"Retry(attempts=...) is a whole number from 1; {self.attempts!r} is not.")
        if self.factor is not None and not _is_factor(self.factor):
            raise InvalidArgument(f"Retry(factor=...) is a number above 0; {self.factor!r} is not.")
        if self.jitter not in (None, "none", "full", "equal"):
            raise InvalidArgument(f"Retry(jitter=...) is 'none', 'full' or 'equal'; {self.jitter!r} is not.")
        for name, duration in (("delay", self.delay), ("max_delay", self.max_delay)):
            if duration is not None:
                parse_duration(duration, what=f"Retry({name}=...)")
        self._check_functions()

    def over(self, base: RetryPolicy) -> RetryPolicy:
        """Return the policy that says what this does, and of what this does not say what `base` does."""
        says_formula = (self.delay, self.factor, self.max_delay, self.jitter) != (None, None, None, None)
        delay = base.delay if self.delay is None else parse_duration(self.delay, what="Retry(delay=...)")
        longest = (
            base.max_delay if self.max_delay is None else parse_duration(self.max_delay, what="Retry(max_delay=...)")
        )
        if self.max_delay is None and self.delay is not None:
            # Who asks for an hour means it: a bound that was chosen for other steps does not cut it.
            longest = max(longest, delay)
        return RetryPolicy(
            attempts=base.attempts if self.attempts is None else self.attempts,
            delay=delay,
            factor=base.factor if self.factor is None else self.factor,
            max_delay=longest,
            jitter=self.jitter or base.jitter,
            retry_if=self.retry_if or base.retry_if,
            delays=self.delays or (None if says_formula else base.delays),
        )

    def _check_functions(self) -> None:
        if self.retry_if is not None and not _is_called_with_two(self.retry_if):
            raise InvalidArgument(
                "Retry(retry_if=...) is a function (error, attempt) that says whether to try again; "
                f"{self.retry_if!r} is not.{_by_class(self.retry_if)}"
            )
        if self.delays is not None and not _is_called_with_two(self.delays):
            raise InvalidArgument(
                "Retry(delays=...) is a function (attempt, error) that gives the wait before the next attempt; "
                f"{self.delays!r} is not. A fixed wait is Retry(delay=..., factor=1)."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """A Retry of which everything is said."""

    attempts: int = 3
    delay: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max_delay: timedelta = timedelta(minutes=5)
    jitter: Jitter = "none"
    retry_if: Callable[[BaseException, int], bool] | None = None
    delays: Callable[[int, BaseException], Duration] | None = None


USUAL_RETRY: Final = RetryPolicy()

RetryOption = Retry | int | Literal[False] | None


def retry_option(option: RetryOption) -> Retry | None:
    """Turn what an author wrote as `retry=` into a Retry: None says nothing, False is one attempt, a number that many.

    0 is one attempt as False is: it is written by those who count what follows the first.
    """
    match option:
        case None | Retry():
            return option
        case False:
            return Retry(attempts=1)
        case bool():
            raise InvalidArgument("retry=True says nothing; pass a number of attempts or Retry(...).")
        case int():
            return Retry(attempts=1 if option == 0 else option)


def _is_factor(value: object) -> bool:
    return type(value) in (int, float) and 0 < cast("float", value) < float("inf")


def _is_called_with_two(given: object) -> bool:
    """Say whether it is a plain function of two arguments. A class is called too, but what it makes is always true."""
    if not callable(given) or isinstance(given, type) or inspect.iscoroutinefunction(given):
        return False
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return True  # One written in C may not tell.
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def _by_class(given: object) -> str:
    """Say how to choose by the class of an error, to one who has given classes of errors alone."""
    kinds: tuple[object, ...] = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    names = [kind.__name__ for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseException)]
    if not names:
        return ""
    classes = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return f" Write retry_if=lambda error, attempt: isinstance(error, {classes})."


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How the worker of this process works.

    concurrency: runs that execute at once (default 100; parked runs do not count). From 16 on, while runs leave again within
        milliseconds, as many as half of those that just left may be claimed ahead, up to `concurrency`; one that finds no
        slot within 0.2 s is handed back, with no lapse counted, and none is claimed ahead for 10 s.
    lease: how long a worker that died keeps its runs (default 30 s); renewed at a third of it.
    poll: the longest time between two looks for due runs (default 1 s, a third of the lease at most); wake-ups usually
        come earlier.
    shutdown_timeout: how long a stop waits for running steps before it hands their runs back (default 10 s).
    threads: threads for plain (not async) step functions (default 32).
    cached_runs: parked runs kept in memory, so that waking them needs no replay (default 5,000; 0 keeps none). One takes
        about 6 kB and whatever its code holds in variables.
    around_steps: what calls each plain step function on its thread: it is given a function without arguments and returns
        what that returns. For what a framework does around a request, such as giving connections back (default nothing).
    """

    concurrency: int = 100
    lease: Duration = "30s"
    poll: Duration = "1s"
    shutdown_timeout: Duration = "10s"
    threads: int = 32
    cached_runs: int = 5000
    around_steps: Callable[[Callable[[], object]], object] | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("concurrency", self.concurrency, 1),
            ("threads", self.threads, 1),
            ("cached_runs", self.cached_runs, 0),
        ):
            if type(value) is not int or not least <= value <= _MOST:
                raise InvalidArgument(
                    f"WorkerOptions({name}=...) is a whole number from {least} to {_MOST:,}; {value!r} is not."
                )
        if self.around_steps is not None and not callable(self.around_steps):
            raise InvalidArgument(f"WorkerOptions(around_steps=...) is a function; {self.around_steps!r} is not.")
        for name, duration in (("lease", self.lease), ("poll", self.poll)):
            if parse_duration(duration, what=f"WorkerOptions({name}=...)") < timedelta(milliseconds=1):
                raise InvalidArgument(f"WorkerOptions({name}=...) must be at least 1 ms; {duration!r} is not.")
        parse_duration(self.shutdown_timeout, what="WorkerOptions(shutdown_timeout=...)")


def worker_options(worker: object) -> WorkerOptions:
    """Return what `Outlast(worker=...)` says of its worker; the default options where it says only whether there is one."""
    if isinstance(worker, WorkerOptions):
        return worker
    if isinstance(worker, bool):
        return WorkerOptions()
    raise InvalidArgument(f"Outlast(worker=...) is True, False or WorkerOptions(...); {worker!r} is not.")


def priority(value: int) -> int:
    """Check a priority: a whole number from 0 (first, the default) to 2,097,151; smaller runs first."""
    if type(value) is not int or not 0 <= value <= MAX_PRIORITY:
        raise InvalidArgument(f"priority is a whole number from 0 to {MAX_PRIORITY:,}; {value!r} is not.")
    return value
