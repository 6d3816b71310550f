"""What a comment or a page points to is there."""

from __future__ import annotations

import re

from support.project import ROOT, project_files, texts

LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)(?:#[^)\s]*)?\)")
TEST = re.compile(r"\btests/[\w/]+\.py\b")


def test_every_link_between_pages_leads_to_a_file() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page, text in texts(".md").items()
        for target in LINK.findall(text)
        if not (page.parent / target).exists()
    ]

    assert broken == []


def test_every_test_that_is_said_to_hold_a_claim_exists() -> None:
    known = {str(path.relative_to(ROOT)) for path in project_files()}
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts(".py", ".md").items()
        for name in TEST.findall(text)
        if name not in known
    ]

    assert missing == []
