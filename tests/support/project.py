"""The project's own files, for the tests that hold its rules."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is kept or about to be: what git knows or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = {ROOT / name for name in listed.split("\0") if name}
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files(*folders: str) -> list[Path]:
    """The Python files under these folders of the project."""
    wanted = [ROOT / folder for folder in folders]
    return [
        path for path in project_files() if path.suffix == ".py" and any(path.is_relative_to(top) for top in wanted)
    ]


def texts(*suffixes: str) -> dict[Path, str]:
    """The project's text files with these endings (all of them when none is named) and what each holds."""
    found: dict[Path, str] = {}
    for path in project_files():
        if not suffixes or path.suffix in suffixes:
            try:
                found[path] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    return found
