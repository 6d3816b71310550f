"""The settings dict `OUTLAST`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from outlast.errors import OutlastError
from outlast.model.options import Retry, WorkerOptions
from outlast.stores.databases.urls import installation_name

V = TypeVar("V")

_WORKER: Final = WorkerOptions()
_RETRY: Final = Retry()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """`OUTLAST` as read: each field is a key of it in capitals.

    database: the alias in DATABASES whose transactions are joined and which holds the tables. Default "default".
    schema: PostgreSQL's schema for the tables; elsewhere their prefix. Default "outlast".
    workflows: modules to import beside the `workflows.py` of each installed app. Default none.
    worker: options of `outlast_worker`, as of WorkerOptions. Default those of WorkerOptions.
    retry: how steps that say nothing are retried, as of Retry. Default that of Retry.
    migrate: whether the first verb makes missing tables. Default False: `manage.py migrate` does.
    """

    database: str = "default"
    schema: str = "outlast"
    workflows: tuple[str, ...] = ()
    worker: WorkerOptions = _WORKER
    retry: Retry = _RETRY
    migrate: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with the setting; `id` names its kind for Django's checks."""

    id: str
    text: str
    hint: str


def read_config() -> Config:
    """Return the settings. Raises ImproperlyConfigured, naming everything that is wrong."""
    config, problems = examine(getattr(settings, "OUTLAST", {}))
    if problems:
        raise ImproperlyConfigured(" ".join(f"{problem.text} {problem.hint}" for problem in problems))
    return config


def examine(setting: object) -> tuple[Config, Sequence[Problem]]:
    """Read the setting as far as it can be read, and tell what is wrong with it."""
    if not isinstance(setting, Mapping):
        return Config(), [Problem("E001", f"OUTLAST is {setting!r}.", 'It is a dict, such as {"DATABASE": "default"}.')]
    given = cast("Mapping[object, Any]", setting)
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for key, value in given.items():
        if not isinstance(key, str) or key not in _READERS:
            problems.append(Problem("E002", f"OUTLAST has no key {key!r}.", _nearest(key)))
            continue
        try:
            values[key.lower()] = _READERS[key](value)
        except (OutlastError, TypeError) as error:
            problems.append(Problem("E003", f"OUTLAST[{key!r}] is {value!r}.", str(error)))
    return Config(**values), problems


def _nearest(key: object) -> str:
    near = difflib.get_close_matches(str(key).upper(), _READERS, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Its keys are {', '.join(_READERS)}."


def _alias(value: object) -> str:
    if not isinstance(value, str) or value not in settings.DATABASES:
        raise TypeError(f"It names one of DATABASES: {', '.join(map(repr, settings.DATABASES))}.")
    return value


def _modules(value: object) -> tuple[str, ...]:
    given: Any = value
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in given):
        raise TypeError('It is a list of modules, such as ["shop.processes"].')
    return tuple(given)


def _options(kind: type[V]) -> Callable[[object], V]:
    def read(value: object) -> V:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise TypeError(f"It is a dict of the options of {kind.__name__}.")
        options = cast("Mapping[object, Any]", value)
        try:
            return kind(**{str(name).lower(): option for name, option in options.items()})
        except TypeError as error:
            raise TypeError(f"{str(error).rpartition('() ')[2]}: see outlast.{kind.__name__}.") from error

    return read


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("It is True or False.")
    return value


def _schema(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("It is a name, such as 'outlast'.")
    return installation_name(value)


_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "DATABASE": _alias,
    "SCHEMA": _schema,
    "WORKFLOWS": _modules,
    "WORKER": _options(WorkerOptions),
    "RETRY": _options(Retry),
    "MIGRATE": _switch,
}
