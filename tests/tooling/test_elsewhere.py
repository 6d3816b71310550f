"""Other releases of Debian: where their packages come from, and what is said when they cannot be had."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.project import ROOT
from tools import debian


@pytest.fixture
def _is_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian.shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.usefixtures("_is_debian")
@pytest.mark.parametrize(
    "name, text",
    [
        ("sources.list", "# deb file:/old/debian x main\ndeb file:/mirror/debian trixie main\n"),
        (
            "sources.list",
            "deb [signed-by=/k] file:/mirror/debian trixie main\ndeb file:/mirror/debian-security x main\n",
        ),
        ("sources.list.d/debian.sources", "Types: deb\nURIs: file:/mirror/debian\nSuites: trixie\n"),
        ("sources.list.d/more.list", "deb file:/other/packages x main\ndeb file:/mirror/debian/ trixie main\n"),
    ],
)
def test_the_archive_is_the_one_that_the_machine_uses(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(text)

    found = debian.archive(tmp_path)

    assert found is not None
    assert found.rstrip("/") == "file:/mirror/debian"


@pytest.mark.usefixtures("_is_debian")
def test_sources_of_others_are_no_archive_of_debian(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb file:/mirror/debian-security x main\n")

    assert debian.archive(tmp_path) is None


def test_without_the_means_there_is_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian.shutil, "which", lambda name: None)

    assert debian.archive() is None
    with pytest.raises(SystemExit, match="on Debian alone"):
        debian.older_postgres("bullseye")


@pytest.mark.parametrize("release", [[], [""], ["../sid"], ["Sid 2"]])
def test_what_is_no_release_is_refused_before_anything_is_made(release: list[str]) -> None:
    found = subprocess.run(
        ["sh", "tools/elsewhere.sh", *release], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (found.returncode, found.stdout) == (1, "")
    assert "make elsewhere RELEASE=sid" in found.stderr
