"""The command `outlast`, as processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outlast import Outlast
from outlast.cli.commands import commands
from outlast.cli.loading import NotFound, load_app
from outlast.cli.main import main
from support.processes import ChildProcess, StartProcess

SHOP = """
import asyncio, os, time
from outlast import Context, Outlast, WorkerOptions, step, workflow

@step
async def work(seconds: float) -> str:
    print("step begins", flush=True)
    await asyncio.sleep(seconds)
    print("step ends", flush=True)
    return "done"

@step
async def block() -> None:
    print("step blocks", flush=True)
    time.sleep(60)

@workflow("work")
async def working(ctx: Context, seconds: float) -> str:
    return await work(seconds)

@workflow("block")
async def blocking(ctx: Context) -> None:
    await block()

app = Outlast(
    os.environ["SHOP_URL"], workflows=[working, blocking], worker=WorkerOptions(shutdown_timeout="20s", lease="30s")
)
client = Outlast(os.environ["SHOP_URL"], workflows=[working, blocking], worker=False)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    return tmp_path


class Cli:
    def __init__(self, start: StartProcess, folder: Path, url: str) -> None:
        self._start = start
        self._folder = folder
        self._environment = {"SHOP_URL": url}

    def __call__(self, *arguments: str, **environment: str) -> ChildProcess:
        return self._start(
            "-m", "outlast.cli.main", *arguments, cwd=self._folder, env={**self._environment, **environment}
        )


@pytest.fixture
def cli(start_process: StartProcess, shop: Path, shared_database_url: str) -> Cli:
    return Cli(start_process, shop, shared_database_url)


@pytest.fixture
def app(shop: Path, shared_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outlast]:
    """What the processes run, here only to start and to look."""
    loaded = loaded_in(shop, shared_database_url, monkeypatch)
    yield loaded
    loaded.blocking.close()


