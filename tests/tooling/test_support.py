"""What the tests stand on."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.nursery import Nursery
from support.processes import StartProcess
from support.programs.ledger import Effect, Ledger, add_many

ASYNC_TESTS = """
import asyncio, pytest

async def test_that_passes():
    await asyncio.sleep(0)

async def test_that_fails():
    await asyncio.sleep(0)
    assert 1 == 2

@pytest.mark.time_limit(0.05)
async def test_that_hangs():
    await asyncio.Event().wait()

@pytest.mark.time_limit(-4.9)
def test_that_blocks():
    import threading
    threading.Event().wait()
"""


async def test_an_async_test_runs_in_a_loop_without_debug() -> None:
    assert not asyncio.get_running_loop().get_debug()


@given(number=st.integers())
async def test_an_async_test_may_be_given_examples(number: int) -> None:
    await asyncio.sleep(0)
    assert number == int(str(number))


def test_async_tests_are_run_and_bounded(start_process: StartProcess, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("inner")
    (folder / "test_inner.py").write_text(ASYNC_TESTS)

    plugins = ["-p", "support.time_limit", "-p", "support.asyncio_plugin", "-p", "no:randomly"]
    inner = start_process("-m", "pytest", "-q", *plugins, str(folder), cwd=folder)

    assert inner.wait() == pytest.ExitCode.TESTS_FAILED
    assert "3 failed, 1 passed" in inner.output
    assert inner.output.count("Failed: the test took") + inner.output.count("TimeoutError") >= 2


def test_a_child_is_heard_line_by_line(start_process: StartProcess) -> None:
    child = start_process("-c", "print('one'); print('two'); print('one more')")

    assert child.wait_for("one") == "one"
    assert child.wait_for("one") == "one more"
    assert child.wait() == 0
    assert child.output == "one\ntwo\none more"


def test_a_child_that_ends_early_shows_what_it_said(start_process: StartProcess) -> None:
    child = start_process("-c", "raise SystemExit('I give up')")

    with pytest.raises(pytest.fail.Exception, match="I give up"):
        child.wait_for("ready")


def test_a_child_can_be_paused_and_killed(start_process: StartProcess) -> None:
    child = start_process("-c", "import threading; print('ready'); threading.Event().wait()")
    child.wait_for("ready")

    child.pause()
    child.resume()
    child.kill()

    assert child.wait() == -signal.SIGKILL


DATABASE_TEST = """
def test_that_needs_a_server(postgres_url):
    raise AssertionError("never reached")
"""
FAILING_TEST = """
def test_that_fails():
    raise AssertionError("it fails")
"""


@pytest.mark.parametrize("ci, outcome", [("false", "1 skipped"), ("true", "1 error")])
def test_without_postgresql_tests_are_skipped_but_fail_in_ci(
    start_process: StartProcess, tmp_path: Path, ci: str, outcome: str
) -> None:
    (tmp_path / "test_inner.py").write_text(DATABASE_TEST)
    missing = {"OUTLAST_POSTGRES_BIN": str(tmp_path), "CI": ci}

    plugins = ("-p", "support.fix_missing", "-p", "support.fix_postgres")
    inner = start_process("-m", "pytest", "-q", *plugins, str(tmp_path), cwd=tmp_path, env=missing)

    inner.wait()
    assert outcome in inner.output
    assert "apt-get install postgresql" in inner.output


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_missing_server_is_told_in_the_last_lines_however_the_tests_are_spread(
    start_process: StartProcess, tmp_path: Path, workers: str
) -> None:
    """Run by several processes nothing was said of it, and below a failure nobody saw it."""
    (tmp_path / "test_inner.py").write_text(DATABASE_TEST + FAILING_TEST)
    missing = {"OUTLAST_POSTGRES_BIN": str(tmp_path), "CI": "false"}

    plugins = ("-p", "support.fix_missing", "-p", "support.fix_postgres", "-p", "no:randomly")
    inner = start_process("-m", "pytest", "-q", "-n", workers, *plugins, str(tmp_path), cwd=tmp_path, env=missing)

    assert inner.wait() == pytest.ExitCode.TESTS_FAILED
    told = inner.output.rpartition("FAILED test_inner.py::test_that_fails")[2]
    assert "PostgreSQL is missing" in told
    assert "Every test that needs it was skipped." in told
    assert "apt-get install postgresql" in told
    assert told.splitlines()[-1].startswith("1 failed, 1 skipped")


def test_a_ledger_is_never_read_half_written(nursery: Nursery, tmp_path: Path) -> None:
    """Of the lines on two pages of the file, some were: one look in a hundred ended within a line."""
    path = tmp_path / "ledger"
    writer = nursery.start(add_many, path=str(path), count=2_000)

    seen = [0]
    while not writer.has_ended:
        seen.append(len(Ledger(path).effects()))

    assert seen == sorted(seen)
    assert len(Ledger(path).effects()) == 2_000


def test_a_ledger_refuses_what_does_not_fit_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Ledger(tmp_path / "ledger").add(Effect("r" * 500, "step", "key", 1))
