"""Every promise names the test that holds it, and that test exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "guarantees.md"
NAMED = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?P<test>test_\w+)`")


def test_the_tests_that_the_guarantees_name_exist() -> None:
    named = [(match["file"], match["test"]) for match in NAMED.finditer(PAGE.read_text())]
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text()]
    assert named
    assert missing == []


def test_every_promise_names_a_test() -> None:
    promises = [part for part in PAGE.read_text().split("\n## ") if part[:1].isdigit()]
    assert promises
    assert [part.splitlines()[0] for part in promises if not NAMED.search(part)] == []
