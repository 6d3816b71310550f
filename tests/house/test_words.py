"""The project stands alone: no file speaks of the machine it was written on or of where a package came from."""

from __future__ import annotations

import re

import pytest

from support.project import ROOT, texts

# Spelled in two parts, so that this file keeps its own rule.
MACHINE_PATHS = re.compile(
    "|".join(["/wo" + r"rk\b", r"\.\./sha" + r"red\b", "/ro" + r"ot/", "/ho" + r"me/\w", "/Us" + r"ers/\w"])
)
UNFINISHED = re.compile("|".join(["TO" + "DO", "FIX" + "ME", r"\bX" + r"XX\b"]))
LOCK_FILES = re.compile(r"(constraints|requirements).*\.txt|.*\.lock|package-lock\.json")
CONSTRAINT = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+(; python_version (<|>=) \"3\.\d+\")?")


def test_no_file_names_a_place_on_a_machine() -> None:
    assert _lines_with(MACHINE_PATHS) == []


def test_no_file_says_that_it_is_unfinished() -> None:
    assert _lines_with(UNFINISHED) == []


def test_no_lock_file_names_an_address() -> None:
    locks = {path: text for path, text in texts().items() if LOCK_FILES.fullmatch(path.name)}

    assert ROOT / "constraints.txt" in locks
    assert [str(path.relative_to(ROOT)) for path, text in locks.items() if "://" in text or "@" in text] == []


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-lowest.txt"])
def test_constraints_hold_names_and_versions_alone(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()

    assert [line for line in lines if not line.startswith("#") and not CONSTRAINT.fullmatch(line)] == []


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
