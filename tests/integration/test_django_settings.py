"""Wrong settings are told by `manage.py check`, each with what to write instead, and by the first use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from outlast import DefinitionError, Retry, WorkerOptions
from outlast.integrations.django import app, checks
from outlast.integrations.django.conf import read_config
from outlast.integrations.django.location import url_of
from support.fix_django import Site, connected_to

POSTGRESQL = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop"}
MYSQL = {"ENGINE": "django.db.backends.mysql", "NAME": "shop"}

pytestmark = pytest.mark.usefixtures("django_site")


def told(*, databases: list[str] | None = None) -> dict[str, str]:
    """What the checks say of outlast, by their ids."""
    found = run_checks(tags=["outlast"], databases=databases or [])
    return {str(check.id): f"{check.msg} {check.hint}" for check in found}


@pytest.mark.parametrize(
    "setting, id, words",
    [
        (["default"], "outlast.E001", 'It is a dict, such as {"DATABASE": "default"}.'),
        ({"DATABSE": "default"}, "outlast.E002", "Did you mean 'DATABASE'"),
        ({"colour": "red"}, "outlast.E002", "Its keys are DATABASE, SCHEMA"),
        ({"DATABASE": "other"}, "outlast.E003", "It names one of DATABASES: 'default'"),
        ({"SCHEMA": "Out last"}, "outlast.E003", "1 to 40 characters"),
        ({"SCHEMA": None}, "outlast.E003", "It is a name"),
        ({"WORKFLOWS": "shop.processes"}, "outlast.E003", "It is a list of modules"),
        ({"WORKFLOWS": [7]}, "outlast.E003", "It is a list of modules"),
        ({"WORKER": {"lease": "soon"}}, "outlast.E003", "lease"),
        ({"WORKER": {"colour": "red"}}, "outlast.E003", "'colour': see outlast.WorkerOptions"),
        ({"WORKER": 4}, "outlast.E003", "a dict of the options of WorkerOptions"),
        ({"RETRY": {"attempts": 0}}, "outlast.E003", "from 1"),
        ({"MIGRATE": "yes"}, "outlast.E003", "True or False"),
    ],
)
def test_a_wrong_setting_is_told_with_what_to_write(setting: Any, id: str, words: str) -> None:
    with override_settings(OUTLAST=setting):
        assert words in told()[id]
        with pytest.raises(ImproperlyConfigured, match="OUTLAST"):
            app.blocking.list()


@pytest.mark.every_database("mysql")
def test_every_option_is_read() -> None:
    setting = {
        "DATABASE": "default",
        "SCHEMA": "flows",
        "WORKFLOWS": ["support.django_orders.workflows"],
        "WORKER": {"CONCURRENCY": 4, "lease": "10s"},
        "RETRY": Retry(attempts=7),
        "MIGRATE": True,
    }
    with override_settings(OUTLAST=setting):
        config = read_config()
        assert app.blocking.list().runs == ()  # MIGRATE makes the tables.

    assert config.worker == WorkerOptions(concurrency=4, lease="10s")
    assert config.retry.attempts == 7
    assert any("flows" in name for name in _all_tables())


def _all_tables() -> list[str]:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("select name from sqlite_master")
        else:
            cursor.execute("select concat(table_schema, table_name) from information_schema.tables")
        return [str(row[0]) for row in cursor.fetchall()]


def test_workflows_are_found_by_their_module_and_one_declared_twice_is_told() -> None:
    assert "fulfil" in {workflow.name for workflow in app._catalog}

    with override_settings(OUTLAST={"WORKFLOWS": ["support.django_orders.twice"]}):
        assert "Two workflows are registered as 'fulfil'" in told()["outlast.E005"]
        with pytest.raises(DefinitionError):
            app.blocking.list()
    with override_settings(OUTLAST={"WORKFLOWS": ["support.django_orders.missing"]}):
        assert "No module named" in told()["outlast.E005"]
        assert "They are found in the workflows.py of each installed app" in told()["outlast.E005"]


def test_a_database_without_a_store_is_told() -> None:
    with connected_to({"default": {"ENGINE": "django.db.backends.dummy"}}):
        assert "no store on unknown, which DATABASES['default'] is. Name another one" in told()["outlast.E004"]


def test_sqlite_is_told_to_begin_with_a_lock(django_site: Site) -> None:
    entry = dict(connection.settings_dict)
    warning = told().get("outlast.W001")
    is_warned = warning is not None
    assert warning is None or warning.endswith('Set "OPTIONS": {"transaction_mode": "IMMEDIATE"}.')
    entry["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}
    with connected_to({"default": entry if django_site.database == "sqlite" else POSTGRESQL}):
        is_warned_still = "outlast.W001" in told()

    entry["OPTIONS"] = {"transaction_mode": None}  # as Django takes it too
    with connected_to({"default": entry}):
        assert ("outlast.W001" in told()) == is_warned

    import django

    assert is_warned == (django_site.database == "sqlite" and django.VERSION >= (5, 1))
    assert not is_warned_still


def test_a_stricter_isolation_is_told_before_a_signal_is_refused() -> None:
    with connected_to({"default": POSTGRESQL | {"OPTIONS": {"isolation_level": 3}}}):
        assert "READ COMMITTED" in told()["outlast.W003"]
    with connected_to({"default": POSTGRESQL | {"OPTIONS": {"isolation_level": 2}}}):
        assert told() == {}
    of_mysql = {"charset": "utf8mb4", "isolation_level": "repeatable read"}  # a text there
    with connected_to({"default": MYSQL | {"OPTIONS": of_mysql}}):
        assert told() == {}


@pytest.mark.every_database
def test_the_server_is_asked_when_checks_may_connect(django_site: Site) -> None:
    if django_site.database == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("alter role current_user set default_transaction_isolation = 'serializable'")
        connection.close()
        try:
            assert "read committed" in told(databases=["default"])["outlast.E006"]
        finally:
            with connection.cursor() as cursor:
                cursor.execute("alter role current_user reset default_transaction_isolation")
            connection.close()
    assert "outlast.E006" not in told(databases=["default"])


@pytest.mark.parametrize(
    "entry, url",
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        (
            {"NAME": "shop", "USER": "ada", "PASSWORD": "p@ss/word", "HOST": "db", "PORT": "5433"},
            "postgresql://ada:p%40ss%2Fword@db:5433/shop",
        ),
        ({"NAME": "shop", "HOST": "/run/postgresql"}, "postgresql:///shop?host=%2Frun%2Fpostgresql"),
        (
            {"NAME": "shop", "OPTIONS": {"sslmode": "require", "isolation_level": 2, "assume_role": "app"}},
            "postgresql:///shop?options=-c+role%3Dapp&sslmode=require",
        ),
    ],
)
def test_a_workers_connections_go_where_djangos_go(entry: dict[str, Any], url: str) -> None:
    with connected_to({"default": POSTGRESQL | entry}):
        assert url_of("default").render_as_string(hide_password=False) == url


@pytest.mark.parametrize("django_site", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "entry, url",
    [
        ({}, "mysql:///shop"),
        (
            {"USER": "ada", "PASSWORD": "p@ss/word", "HOST": "db", "PORT": "3307"},
            "mysql://ada:p%40ss%2Fword@db:3307/shop",
        ),
        ({"HOST": "/run/mysqld.sock", "PORT": "3307"}, "mysql:///shop?unix_socket=%2Frun%2Fmysqld.sock"),
        ({"HOST": "db", "OPTIONS": {"host": "other", "db": "till", "port": 3307}}, "mysql://other:3307/till"),
        ({"OPTIONS": {"unix_socket": "/run/s"}, "HOST": "db"}, "mysql:///shop?unix_socket=%2Frun%2Fs"),
        ({"OPTIONS": {"ssl": {"ca": "/ca.pem"}}}, "mysql:///shop?ssl_ca=%2Fca.pem"),
        (
            {"OPTIONS": {"ssl": {"cert": "/c", "key": "/k"}, "ssl_mode": "VERIFY_IDENTITY"}},
            "mysql:///shop?ssl=true&ssl_cert=%2Fc&ssl_check_hostname=true&ssl_key=%2Fk&ssl_verify_cert=true",
        ),
        ({"OPTIONS": {"ssl_mode": "required"}}, "mysql:///shop?ssl=true&ssl_check_hostname=false"),
        ({"OPTIONS": {"ssl_mode": "DISABLED", "ssl": {"ca": "/ca.pem"}}}, "mysql:///shop"),
        ({"OPTIONS": {"ssl_ca": "/ca.pem"}}, "mysql:///shop?ssl_ca=%2Fca.pem&ssl_check_hostname=false"),
        (
            {"OPTIONS": {"ssl_ca": "/ca.pem", "ssl_verify_identity": True, "ssl_verify_cert": True}},
            "mysql:///shop?ssl_ca=%2Fca.pem&ssl_check_hostname=true&ssl_verify_cert=true",
        ),
    ],
)
def test_a_worker_goes_where_djangos_driver_for_mysql_goes(entry: dict[str, Any], url: str) -> None:
    with connected_to({"default": MYSQL | entry}):
        assert url_of("default").render_as_string(hide_password=False) == url


@pytest.mark.parametrize("django_site", ["sqlite"], indirect=True)
def test_a_worker_reads_the_option_file_that_django_is_pointed_to(tmp_path: Path) -> None:
    file = tmp_path / "my.cnf"
    file.write_text(
        "[mysqld]\nport = 1\n[client]\nuser = ada\npassword = 'p@ss'\nport = 3307\nhost = old\nhost = db\n"
        "compress\n[shop]\ndatabase = shop\nuser = shopkeeper\n"
    )
    options = {"read_default_file": str(file)}
    found: list[str] = []
    for given in (options, options | {"read_default_group": "shop"}, options | {"read_default_group": "none"}):
        with connected_to({"default": {"ENGINE": MYSQL["ENGINE"], "PORT": "3308", "OPTIONS": given}}):
            found.append(url_of("default").render_as_string(hide_password=False))

    assert found == [
        "mysql://ada:p%40ss@db:3308",
        "mysql://shopkeeper:p%40ss@db:3308/shop",
        "mysql://ada:p%40ss@db:3308",
    ]


@pytest.mark.parametrize("django_site", ["sqlite"], indirect=True)
def test_a_character_set_without_emoji_is_told() -> None:
    import django

    with connected_to({"default": MYSQL | {"OPTIONS": {"charset": "utf8"}}}):
        assert "utf8mb4" in told()["outlast.E007"]
    with connected_to({"default": MYSQL | {"OPTIONS": {"charset": "utf8mb4"}}}):
        assert told() == {}
    with connected_to({"default": MYSQL}):
        assert ("outlast.E007" in told()) == (django.VERSION < (5, 2))


@pytest.mark.parametrize("django_site", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "entry, drivers, extra",
    [
        (POSTGRESQL, "asyncpg, or psycopg 3, which are", "outlast[postgres]"),
        (MYSQL, "asyncmy, which is", "outlast[mysql]"),
    ],
)
def test_what_a_worker_lacks_is_told(
    entry: dict[str, Any], drivers: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    with connected_to({"default": entry | {"OPTIONS": {"charset": "utf8mb4"}}}):
        assert extra in told()["outlast.W002"]
        assert f"outlast_worker needs {drivers} not installed." in told()["outlast.W002"]
        for driver in re.findall(r"asyncpg|psycopg|asyncmy", drivers):
            monkeypatch.setattr(checks, "find_spec", driver.__eq__)
            assert told() == {}
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    assert "outlast.W002" not in told()  # SQLite's is Python's own


def test_a_worker_needs_a_database_that_others_find() -> None:
    with connected_to({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}):
        with pytest.raises(ImproperlyConfigured, match="A worker needs a file"):
            url_of("default")
        app.forget()
        app.blocking.migrate()
        assert app.blocking.list().runs == ()


def test_an_app_that_nobody_uses_reads_nothing() -> None:
    with override_settings(OUTLAST={"DATABASE": "other"}):
        assert "not used yet" in repr(app)


def test_django_finds_nothing_wrong_with_the_project_itself() -> None:
    call_command("check")
