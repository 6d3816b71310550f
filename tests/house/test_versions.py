"""The versions that are promised are those that are tried."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

from support.project import ROOT
from tools.pins import floors, merged, normal, pins

LOWEST = (ROOT / "constraints-lowest.txt").read_text()
TRIED = (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("name, version", sorted(floors().items()))
def test_the_lowest_version_that_is_promised_is_tried(name: str, version: str) -> None:
    """`make lowest` installs what constraints-lowest.txt names."""
    assert name in pins(LOWEST), f"run make constraints: nothing tries {name} {version}"
    assert Version(pins(LOWEST)[name]) == Version(version)


def test_no_lowest_version_is_later_than_the_newest_tried() -> None:
    tried = pins(TRIED)

    assert [name for name, version in floors().items() if Version(version) > Version(tried[name])] == []


def test_the_pages_name_the_lowest_django() -> None:
    assert f"Django {floors()['django']} and newer" in (ROOT / "docs" / "how-to" / "django.md").read_text()


def test_the_versions_of_python_are_those_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = project["requires-python"].removeprefix(">=")

    named = [line.rpartition(" :: ")[2] for line in project["classifiers"] if " :: Python :: 3." in line]

    assert min(named, key=Version) == lowest
    page = (ROOT / "docs" / "internals" / "versions.md").read_text()
    assert [version for version in named if f"Python {version}" not in page] == []


def test_a_dependency_without_a_lowest_version_is_told(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["msgspec"]\n[project.optional-dependencies]\ntests = ["pytest"]\n'
    )

    with pytest.raises(LookupError, match="write msgspec>="):
        floors(tmp_path / "pyproject.toml")


def test_a_version_that_a_later_python_alone_can_have_is_pinned_for_both() -> None:
    lines = list(merged("3.12", "Django==5.2\nsix==1.0\nold==1\n", "django==6.1\nsix==1.0\nnew==2\n"))

    assert lines == [
        'Django==5.2; python_version < "3.12"',
        'Django==6.1; python_version >= "3.12"',
        "six==1.0",
        'old==1; python_version < "3.12"',
        'new==2; python_version >= "3.12"',
    ]
    assert pins("a_b==1\n") == {normal("A.B"): "1"}


def test_a_python_that_is_not_there_is_not_found() -> None:
    found = subprocess.run(["sh", "tools/python.sh", "3.1"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (found.returncode, found.stdout) == (1, "")
