"""Flask under real servers: the reloader's two processes, gunicorn's forks, and a worker in a process of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import pytest

from examples.shop.processes import free_port
from support.probing import Tables, until
from support.processes import ChildProcess, StartProcess

PROGRAM = Path(__file__).parent / "flask_program.py"


class Site:
    """Where the application is served, seen from outside."""

    def __init__(self) -> None:
        self.port = free_port()
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=40)

    def greet(self, name: str) -> tuple[int, int]:
        """Return which process served the request, and which executed the run."""
        served_by, executed_by = self._client.post(f"/greetings/{name}").raise_for_status().json()
        return served_by, executed_by

    def serving_process(self) -> int | None:
        try:
            answer = self._client.get("/health")
        except httpx.TransportError:
            return None
        return answer.json()[0] if answer.is_success else None

    def wait(self) -> int:
        process = until(self.serving_process, "the server to answer")
        assert process is not None
        return process

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the application's own, which a reloader watches."""
    (tmp_path / "greetings.py").write_text(PROGRAM.read_text())
    return tmp_path


def environment(url: str, worker: str) -> dict[str, str]:
    return {"GREETINGS_URL": url, "GREETINGS_WORKER": worker}


@pytest.mark.time_limit(120)
def test_under_the_reloader_one_process_works_and_hands_over_when_the_code_changes(
    site: Site, folder: Path, start_process: StartProcess, shared_database_url: str
) -> None:
    tables = Tables(shared_database_url)
    arguments = ["-m", "flask", "--app", "greetings", "run", "--debug", "--port", str(site.port)]
    server = start_process(*arguments, env=environment(shared_database_url, "thread"), cwd=folder)
    first = site.wait()

    assert site.greet("Ada") == (first, first)
    assert first != server.pid, "the reloader serves in a child"
    assert len(tables("select id from {workers}")) == 1

    with (folder / "greetings.py").open("a") as code:
        code.write("\n# changed\n")
    until(lambda: site.serving_process() not in {None, first}, "the new code to be served", timeout=60)
    second = site.wait()

    assert site.greet("Bob") == (second, second)
    assert len(tables("select id from {workers}")) == 1, "the first process gave its lease back when it ended"
    site.close()


@pytest.mark.every_database("mysql")
@pytest.mark.time_limit(120)
def test_each_process_that_gunicorn_forks_from_a_loaded_application_works_by_itself(
    site: Site, folder: Path, start_process: StartProcess, shared_database_url: str
) -> None:
    """The application was loaded, and has used its database, before the fork."""
    with (folder / "greetings.py").open("a") as code:
        code.write(
            "\napp = create_app()\nwith app.app_context():\n    outlast.blocking.migrate()\n    outlast.blocking.list()\n"
        )
    arguments = ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{site.port}", "greetings:app"]
    server = start_process(*arguments, env=environment(shared_database_url, "thread"), cwd=folder)
    site.wait()

    served: set[int] = set()
    executed: set[int] = set()

    def both_have_served() -> bool:
        served_by, executed_by = site.greet(f"customer {len(served)}")
        served.add(served_by)
        executed.add(executed_by)
        return len(served) == 2

    until(both_have_served, "both processes to serve")
    assert server.pid not in served
    assert executed <= served
    assert len(Tables(shared_database_url)("select id from {workers}")) == 2

    server.terminate()
    assert server.wait() == 0, server.output
    assert Tables(shared_database_url)("select id from {workers}") == [], "leases were given back"
    site.close()


@pytest.mark.time_limit(120)
def test_a_process_that_gunicorn_has_begun_can_work_before_its_first_request(
    site: Site, folder: Path, start_process: StartProcess, shared_database_url: str
) -> None:
    env = environment(shared_database_url, "thread")
    (folder / "gunicorn.conf.py").write_text(
        "def post_worker_init(worker):\n    from greetings import outlast\n\n"
        "    with worker.wsgi.app_context():\n        outlast.start_worker()\n"
    )
    migrating = start_process("-m", "flask", "--app", "greetings", "outlast", "migrate", env=env, cwd=folder)
    assert migrating.wait() == 0, migrating.output

    start_process("-m", "gunicorn", "--bind", f"127.0.0.1:{site.port}", "greetings:create_app()", env=env, cwd=folder)

    tables = Tables(shared_database_url)
    until(lambda: len(tables("select id from {workers}")) == 1, "the worker to begin without a request")
    process = site.wait()
    assert site.greet("Ada") == (process, process)
    assert len(tables("select id from {workers}")) == 1, "the first request starts no second one"
    site.close()


@pytest.mark.every_database("mariadb")
@pytest.mark.time_limit(120)
def test_a_worker_in_a_process_of_its_own_executes_what_the_server_starts(
    site: Site, folder: Path, start_process: StartProcess, shared_database_url: str
) -> None:
    env = environment(shared_database_url, "process")
    flask = ["-m", "flask", "--app", "greetings"]
    migrating = start_process(*flask, "outlast", "migrate", env=env, cwd=folder)
    assert migrating.wait() == 0, migrating.output
    assert migrating.output.splitlines()[-1].endswith("tables are up to date.")
    start_process(*flask, "run", "--port", str(site.port), env=env, cwd=folder)
    site.wait()
    worker = start_process(*flask, "outlast", "worker", env=env, cwd=folder)
    worker.wait_for("works in process")

    _, executed_by = site.greet("Ada")

    assert executed_by == worker.pid
    _end_in_order(worker, shared_database_url)
    site.close()


def test_a_command_that_fails_says_why_in_one_line(folder: Path, start_process: StartProcess) -> None:
    url = f"sqlite:///{folder}/missing/folder/shop.db"
    command = ["-m", "flask", "--app", "greetings", "outlast", "migrate"]

    failing = start_process(*command, env=environment(url, "process"), cwd=folder)

    assert failing.wait(timeout=50) == 1
    assert "Error: Database" in failing.output.splitlines()[-1]
    assert "Traceback" not in failing.output


def _end_in_order(worker: ChildProcess, url: str) -> None:
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait() == 0, worker.output
    assert Tables(url)("select id from {workers}") == []