@pytest.fixture
def local_app(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Outlast:
    return loaded_in(shop, "sqlite://", monkeypatch)


def loaded_in(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Outlast:
    monkeypatch.setenv("SHOP_URL", url)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("shop", None)
    return load_app("shop:client")


def start(app: Outlast, name: str, *arguments: object) -> str:
    workflow = next(one for one in (sys.modules["shop"].working, sys.modules["shop"].blocking) if one.name == name)
    run_id: str = app.blocking.start(workflow, *arguments).id
    return run_id


@pytest.mark.parametrize("target", ["shop:app", "shop:client"])
def test_a_worker_works_until_it_is_told_to_end(cli: Cli, app: Outlast, target: str) -> None:
    run_id = start(app, "work", 0.0)
    worker = cli("worker", target)

    worker.wait_for("works in process")
    assert f"Database: {app.place}. Workflows: {app.registered}.\n" in worker.output
    assert "version 1" in app.registered
    assert app.blocking.result(run_id, timeout="20s") == "done"
    worker.terminate()

    assert worker.wait() == 0


@pytest.mark.every_database("mysql")
def test_the_first_signal_lets_running_steps_end(cli: Cli, app: Outlast) -> None:
    worker = cli("worker", "shop:app")
    worker.wait_for("works in process")
    run_id = start(app, "work", 1.0)
    worker.wait_for("step begins")

    worker.terminate()

    worker.wait_for("Stopping")
    worker.wait_for("step ends")
    assert worker.wait() == 0
    run = app.blocking.get(run_id)
    assert run is not None
    assert run.worker is None


def test_a_worker_works_by_what_its_command_line_says(cli: Cli, app: Outlast) -> None:
    """Also that of an app which has no worker in its own process, and so no options for one."""
    worker = cli("worker", "shop:client", "--concurrency", "1", "--shutdown-timeout", "0s", "--lease", "1h")
    worker.wait_for("works in process")
    running = start(app, "work", 60.0)
    worker.wait_for("step begins")
    waiting = start(app, "work", 0.0)

    worker.terminate()

    assert worker.wait() == 0, "one signal is enough"
    assert "step ends" not in worker.output
    runs = [app.blocking.get(run_id) for run_id in (running, waiting)]
    assert [(run.turns, run.worker) for run in runs if run is not None] == [(1, None), (0, None)]


@pytest.mark.parametrize(
    "option, said",
    [
        (("--concurrency", "0"), "concurrency=...) is a whole number from 1"),
        (("--concurrency", "1000001"), "concurrency=...) is a whole number from 1 to 1,000,000; 1000001 is not."),
        (("--lease", "soon"), "lease=...) must be"),
        (("--poll", "soon"), "poll=...) must be"),
        (("--shutdown-timeout", "soon"), "shutdown_timeout=...) must be"),
        (("--threads", "0"), "threads=...) is a whole number from 1"),
    ],
)
@pytest.mark.usefixtures("local_app")
def test_a_worker_refuses_options_that_no_worker_can_have(option: tuple[str, str], said: str) -> None:
    ended = CliRunner().invoke(commands, ["worker", "shop:app", *option])

    assert ended.exit_code == 1
    assert said in ended.output
    assert "Traceback" not in ended.output


def test_the_second_signal_hands_back_at_once(cli: Cli, app: Outlast) -> None:
    """Seen in the field: after the second signal the work was stuck until its lease had run out."""
    worker = cli("worker", "shop:app")
    worker.wait_for("works in process")
    run_id = start(app, "work", 60.0)
    worker.wait_for("step begins")

    worker.terminate()
    worker.wait_for("Stopping")
    worker.terminate()

    assert worker.wait() == 1
    run = app.blocking.get(run_id)
    assert run is not None
    assert (run.worker, run.lapses, run.failure) == (None, 0, None)
    cli("worker", "shop:app").wait_for("step begins")


def test_signals_end_a_worker_whose_loop_is_blocked(cli: Cli, app: Outlast) -> None:
    worker = cli("worker", "shop:app")
    worker.wait_for("works in process")
    start(app, "block")
    worker.wait_for("step blocks")

    for _ in range(3):
        worker.terminate()
        worker.wait_for("signal")

    assert worker.wait() == 1


def test_a_worker_that_cannot_start_says_why_and_fails(cli: Cli, app: Outlast) -> None:
    worker = cli("worker", "shop:app", OUTLAST_ENV="production")

    assert worker.wait() == 1
    assert "SchemaBehind" in worker.output
    assert "outlast migrate" in worker.output
    assert "Traceback" not in worker.output


@pytest.mark.every_database("mariadb")
def test_migrate_says_what_it_did(cli: Cli) -> None:
    first = cli("migrate", "shop:app", OUTLAST_ENV="production")
    assert first.wait() == 0
    second = cli("migrate", "shop:app", OUTLAST_ENV="production")
    assert second.wait() == 0

    assert "Applied 1;" in first.output
    assert "up to date already" in second.output


@pytest.mark.parametrize(
    "target, said",
    [
        ("shop", "module:attribute"),
        (":app", "module:attribute"),
        ("shop:", "module:attribute"),
        (".shop:app", "module:attribute"),
        ("nowhere:app", "no module 'nowhere'"),
        ("shop.deeper:app", "no module 'shop.deeper'"),
        ("shop:nothing", "has no 'nothing'. There is shop:app and shop:client.$"),
        ("shop:client.nothing", r"has no 'client\.nothing'"),
        ("shop:work", "no Outlast.* but a Step. There is shop:app and shop:client.$"),
        ("asyncio:run", r"no Outlast\(\.\.\.\), but a function\.$"),
    ],
)
def test_a_target_that_is_not_there_is_told(local_app: Outlast, target: str, said: str) -> None:
    assert load_app("shop:client") is local_app
    with pytest.raises(NotFound, match=said):
        load_app(target)


def test_an_error_of_the_applications_own_module_comes_through(local_app: Outlast) -> None:
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        load_app("broken:app")


def test_what_is_wrong_is_said_in_one_line(start_process: StartProcess, shop: Path) -> None:
    process = Cli(start_process, shop, "sqlite://")("migrate", "nowhere:app")

    assert process.wait() == 1
    assert process.output.count("\n") == 0
    assert "no module 'nowhere'" in process.output


def test_without_typer_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.cli.main.find_spec", lambda name: None)

    with pytest.raises(SystemExit, match=r'pip install "outlast\[cli\]"'):
        main()
