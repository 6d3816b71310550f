"""The public API keeps its users' types, by both type checkers in their strictest mode."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
REFUSED = re.compile(r"  # refused: ")
MYPY_ERROR = re.compile(r"^(.+?):(\d+): error: ", re.MULTILINE)

Places = set[tuple[str, int]]


@pytest.fixture(scope="module")
def by_pyright() -> Places:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(HERE), "--pythonpath", sys.executable]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = json.loads(answer.stdout)
    assert said["summary"]["filesAnalyzed"] == len(list(HERE.glob("*/*.py")))
    errors = [found for found in said["generalDiagnostics"] if found["severity"] == "error"]
    return {(Path(found["file"]).name, found["range"]["start"]["line"] + 1) for found in errors}


@pytest.fixture(scope="module")
def by_mypy() -> Places:
    options = ["--strict", "--hide-error-context", "--no-error-summary", "--no-pretty", "--config-file="]
    command = [sys.executable, "-m", "mypy", *options, *map(str, sorted(HERE.glob("*/*.py")))]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 1), answer.stderr
    return {(Path(file).name, int(line)) for file, line in MYPY_ERROR.findall(answer.stdout)}


def refused() -> Places:
    files = {path.name: path.read_text().splitlines() for path in HERE.glob("rejected/*.py")}
    return {
        (name, number) for name, lines in files.items() for number, line in enumerate(lines, 1) if REFUSED.search(line)
    }


@pytest.mark.time_limit(180)
def test_pyright_strict_accepts_and_refuses_what_it_must(by_pyright: Places) -> None:
    assert refused()
    assert by_pyright == refused()


@pytest.mark.time_limit(180)
def test_mypy_strict_accepts_and_refuses_what_it_must(by_mypy: Places) -> None:
    assert by_mypy == refused()
