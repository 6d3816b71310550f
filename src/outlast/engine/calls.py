"""What a call in workflow code returns before it is awaited: a coroutine that knows where it was called.

A forgotten `await` gives its code this in the place of a result. Whatever is then done with it says so, before the code goes
a wrong way: any such object is true, and has a text.
"""

from __future__ import annotations

import inspect
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from types import CodeType, CoroutineType, FrameType
from typing import Any, Final, NoReturn

from outlast.errors import DefinitionError


class CallToBeAwaited(Coroutine[Any, Any, Any]):
    """A coroutine, to all who ask. Its own attributes are named as those of coroutines, so that they hide none of a result.

    One is made for each call: it notes where that is, and no more. Held by tests/replay/test_forgotten_awaits.py.
    """

    __slots__ = ("__weakref__", "cr_at", "cr_coroutine", "cr_name", "cr_within")

    cr_coroutine: Coroutine[Any, Any, Any]
    cr_name: str
    """What was called, as in "step charge"."""
    cr_within: CodeType
    cr_at: int
    """The instruction in that code which made the call."""

    @property
    def cr_place(self) -> str:
        """The file and line of the call."""
        lines = (line for start, end, line in self.cr_within.co_lines() if start <= self.cr_at < end)
        return f"{self.cr_within.co_filename}:{next(lines, None) or self.cr_within.co_firstlineno}"

    @property
    def cr_is_forgotten(self) -> bool:
        """True until it is awaited or closed."""
        return inspect.getcoroutinestate(self.cr_coroutine) == inspect.CORO_CREATED

    # What a coroutine is.

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.cr_coroutine.__await__()

    def send(self, value: object, /) -> object:
        return self.cr_coroutine.send(value)

    def throw(self, *error: Any) -> object:  # noqa: ANN401  in all the ways that a coroutine takes it
        return self.cr_coroutine.throw(*error)

    def close(self) -> None:
        self.cr_coroutine.close()

    @property  # type: ignore[misc]  # nobody writes it
    def __class__(self) -> type[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]  the same
        # To `isinstance` too, by which libraries look for what is to be awaited.
        return CoroutineType

    def __repr__(self) -> str:
        return f"<call of {self.cr_name} at {self.cr_place}>"

    # What only its result is.

    def __getattr__(self, name: str) -> object:
        if name.startswith("cr_"):
            return getattr(object.__getattribute__(self, "cr_coroutine"), name)
        if name in ("__name__", "__qualname__"):
            return self.cr_name
        if name.startswith("_"):
            # Libraries ask it of anything.
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        return self.cr_refuse(f"read `.{name}` of")

    def __getitem__(self, key: object) -> NoReturn:
        self.cr_refuse(f"take `[{key!r}]` of")

    def __bool__(self) -> bool:  # noqa: PLE0304  it returns nothing at all
        self.cr_refuse("ask whether it is true", " Whether there is a call at all is asked by `is not None`.")

    def __eq__(self, other: object) -> bool:
        if type(other) is CallToBeAwaited:
            return NotImplemented
        return self.cr_refuse("compare")

    def __hash__(self) -> int:
        return object.__hash__(self)

    def cr_refuse(self, wanted: str, hint: str = "") -> NoReturn:
        """Say that there is no result with which that could be done."""
        call = f"the call of {self.cr_name} at {self.cr_place}"
        told = (
            f"There is no result to {wanted}: {call} was not awaited. Write `await` before it; in a plain `def` put "
            "`ctx.do(...)` around it."
            if self.cr_is_forgotten
            else f"There is no result to {wanted} in {call} itself: use what `await` gave."
        )
        # Not kept: whoever names its run is in a circle with it. In a step there is none, and the error is the step's.
        loop: Any = events._get_running_loop()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the public one raises
        run = getattr(loop, "owner", None)
        if run is not None:
            run.refuse(told + hint)
        raise DefinitionError(told + hint)


def call_to_be_awaited(coroutine: Coroutine[Any, Any, Any], name: str, caller: FrameType) -> CallToBeAwaited:
    """Make the call that this frame makes. Every step of every run is one: with an `__init__` it takes twice as long."""
    call = _made(CallToBeAwaited)
    call.cr_coroutine = coroutine
    call.cr_name = name
    call.cr_within = caller.f_code
    call.cr_at = caller.f_lasti
    return call


_made: Final = object.__new__

_USES: Final = {
    "write as text": ("str", "format"),
    "iterate over": ("iter", "reversed"),
    "count": ("len",),
    "look into": ("contains",),
    "compare": ("lt", "le", "gt", "ge"),
    "calculate with": (
        *(f"{side}{name}" for side in ("", "r") for name in (
            "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "or",
            "xor",
        )),
        "neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round", "trunc", "floor", "ceil",
    ),
}  # fmt: skip
"""What is done with a value, by the methods that Python calls for it."""


def _use(wanted: str) -> Callable[..., NoReturn]:
    def use(self: CallToBeAwaited, *_: object) -> NoReturn:
        self.cr_refuse(wanted)

    return use


for _wanted, _methods in _USES.items():
    for _method in _methods:
        setattr(CallToBeAwaited, f"__{_method}__", _use(_wanted))
