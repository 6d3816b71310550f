"""Whether values of one type can be stored as another, as far as the types alone can tell."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin, is_typeddict


def fits(given: object, wanted: object) -> bool:
    """Tell whether what is declared as `given` can be stored as `wanted`: False where a value of just that type is not.

    What cannot be judged here fits; the value itself is looked at when it is stored.
    """
    given, wanted = _plain(given), _plain(wanted)
    if given is Any or given is object or wanted is Any:  # since Python 3.11 Any is a class
        return True
    if _members(given) or _members(wanted):
        wanted_members = _members(wanted) or (wanted,)
        return all(any(fits(one, other) for other in wanted_members) for one in _members(given) or (given,))
    if not isinstance(given, type) or not isinstance(wanted, type):
        return True
    if wanted is float and issubclass(given, int):
        return True
    if is_typeddict(wanted):
        return issubclass(given, dict)  # which a TypedDict itself is
    try:
        return issubclass(given, wanted)
    except TypeError:  # a protocol, whose members would have to be looked at
        return True


def _plain(kind: object) -> object:
    """Return the type that is behind `Annotated`, a NewType, a parametrized class or None."""
    if kind is None:
        return type(None)
    if isinstance(kind, NewType):
        return _plain(kind.__supertype__)
    origin = get_origin(kind)
    if origin is Annotated:
        return _plain(get_args(kind)[0])
    if isinstance(origin, type) and origin is not UnionType:
        return origin
    return kind


def _members(kind: Any) -> tuple[object, ...]:  # noqa: ANN401  an annotation
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
