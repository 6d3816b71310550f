"""Every Python example of the README and the docs runs as it stands.

The blocks of a page form one program, run in an empty folder. A page's block may ask for a server with a comment in front:
`<!-- run with: postgresql -->` puts the test server's address in place of `postgresql://localhost/shop`. The blocks with
`<!-- run with: pytest -->` form a file of tests of their own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
BLOCK = re.compile(r"(<!-- run with: (?P<server>\w+) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)(?P<target>[^)#]+)(#[^)]*)?\)")


def blocks(page: Path, *, server: str | None) -> str:
    found = BLOCK.finditer(page.read_text())
    return "\n".join(match["code"] for match in found if match["server"] == server)


def run(program: str, folder: Path) -> None:
    (folder / "page.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-W", "error", "page.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    program = blocks(page, server=None)
    if not program:
        # Those with a server are run by the test of that server's page.
        assert all(block["server"] for block in BLOCK.finditer(page.read_text()))
        return
    run(program, tmp_path)


def test_the_postgresql_example_of_the_readme_runs(postgres_url: str, tmp_path: Path) -> None:
    program = blocks(ROOT / "README.md", server="postgresql").replace("postgresql://localhost/shop", postgres_url)
    assert postgres_url in program
    run(program + "\nimport asyncio\nprint(asyncio.run(app.migrate()))\n", tmp_path)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, server="pytest")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_tests_that_a_page_shows_pass(page: Path, tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(blocks(page, server="pytest"))
    # Without what is installed here and would not be there for a reader.
    options = ["-p", "no:asyncio", "-p", "no:randomly", "-p", "no:hypothesispytest", "-W", "error"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = [m["target"] for m in LINK.finditer(page.read_text()) if not (page.parent / m["target"]).exists()]
    assert broken == []
