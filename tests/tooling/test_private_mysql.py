"""The MySQL and MariaDB servers that tests are free to break."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from support.probing import connect_mysql, until
from support.processes import StartProcess
from tools.mysql import PrivateMySQL
from tools.processes import is_standing

OWNER = """
import sys
from tools.mariadb import PrivateMariaDB
from tools.mysql import PrivateMySQL
server = {"MySQL": PrivateMySQL, "MariaDB": PrivateMariaDB}[sys.argv[1]]()
server.start()
print("url", server.url(), server._folder, flush=True)
input_never_comes = __import__("threading").Event().wait()
"""


def test_each_database_is_fresh_and_apart(mysqlish: PrivateMySQL) -> None:
    first, second = mysqlish.create_database(), mysqlish.create_database()

    _execute(first, "create table only_here (a int)")

    with pytest.raises(pymysql.ProgrammingError):
        _execute(second, "select * from only_here")
    mysqlish.drop_database(first)
    mysqlish.drop_database(second)


def test_a_database_in_use_is_dropped_all_the_same(mysqlish: PrivateMySQL) -> None:
    url = mysqlish.create_database()
    _execute(url, "create table used (a int)")

    with closing(connect_mysql(url)) as connection:
        connection.begin()
        _ask(connection, "select * from used")
        mysqlish.drop_database(url)

        with pytest.raises(pymysql.OperationalError):
            _ask(connection, "select 1")


def test_its_temporary_tables_lie_where_no_other_server_starts(mysqlish: PrivateMySQL) -> None:
    """MariaDB removes all temporary tables that it finds as it starts: so an update of another server failed."""
    ((place,),) = mysqlish.execute("select @@tmpdir")

    assert Path(place) == mysqlish.folder / "tmp"


def test_what_was_committed_outlives_a_crash(breakable_mysqlish: PrivateMySQL) -> None:
    url = breakable_mysqlish.create_database()
    _execute(url, "create table kept (a int)")

    breakable_mysqlish.restart(immediate=True)

    _execute(url, "select * from kept")


def test_a_stopped_server_refuses_and_comes_back_on_its_port(breakable_mysqlish: PrivateMySQL) -> None:
    url = breakable_mysqlish.create_database()
    breakable_mysqlish.stop()

    with pytest.raises(pymysql.OperationalError, match="refused"):
        _execute(url, "select 1")

    breakable_mysqlish.start()
    _execute(url, "select 1")


def test_a_paused_server_answers_nothing_until_it_goes_on(breakable_mysqlish: PrivateMySQL) -> None:
    url = breakable_mysqlish.create_database()
    with closing(connect_mysql(url)) as made:
        connection: Any = made
        breakable_mysqlish.pause()
        assert is_standing(breakable_mysqlish.pid)
        connection._execute_command(3, "select 1")
        assert not _is_readable(connection, seconds=0.2)

        breakable_mysqlish.resume()

        assert _is_readable(connection, seconds=10)


def test_a_server_ends_with_the_process_that_made_it(mysqlish: PrivateMySQL, start_process: StartProcess) -> None:
    owner = start_process("-c", OWNER, mysqlish.name)
    _, url, folder = owner.wait_for("url").split()

    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()

    until(lambda: not Path(folder).exists(), "the server's folder to go")
    with pytest.raises(pymysql.OperationalError, match=r"refused|Lost connection"):
        _execute(url, "select 1")


def test_a_command_runs_beside_a_server_of_its_own(mysqlish: PrivateMySQL) -> None:
    name = mysqlish.name.lower()
    program = (
        "import os, urllib.parse, pymysql; "
        f"url = urllib.parse.urlsplit(os.environ['OUTLAST_{name.upper()}_URL']); "
        "pymysql.connect(host=url.hostname, port=url.port, user=url.username, password=url.password, "
        "database=url.path[1:]).close(); raise SystemExit(7)"
    )

    done = subprocess.run(
        [sys.executable, "-m", f"tools.{name}", "run", "--", sys.executable, "-c", program], check=False
    )

    assert done.returncode == 7


def _ask(connection: pymysql.Connection[Any], statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _execute(url: str, statement: str) -> None:
    with closing(connect_mysql(url)) as connection:
        _ask(connection, statement)


def _is_readable(connection: Any, *, seconds: float) -> bool:
    return bool(select.select([connection._sock], [], [], seconds)[0])
