"""The page about Django, laid out as the project that it describes: its blocks are files, named in their first line."""

from __future__ import annotations

import re
from pathlib import Path

import django

from support.processes import ROOT, StartProcess

PAGE = ROOT / "docs" / "how-to" / "django.md"
FILE = re.compile(r"```py\n# (?P<path>\S+)\n(?P<code>.*?)```", re.DOTALL)
MANAGE = """
import os, sys
from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
execute_from_command_line(sys.argv)
"""


IMMEDIATE = re.compile(r'^ *"OPTIONS": \{"transaction_mode": "IMMEDIATE"\}.*\n', re.MULTILINE)
OUTSIDE = """
from django.test import Client, TestCase

class CarrierTests(TestCase):
    def test_the_carrier_needs_no_token_of_the_site_but_a_form_does(self):
        outside = Client(enforce_csrf_checks=True)
        heard = outside.post("/orders/7/delivered", {"parcel": "P-1", "event": "e-1"})
        self.assertEqual(heard.status_code, 200)
        self.assertEqual(outside.post("/orders", {"customer": "ada@example.com"}).status_code, 403)
"""


def test_the_project_of_the_page_works(tmp_path: Path, start_process: StartProcess) -> None:
    page = PAGE.read_text()
    if django.VERSION < (5, 1):
        page = IMMEDIATE.sub("", page)
    for found in FILE.finditer(page):
        file = tmp_path / found["path"]
        file.parent.mkdir(exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(found["code"])
    (tmp_path / "manage.py").write_text(MANAGE)
    (tmp_path / "shop" / "test_outside.py").write_text(OUTSIDE)

    for arguments, said in [
        (["makemigrations", "shop"], "Create model Order"),
        (["check"], "no issues"),
        (["migrate"], "Applying outlast.0001_initial... OK"),
        (["makemigrations", "--check"], "No changes detected"),
        (["outlast_migrate"], "up to date already"),
        (["outlast_status"], "up to date"),
        (["test", "shop"], "Ran 2 tests"),
    ]:
        done = start_process("-W", "error", str(tmp_path / "manage.py"), *arguments, cwd=tmp_path)
        assert done.wait(timeout=60) == 0, done.output
        assert said in done.output
    worker = start_process("-W", "error", str(tmp_path / "manage.py"), "outlast_worker", cwd=tmp_path)
    worker.wait_for("works in process")
    worker.terminate()
    assert worker.wait() == 0, worker.output
