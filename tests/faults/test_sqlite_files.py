"""A SQLite file that somebody deletes, replaces or puts back while an app has it open."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from outlast import Context, DatabaseUnavailable, Outlast, WorkerOptions, workflow
from outlast.stores.databases import sqlite_connection
from support.colours import Ask
from support.probing import until_seen


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connection, "LOOK_EVERY", 0.0)


def damage(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t (x)")
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))


def fill(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


NOT_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "folder": (Path.mkdir, "is a folder. Name a file"),
    "other": (fill, "is no SQLite database. Name another one"),
    "damaged": (damage, "is damaged. Put a backup"),
}


@pytest.mark.parametrize("kind", NOT_FILES)
async def test_what_is_no_database_is_refused_at_once(path: Path, kind: str, ask: Ask) -> None:
    """Waiting does not mend it: it ended as the driver's own error, or after half a minute without a word."""
    make, told = NOT_FILES[kind]
    make(path)

    with pytest.raises(DatabaseUnavailable, match=told):
        await ask(app_of(path), "start", greet, "Ada")


@pytest.mark.parametrize(
    "mode, told", [(0o444, "has no permission"), (0o000, "has no permission"), (None, "cannot be written to")]
)
def test_a_file_without_permission_is_refused_at_once(mode: int | None, told: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outlast.db"
        app = app_of(path)
        app.blocking.migrate()
        app.blocking.close()
        path.chmod(0o666 if mode is None else mode)
        path.parent.chmod(0o555 if mode is None else 0o777)
        program = (
            "import os, sys, time\n"
            "from outlast import Outlast\n"
            "time.sleep = lambda _: sys.exit('It was waited.')\n"
            "if os.geteuid() == 0: os.setuid(65534)\n"
            f"Outlast({f'sqlite:///{path}'!r}).blocking.migrate()\n"
            f"Outlast({f'sqlite:///{path}'!r}).blocking.cancel('none')\n"
        )

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

        path.parent.chmod(0o777)
    assert "outlast.errors.DatabaseUnavailable" in done.stderr
    assert told in done.stderr


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outlast.db"


def app_of(path: Path, *, worker: bool = False) -> Outlast:
    return Outlast(f"sqlite:///{path}", workflows=[greet], worker=worker and WorkerOptions(poll="50ms"))


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path, by: Path) -> None:
    by.replace(path)


def saved(path: Path) -> Path:
    """Copy what is in the file to another one."""
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


async def test_nothing_is_written_to_a_file_that_was_deleted(path: Path, ask: Ask) -> None:
    """Starts were acknowledged, and went with the last connection to the file that had no name any more."""
    async with app_of(path) as app:
        await ask(app, "start", greet, "Ada", id="a")
        delete(path)

        for verb, *arguments in (("start", greet, "Grace"), ("get", "a"), ("cancel", "a"), ("list",)):
            with pytest.raises(DatabaseUnavailable, match=r"outlast\.db' was deleted while .* open it again"):
                await ask(app, str(verb), *arguments)


async def test_nothing_is_written_to_a_file_that_another_one_has_replaced(path: Path, ask: Ask) -> None:
    async with app_of(path) as app:
        await ask(app, "start", greet, "Ada", id="a")
        replace(path, saved(path))

        with pytest.raises(DatabaseUnavailable, match=r"outlast\.db' was replaced by another"):
            await ask(app, "start", greet, "Grace", id="g")

    async with app_of(path) as app:
        assert [run.id for run in (await app.list()).runs] == ["a"]


async def test_it_goes_on_when_the_file_is_back(path: Path, ask: Ask) -> None:
    async with app_of(path) as app:
        away = path.with_name("away.db")
        replace(away, path)
        with pytest.raises(DatabaseUnavailable, match="deleted"):
            await ask(app, "start", greet, "Ada", id="a")
        replace(path, away)

        assert (await ask(app, "start", greet, "Ada", id="a")).created


async def test_a_worker_says_so_and_goes_on_when_the_app_is_opened_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(path, worker=True)
    async with app:
        delete(path)
        await until_seen(lambda: "was deleted while it was in use" in caplog.text, "the worker to say so")

    async with app:
        assert await app.start_and_wait(greet, "Ada", wait="20s") == "Hello, Ada"


async def test_a_process_that_goes_to_another_folder_keeps_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    async with Outlast("sqlite:///here.db", workflows=[greet], worker=False) as app:
        await app.start(greet, "Ada")
        await app.get("nobody")
        monkeypatch.chdir(other)

        assert (await app.start(greet, "Grace")).created
    shutil.rmtree(other)
