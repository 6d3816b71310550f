"""The stored form of values: JSON text that comes back as the type that its annotation names.

A `Shape` is what an annotation says of a value, worked out once. It writes the plain JSON of that type and proves, before
the text is used, that reading it gives the value back; what was read is what everyone sees from then on, so the first run
and every replay see the same, and nobody holds the object whose later change would change history.

Where the plain JSON would lose something that the annotation leaves open (a datetime in a `dict[str, Any]`, an instance
of a subclass) or where there is no annotation at all, the text describes itself: see `tagged`. A text of either form
tells which it is. Values that no form can keep are refused where they are produced, by their place.

Two things an annotated datetime does not keep: its zone's name, which becomes the offset, and the fold of a naive one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final, Generic, NoReturn, TypeVar, cast, overload

import msgspec

from outlast.errors import ValueNotStorable, ValueUnreadable
from outlast.model.classes import SCALARS, Kind, kind_of, plain_scalar, type_name
from outlast.model.fidelity import Node, are_same_builtins, difference, is_open, misfit, survey
from outlast.model.places import place_text
from outlast.model.pydantic_models import dump_model, load_model
from outlast.model.tagged import decode_tagged, encode_described, encode_tagged, is_described
from outlast.model.tagging import refuse_unstorable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_TOO_DEEP: Final = "it is nested too deeply"


@dataclass(frozen=True, slots=True, eq=False)
class Shape(Generic[T_co]):
    """What an annotation says of a value; made by `shape_of`. `where` names the whole value in errors: "result"."""

    annotation: object
    _typed: _Typed | None

    def settle(self, value: object, where: str) -> tuple[str, T_co]:
        """Return the text of a value and the value as every reader of that text sees it, which shares nothing with it.

        Raises `ValueNotStorable` with the place of what does not fit the annotation or cannot be kept exactly.
        """
        try:
            text, copy = _settle_tagged(value, where) if self._typed is None else self._typed.settle(value, where)
        except RecursionError as error:
            raise ValueNotStorable(where, _TOO_DEEP) from error
        return text, cast("T_co", copy)

    @property
    def is_described(self) -> bool:
        """True when the annotation says too little, so that every text describes itself."""
        return self._typed is None

    def encode(self, value: object, where: str) -> str:
        """Return the text of a value. Refuses what `settle` refuses."""
        return self.settle(value, where)[0]

    def decode(self, text: str, where: str) -> T_co:
        """Read a value back. Raises `ValueUnreadable` with the place of what is damaged or has no class any more."""
        try:
            value = decode_tagged(text, where) if self._typed is None else self._typed.decode(text, where)
        except RecursionError as error:
            raise ValueUnreadable(where, _TOO_DEEP) from error
        return cast("T_co", value)

    def same(self, text: str, other: str) -> bool:
        """Whether two texts hold the same value. The order of a dict's or a set's members does not count."""
        if text == other or canonical(text) == canonical(other):
            return True
        try:
            value, second = self.decode(text, ""), self.decode(other, "")
        except ValueUnreadable:
            return False
        return difference(value, second, None, "") is None and difference(second, value, None, "") is None


@overload
def shape_of(annotation: type[T]) -> Shape[T]: ...
@overload
def shape_of(annotation: object) -> Shape[Any]: ...
def shape_of(annotation: object) -> Shape[Any]:
    """Return the shape that an annotation describes; the same annotation gives the same shape.

    None means the type of None. `Any`, `object`, type variables, `inspect.Signature.empty` and whatever JSON alone cannot
    tell apart (a union of two dataclasses) get a shape whose texts describe themselves. Never raises.
    """
    try:
        hash(annotation)
    except TypeError:
        return _build(annotation)
    return _build_once(annotation)


def canonical(text: str) -> str:
    """Return JSON text with sorted keys and no blanks: equal for dicts that differ in their order alone.

    `1` and `1.0` stay distinct. Text that is no JSON is returned as it is, so that it equals only itself.
    """
    try:
        return msgspec.json.encode(_plain_decoder.decode(text), order="sorted").decode()
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return text


def _build(annotation: object) -> Shape[Any]:
    return Shape(annotation, _typed_of(annotation))


_build_once: Final = lru_cache(maxsize=4096)(_build)


def _typed_of(annotation: object) -> _Typed | None:
    """None for an annotation that says too little, or more than JSON alone can tell apart."""
    if isinstance(annotation, TypeVar):
        return None
    try:
        node = msgspec.inspect.type_info(annotation)
        decoder = msgspec.json.Decoder[Any](cast("Any", annotation), dec_hook=_restore)
    except Exception:  # noqa: BLE001  msgspec has no one error for what it does not support, and names may not resolve
        return None
    found = survey(node)
    if is_open(node) or found.is_beyond_json:
        return None
    return _Typed(decoder, node, needs_walk=found.needs_walk, is_hidden_in_json=found.is_hidden_in_json)


@dataclass(frozen=True, slots=True, eq=False)
class _Typed:
    """The plain JSON of an annotated type, and the self-describing form where that would lose something."""

    decoder: msgspec.json.Decoder[Any]
    node: Node
    needs_walk: bool
    is_hidden_in_json: bool

    def settle(self, value: object, where: str) -> tuple[str, object]:
        text = None if self.is_hidden_in_json else _plain_text(value)
        if text is None:
            return self._settle_described(value, where)
        try:
            copy: object = self.decoder.decode(text)
        except Exception as error:  # noqa: BLE001  constructors and validators are the application's code
            self._refuse(value, where, error)
        if self._is_kept(value, copy, text):
            return text, copy
        return self._settle_described(value, where)

    def decode(self, text: str, where: str) -> object:
        if is_described(text):
            return self._decode_described(text, where)
        try:
            return self.decoder.decode(text)
        except Exception as error:  # constructors and validators are the application's code
            place, reason = _message(error, where)
            name = type_name(self.decoder.type)
            told = reason if f"`{name}`" in reason else f"{reason} (it is read as `{name}`)"
            raise ValueUnreadable(place, told) from error

    def _is_kept(self, value: object, copy: object, text: str) -> bool:
        if is_described(text):  # it is not, but a user's own "$" makes it look so
            return False
        if self.needs_walk:
            return difference(value, copy, self.node, "") is None
        if type(value) is type(copy) and _equal(value, copy) and ("null" not in text or _packs_alike(value, copy)):
            return True
        return difference(value, copy, self.node, "") is None

    def _settle_described(self, value: object, where: str) -> tuple[str, object]:
        self._refuse_misfit(value, where)
        text = encode_described(value, where)
        return text, _proven(value, _read_again(text, where), where)

    def _decode_described(self, text: str, where: str) -> object:
        value = decode_tagged(text, where)
        fault = misfit(value, self.node, where)
        if fault is not None:
            raise ValueUnreadable(place_text(fault.place), fault.reason)
        return value

    def _refuse(self, value: object, where: str, error: Exception) -> NoReturn:
        self._refuse_misfit(value, where)
        raise ValueNotStorable(*_message(error, where)) from error

    def _refuse_misfit(self, value: object, where: str) -> None:
        refuse_unstorable(value, where)
        fault = misfit(value, self.node, where)
        if fault is not None:
            raise ValueNotStorable(place_text(fault.place), fault.reason)


def _plain_text(value: object) -> str | None:
    """The JSON text of a value as msgspec writes it. Why it wrote none is found by a walk, which knows the place."""
    try:
        return _encoder.encode(value).decode()
    except Exception:  # noqa: BLE001  serializers are the application's code
        return None


def _settle_tagged(value: object, where: str) -> tuple[str, object]:
    plain = None if kind_of(type(value)) else _plain_text(value)
    if plain is not None and not is_described(plain):
        copy = _plain_decoder.decode(plain)
        if are_same_builtins(value, copy):
            return plain, copy
    text = encode_tagged(value, where)
    copy = _read_again(text, where)
    return text, copy if type(value) is type(copy) and _equal(value, copy) else _proven(value, copy, where)


def _read_again(text: str, where: str) -> object:
    try:
        return decode_tagged(text, where)
    except ValueUnreadable as error:
        raise ValueNotStorable(error.where, error.reason) from error


def _proven(value: object, copy: object, where: str) -> object:
    fault = difference(value, copy, None, where)
    if fault is not None:
        raise ValueNotStorable(place_text(fault.place), fault.reason)
    return copy


def _equal(value: object, copy: object) -> bool:
    try:
        return bool(value == copy)
    except Exception:  # noqa: BLE001  the application's own comparison
        return False


def _packs_alike(value: object, copy: object) -> bool:
    """Whether two equal values hold None in the same places.

    JSON writes NaN as null, and a NaN in a field that takes no part in `==` would pass unseen. MessagePack keeps them
    apart. It has no integers of more than 64 bits: then this says no, and a walk finds out.
    """
    try:
        return _packer.encode(value) == _packer.encode(copy)
    except OverflowError:
        return False


def _message(error: Exception, where: str) -> tuple[str, str]:
    """The place and the complaint in an error of msgspec, which writes "the complaint - at `$.place`"."""
    complaint, _, path = str(error).rpartition(" - at `$")
    if complaint and path.endswith("`"):
        return where + path.removesuffix("`"), complaint
    return where, str(error) or type(error).__name__


def _write(value: object) -> object:
    """Turn what msgspec does not know into what it does; called by it for values inside a value."""
    kind = kind_of(type(value))
    if kind is Kind.MODEL:
        return msgspec.Raw(dump_model(value))
    if kind is Kind.SCALAR:
        return plain_scalar(cast("str | float", value))
    match value:
        case PurePath():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return timedelta(value.days, value.seconds, value.microseconds)
        case Decimal():
            return Decimal(value)
        case _:
            raise TypeError(type(value).__qualname__)


def _restore(cls: type, raw: object) -> object:
    """Make an instance of a class that msgspec does not know; called by it for annotations inside an annotation."""
    if cls is object:
        return raw
    if kind_of(cls) is Kind.MODEL:
        return load_model(cls, _encoder.encode(raw))
    base = next((base for base in SCALARS if issubclass(cls, base)), str)
    if not isinstance(raw, base) or isinstance(raw, bool):
        raise TypeError(f"Expected `{cls.__qualname__}`, got `{type(raw).__qualname__}`")
    return cast("Callable[[object], object]", cls)(raw)


_encoder: Final = msgspec.json.Encoder(enc_hook=_write)
_packer: Final = msgspec.msgpack.Encoder(enc_hook=_write)
_plain_decoder: Final = msgspec.json.Decoder[object]()
