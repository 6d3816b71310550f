"""The server that tests are free to break."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from support.processes import StartProcess
from support.tcp_proxy import COMMIT_MESSAGE, TcpProxy
from tools.postgres import PrivatePostgres
from tools.processes import children, is_standing

OWNER = """
from tools.postgres import PrivatePostgres
server = PrivatePostgres()
server.start()
print("url", server.url(), server._folder, flush=True)
input_never_comes = __import__("threading").Event().wait()
"""


def test_each_database_is_fresh_and_apart(postgres: PrivatePostgres) -> None:
    first, second = postgres.create_database(), postgres.create_database()

    _execute(first, "create table only_here (a int)")

    with pytest.raises(psycopg.errors.UndefinedTable):
        _execute(second, "select * from only_here")
    postgres.drop_database(first)
    postgres.drop_database(second)


def test_a_database_in_use_is_dropped_all_the_same(postgres: PrivatePostgres) -> None:
    url = postgres.create_database()

    with psycopg.connect(url) as connection:
        postgres.drop_database(url)

        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


def test_what_was_committed_outlives_a_crash(breakable_postgres: PrivatePostgres) -> None:
    url = breakable_postgres.create_database()
    _execute(url, "create table kept (a int)")

    breakable_postgres.restart(immediate=True)

    _execute(url, "select * from kept")


def test_a_stopped_server_refuses_and_comes_back_on_its_port(breakable_postgres: PrivatePostgres) -> None:
    url = breakable_postgres.url()
    breakable_postgres.stop()

    with pytest.raises(psycopg.OperationalError, match="refused"):
        _execute(url, "select 1")

    breakable_postgres.start()
    _execute(url, "select 1")


def test_a_paused_server_answers_nothing_until_it_goes_on(breakable_postgres: PrivatePostgres) -> None:
    with closing(psycopg.connect(breakable_postgres.url())) as connection:
        breakable_postgres.pause()
        assert all(map(is_standing, [breakable_postgres.pid, *children(breakable_postgres.pid)]))
        connection.pgconn.send_query(b"select 1")
        connection.pgconn.flush()
        assert not _is_readable(connection.fileno(), seconds=0.2)

        breakable_postgres.resume()

        assert _is_readable(connection.fileno(), seconds=10)


def test_a_server_left_paused_does_not_block_the_next_test(breakable_postgres: PrivatePostgres) -> None:
    breakable_postgres.pause()

    breakable_postgres.restart()

    _execute(breakable_postgres.url(), "select 1")


@pytest.mark.parametrize("last_word", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_the_process_that_made_it(
    postgres: PrivatePostgres, start_process: StartProcess, last_word: signal.Signals
) -> None:
    owner = start_process("-c", OWNER)
    _, url, folder = owner.wait_for("url").split()

    os.kill(owner.pid, last_word)
    owner.wait()

    _wait_until_gone(Path(folder))
    with pytest.raises(psycopg.OperationalError, match="refused"):
        _execute(url, "select 1")


def test_a_server_that_its_owner_paused_ends_with_it(postgres: PrivatePostgres, start_process: StartProcess) -> None:
    owner = start_process("-c", OWNER.replace("print(", "server.pause(); print("))
    folder = owner.wait_for("url").split()[2]

    owner.kill()

    _wait_until_gone(Path(folder))


def test_a_command_runs_beside_a_server_of_its_own(postgres: PrivatePostgres) -> None:
    program = "import os, psycopg; psycopg.connect(os.environ['OUTLAST_POSTGRES_URL']).close(); raise SystemExit(7)"

    done = subprocess.run(
        [sys.executable, "tools/postgres.py", "run", "--", sys.executable, "-c", program], check=False
    )

    assert done.returncode == 7


def test_a_cut_link_breaks_at_once(postgres_proxy: TcpProxy, postgres_url: str) -> None:
    with psycopg.connect(postgres_proxy.url(postgres_url), autocommit=True) as connection:
        connection.execute("select 1")

        postgres_proxy.cut()

        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    _execute(postgres_proxy.url(postgres_url), "select 1")


@pytest.mark.parametrize("delivered", [True, False])
def test_a_link_cut_at_commit_leaves_the_client_in_doubt(
    postgres_proxy: TcpProxy, postgres_url: str, delivered: bool
) -> None:
    """The client sees the same broken link, whether the server has committed or never heard of it."""
    _execute(postgres_url, "create table doubted (a int)")
    postgres_proxy.cut_at(b"COMMIT", delivered=delivered)

    with psycopg.connect(postgres_proxy.url(postgres_url)) as connection:
        connection.execute("insert into doubted values (1)")
        with pytest.raises(psycopg.OperationalError):
            connection.commit()

    postgres_proxy.wait_for_cut()
    assert _rows(postgres_url, "select * from doubted") == ([(1,)] if delivered else [])


def test_a_held_message_arrives_when_it_is_released(postgres_proxy: TcpProxy, postgres_url: str) -> None:
    """The client has seen its link break long ago; nothing stops the server from acting on what was sent before."""
    _execute(postgres_url, "create table delayed (a int)")
    postgres_proxy.hold_at(COMMIT_MESSAGE, after=b"delayed")

    with psycopg.connect(postgres_proxy.url(postgres_url)) as connection:
        connection.execute("select 1")
        connection.commit()
        connection.execute("insert into delayed values (1)")
        with pytest.raises(psycopg.OperationalError):
            connection.commit()

    postgres_proxy.wait_for_cut()
    assert _rows(postgres_url, "select * from delayed") == []
    postgres_proxy.release()
    assert _rows(postgres_url, "select * from delayed") == [(1,)]


def test_a_link_cut_after_some_bytes_breaks_within_a_message(postgres_proxy: TcpProxy, postgres_url: str) -> None:
    with psycopg.connect(postgres_proxy.url(postgres_url), autocommit=True) as connection:
        postgres_proxy.cut_after(10)

        with pytest.raises(psycopg.OperationalError):
            connection.execute("create table never_made (a int)")

    with pytest.raises(psycopg.errors.UndefinedTable):
        _execute(postgres_url, "select * from never_made")


def test_a_refusing_proxy_lets_through_again(postgres_proxy: TcpProxy, postgres_url: str) -> None:
    url = postgres_proxy.url(postgres_url)
    postgres_proxy.refuse()

    with pytest.raises(psycopg.OperationalError, match="refused"):
        _execute(url, "select 1")

    postgres_proxy.let_through()
    _execute(url, "select 1")


def test_a_stalled_link_holds_its_bytes_until_let_through(postgres_proxy: TcpProxy, postgres_url: str) -> None:
    with closing(psycopg.connect(postgres_proxy.url(postgres_url))) as connection:
        postgres_proxy.stall()
        connection.pgconn.send_query(b"select 1")
        connection.pgconn.flush()
        assert not _is_readable(connection.fileno(), seconds=0.2)

        postgres_proxy.let_through()

        assert _is_readable(connection.fileno(), seconds=10)


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def _rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def _is_readable(descriptor: int, *, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _wait_until_gone(path: Path) -> None:
    deadline = time.monotonic() + 20
    while path.exists():
        assert time.monotonic() < deadline, f"{path} is still there"
        time.sleep(0.01)
