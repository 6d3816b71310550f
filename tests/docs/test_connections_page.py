"""The programs of the page on connections run: against a role whose password is a token, behind a real PgBouncer, and with a
pool of MySQL's."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from support.project import ROOT

PAGE = (ROOT / "docs" / "how-to" / "connections.md").read_text()


def program(server: str) -> str:
    (found,) = re.findall(rf"<!-- run with: {server} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def output(source: str, folder: Path) -> str:
    (folder / "page.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-W", "error", "page.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def role(postgres_url: str) -> Iterator[None]:
    database = urlsplit(postgres_url).path[1:]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("create role shop login password 'a token'")
        admin.execute(f'grant create on database "{database}" to shop'.encode())
        yield
        admin.execute("drop owned by shop cascade")
        admin.execute("drop role shop")


@pytest.mark.usefixtures("role")
def test_the_program_with_tokens_runs(postgres_url: str, tmp_path: Path) -> None:
    parts = urlsplit(postgres_url)
    without_password = urlunsplit(parts._replace(netloc=f"{parts.hostname}:{parts.port}"))
    source = program("postgresql").replace("postgresql://localhost/shop", without_password)

    assert output(f"def generate_token() -> str:\n    return 'a token'\n{source}", tmp_path) == "Hello, Ada\n"


def test_the_program_behind_pgbouncer_runs(pooled_url: str, direct_url: str, tmp_path: Path) -> None:
    source = program("pgbouncer")
    for written, given in ((":6432/shop", pooled_url), (":5432/shop", direct_url)):
        assert written in source
        source = source.replace(f"postgresql://localhost{written}", given)

    assert output(source, tmp_path) == "Hello, Ada\n"


def test_the_program_with_a_pool_of_mysql_runs(mysql_url: str, tmp_path: Path) -> None:
    parts = urlsplit(mysql_url)
    written = 'host="localhost", port=3306, user="shop", password="secret", db="shop"'
    given = f'host="{parts.hostname}", port={parts.port}, user="{parts.username}", password="{parts.password}"'
    source = program("mysql")
    assert written in source

    assert output(source.replace(written, f'{given}, db="{parts.path[1:]}"'), tmp_path) == "Hello, Ada\n"
