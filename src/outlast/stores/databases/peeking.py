"""Look at an op's first statement before deciding what to put around it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from outlast.ports.database import MakeOp
from outlast.ports.operation import Op, Result, Span, Statement

T = TypeVar("T")


def first_span(make: MakeOp[T]) -> tuple[Span, MakeOp[T]]:
    """Return what the op needs around it, and a maker that returns this very op, its first statement not yet executed."""
    first, made = first_statement(make)
    return "alone" if first is None else first.span, made


def first_statement(make: MakeOp[T]) -> tuple[Statement | None, MakeOp[T]]:
    """The same with the statement itself; None when the op has none."""
    op = make()
    try:
        first = next(op)
    except StopIteration as end:
        value: T = end.value
        return None, lambda: _done(value)
    return first, lambda: _resumed(first, op)


def _resumed(first: Statement, op: Op[T]) -> Generator[Statement, Result, T]:
    statement = first
    try:
        while True:
            try:
                result = yield statement
            except Exception as error:  # noqa: BLE001 - whatever happened is for the op to know
                statement = op.throw(error)
            else:
                statement = op.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        op.close()


def _done(value: T) -> Generator[Statement, Result, T]:
    yield from ()
    return value
