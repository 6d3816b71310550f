"""A Django project inside of the tests' process, on a fresh database for each test: ask for `django_site`.

Settings can be configured once in a process, so what differs between tests is the connections. The project has the app
`support.django_orders` with a table of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import pymysql
import pytest
from asgiref.local import Local
from django.conf import settings
from django.db import connections

from support.fix_stores import further_kinds

APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "outlast.integrations.django",
    "support.django_orders",
]
DATABASES = ("sqlite", "postgresql")
"""Where every test runs that asks for the project; for the others see `fix_stores`."""


@dataclass(frozen=True)
class Site:
    """What a test may need to know of the project."""

    database: str
    url: str


def entry_of(url: str) -> dict[str, Any]:
    """Return the entry of DATABASES for a URL of the tests'."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path[1:]}
    backend = "postgresql" if parts.scheme == "postgresql" else "mysql"
    return {
        "ENGINE": f"django.db.backends.{backend}", "NAME": parts.path[1:], "USER": parts.username,
        "PASSWORD": parts.password or "", "HOST": parts.hostname, "PORT": parts.port,
    }  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = any(mark.args[0] == "django_site" for mark in metafunc.definition.iter_markers("parametrize"))
    if "django_site" in metafunc.fixturenames and not chosen:
        metafunc.parametrize("django_site", (*DATABASES, *further_kinds(metafunc.definition)), indirect=True)


@pytest.fixture
def django_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The project on an empty database, its own tables made and those of outlast not."""
    url = _url(request, tmp_path)
    _set_up()
    from outlast.integrations.django import app
    from support.django_orders.models import Order

    with connected_to({"default": entry_of(url)}):
        app.forget()
        with connections["default"].schema_editor() as editor:
            editor.create_model(Order)
        yield Site(request.param, url)
        app.forget()


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder}/site.db"
    url: str = request.getfixturevalue("postgres_url" if request.param == "postgresql" else f"{request.param}_url")
    return url


@pytest.fixture
def django_outlast(django_site: Site) -> Any:
    """The app of the project, its tables made."""
    from outlast.integrations.django import app

    app.blocking.migrate()
    return app


def _set_up() -> None:
    if settings.configured:
        return
    # What a project writes that has no mysqlclient.
    pymysql.install_as_MySQLdb()
    settings.configure(
        INSTALLED_APPS=APPS,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        LOGGING_CONFIG=None,
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        OUTLAST={},
        ROOT_URLCONF="support.django_orders.urls",
        SECRET_KEY="of the tests",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        USE_TZ=True,
    )
    django.setup()


@contextmanager
def connected_to(databases: dict[str, Any]) -> Generator[None, None, None]:
    """Have DATABASES for a while."""
    handler: Any = connections
    former = (handler.settings, handler._connections, settings.DATABASES)
    handler.settings = handler.configure_settings(databases)
    handler._connections = Local(handler.thread_critical)
    settings.DATABASES = databases
    name_tables()
    try:
        yield
    finally:
        handler.close_all()
        handler.settings, handler._connections, settings.DATABASES = former


def name_tables() -> None:
    """Have the model's table named as on the present database; any other project has one kind of database for ever."""
    from outlast.integrations.django.models import Run
    from outlast.integrations.django.tables import table_name

    Run._meta.db_table = Run._meta.original_attrs["db_table"] = table_name("runs")
    for field in Run._meta.get_fields():
        vars(field).pop("cached_col", None)
    sys.modules.pop("outlast.integrations.django.migrations.0001_initial", None)
