"""A suite in which a test that fails once is run again, and one that fails twice fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes import ChildProcess, StartProcess

PASSES = """
def test_that_passes():
    pass
"""
FAILS_ONCE = """
from pathlib import Path

def test_that_fails_once():
    with Path("tried").open("a") as tried:
        tried.write("x")
    assert len(Path("tried").read_text()) > 1
"""
FAILS_LATE = """
from pathlib import Path

def test_that_fails_late():
    with Path("tried").open("a") as tried:
        tried.write("x")
    assert 1 < len(Path("tried").read_text()) < 9
"""
FAILS = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_that_fails(number):
    with open("tried", "a") as tried:
        tried.write("x")
    raise AssertionError
"""


def run(start_process: StartProcess, folder: Path, tests: str) -> ChildProcess:
    (folder / "test_inner.py").write_text(tests)
    light = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    suite = start_process("-m", "tools.suite", "-q", str(folder), cwd=folder, env=light)
    suite.wait(timeout=60)
    return suite


def test_a_suite_that_passes_is_run_once(start_process: StartProcess, tmp_path: Path) -> None:
    suite = run(start_process, tmp_path, PASSES)

    assert suite.wait() == 0
    assert suite.output.splitlines()[-1].startswith("1 passed")


def test_a_test_that_fails_once_is_named_and_does_not_fail_the_suite(
    start_process: StartProcess, tmp_path: Path
) -> None:
    suite = run(start_process, tmp_path, FAILS_ONCE + PASSES)

    assert suite.wait() == 0
    assert suite.output.splitlines()[-2:] == [
        "These failed once and then passed 12 times; find out what held them up:",
        "    test_inner.py::test_that_fails_once",
    ]
    assert len((tmp_path / "tried").read_text()) == 1 + 12


@pytest.mark.parametrize("tests, tries", [(FAILS_LATE, 1 + 8), (FAILS.format(count=2), 2 + 4 * 2)])
def test_a_test_that_fails_again_fails_the_suite(
    start_process: StartProcess, tmp_path: Path, tests: str, tries: int
) -> None:
    suite = run(start_process, tmp_path, tests)

    assert suite.wait() == pytest.ExitCode.TESTS_FAILED
    assert "These failed, and once more when they were run again" in suite.output
    assert len((tmp_path / "tried").read_text()) == tries


def test_more_than_two_that_fail_are_not_tried_again(start_process: StartProcess, tmp_path: Path) -> None:
    suite = run(start_process, tmp_path, FAILS.format(count=3))

    assert suite.wait() == pytest.ExitCode.TESTS_FAILED
    assert len((tmp_path / "tried").read_text()) == 3


def test_a_suite_that_cannot_run_fails(start_process: StartProcess, tmp_path: Path) -> None:
    suite = run(start_process, tmp_path, "import nothing_of_that_name")

    assert suite.wait() == pytest.ExitCode.INTERRUPTED
