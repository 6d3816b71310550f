"""pydantic models as values, without importing pydantic: one can only exist when the application has imported it.

A model is stored as it writes itself and restored as it validates itself, so its own serializers and checks hold.
Fields go by their names, not by their aliases, whose two directions may differ.

A table of SQLModel is a model too, but one that checks nothing when it is made, and whose fields are columns: those that its
session has not loaded are not there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol, cast

from outlast.model.places import Place, Step


class Model(Protocol):
    """What is used of a pydantic model."""

    def model_dump_json(self, *, round_trip: bool, by_alias: bool) -> str: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes, **names: bool) -> Model: ...


def is_model(cls: type) -> bool:
    """Whether a class is a pydantic model."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return base is not None and issubclass(cls, base)


def dump_model(model: object) -> bytes:
    """Return the JSON text of a model; raises whatever its serializers raise."""
    if _is_table(type(model)):
        _refuse_unloaded(type(model), model)
    return cast("Model", model).model_dump_json(round_trip=True, by_alias=not _reads_names()).encode()


def load_model(cls: type, text: bytes) -> object:
    """Validate a model from what `dump_model` wrote; raises whatever its validators raise."""
    names = {"by_name": True, "by_alias": False} if _reads_names() else {}
    if _is_table(cls):
        return _load_table(cls, text, names)
    return cast("type[Model]", cls).model_validate_json(text, **names)


def fault(model: object, error: Exception, place: Place) -> tuple[object, Place, str]:
    """Find what pydantic's validation complained of in a model: the part, its place and the complaint."""
    errors: Callable[[], list[Any]] | None = getattr(error, "errors", None)
    if errors is None:
        return model, place, str(error)
    first = errors()[0]
    part: Any = model
    for name in first["loc"]:
        is_field = isinstance(name, str) and hasattr(part, name)
        try:
            part = getattr(part, str(name)) if is_field else part[name]
        except (LookupError, TypeError):  # the name of a union's branch or of a validator is no step into the value
            continue
        place = Step(place, "field" if is_field else "item", name)
    return part, place, first["msg"]


def _is_table(cls: Any) -> bool:  # noqa: ANN401 -- a class of a library that is not imported here
    return "table" in cls.model_config and bool(cls.model_config["table"])


def _refuse_unloaded(cls: Any, row: Any) -> None:  # noqa: ANN401 -- the same
    """Refuse what a session would have to load first: not every thread may use it, and it may be closed."""
    columns: Iterable[str] = cls.model_fields
    missing = next((name for name in columns if name not in row.__dict__), None)
    if missing is not None:
        raise ValueError(
            f"its column {missing!r} is not loaded. A commit expires what a session holds: call session.refresh(...) before "
            "you return it, or make the session with expire_on_commit=False"
        )


def _load_table(cls: Any, text: bytes, names: dict[str, bool]) -> object:  # noqa: ANN401 -- the same
    """Make a row that belongs to no session.

    Its own constructor would take JSON's types as they are, so an instance that nobody sees is filled by validation first.
    """
    checked = cls.__new__(cls)
    cls.__pydantic_validator__.validate_json(text, self_instance=checked, **names)
    return cls(**{name: checked.__dict__[name] for name in cls.model_fields})


@lru_cache(maxsize=1)
def _reads_names() -> bool:
    """Whether this pydantic can read fields by their names where they have aliases (since 2.11)."""
    version: str = getattr(sys.modules.get("pydantic"), "VERSION", "0.0")
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= (2, 11)
