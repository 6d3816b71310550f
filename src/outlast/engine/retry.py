"""What becomes of a step that raised: another attempt, and when, or none."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar, cast

from outlast.engine.decision import Entropy
from outlast.errors import DefinitionError, Failure, InvalidDuration, NonRetryable, RetryAfter
from outlast.model.durations import LONGEST, to_us
from outlast.model.failures import failure_of
from outlast.model.options import RetryPolicy

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Again:
    """Another attempt after so many microseconds."""

    delay: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class GivenUp:
    """No further attempt."""

    failure: Failure


Verdict: TypeAlias = Again | GivenUp


def judge(error: BaseException, attempt: int, policy: RetryPolicy, entropy: Entropy) -> Verdict:
    """Decide what follows when attempt number `attempt` raised. Never raises: options that do make the step give up.

    NonRetryable gives up and RetryAfter sets the delay wherever they stand: raised themselves, as the cause of what was
    raised (`raise ... from`), or inside an exception group. A duration that is none, such as RetryAfter(5), is a mistake
    that another attempt would make again.
    """
    failure = failure_of(error)
    if attempt >= policy.attempts or find(error, NonRetryable) or find(error, InvalidDuration):
        return GivenUp(failure)
    option = "Retry(retry_if=...)"
    try:
        if policy.retry_if is not None and not _at_once(policy.retry_if(error, attempt)):
            return GivenUp(failure)
        option = "Retry(delays=...)" if find(error, RetryAfter) is None else "its RetryAfter(...)"
        return Again(_delay(error, attempt, policy, entropy), failure)
    except Exception as broken:  # noqa: BLE001  the options are the application's code
        return GivenUp(_with_broken_option(failure, option, broken))


def find(error: BaseException, kind: type[E]) -> E | None:
    """Return the first error of a kind in an error, its causes and the members of its groups."""
    return next((found for found in _walk(error, set()) if isinstance(found, kind)), None)


def _walk(error: BaseException, seen: set[int]) -> Iterator[BaseException]:
    if id(error) in seen:
        return
    seen.add(id(error))
    yield error
    if error.__cause__ is not None:
        yield from _walk(error.__cause__, seen)
    if isinstance(error, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _walk(member, seen)


def _at_once(answer: T) -> T:
    """Return what an option's function answered. Raises DefinitionError for a coroutine: it would count as true."""
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise DefinitionError(
            f"it returned {answer!r}, which nobody awaits. Write it as a plain `def` that answers at once."
        )
    return answer


def _delay(error: BaseException, attempt: int, policy: RetryPolicy, entropy: Entropy) -> int:
    asked = find(error, RetryAfter)
    if asked is not None:
        return to_us(asked.delay, what="RetryAfter(...)")
    if policy.delays is not None:
        chosen: Any = _at_once(policy.delays(attempt, error))
        return to_us(chosen, what="the answer of Retry(delays=...)")
    wait = _growing(policy, attempt)
    match policy.jitter:
        case "none":
            return wait
        case "full":
            return int(wait * entropy.random())
        case "equal":
            return wait // 2 + int((wait - wait // 2) * entropy.random())


def _growing(policy: RetryPolicy, attempt: int) -> int:
    longest = min(policy.max_delay, LONGEST) // _MICROSECOND
    try:
        grown = (policy.delay // _MICROSECOND) * policy.factor ** (attempt - 1)
    except OverflowError:
        return longest
    return int(min(grown, longest))


def _with_broken_option(failure: Failure, option: str, broken: Exception) -> Failure:
    reason = failure_of(broken)
    message = f"{failure.message} (it is not tried again, because {option} raised {reason})"
    return replace(failure, message=message, inner=(*failure.inner, reason))
