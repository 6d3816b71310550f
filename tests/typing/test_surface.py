"""Whatever can be imported from the library says its type: a user's checker infers nothing, and no two infer differently."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


def verified() -> dict[str, Any]:
    command = [sys.executable, "-m", "pyright", "--verifytypes", "outlast", "--ignoreexternal", "--outputjson"]
    # It looks for packages where the first `python` does.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.time_limit(180)
def test_every_name_says_its_type() -> None:
    found = verified()["typeCompleteness"]

    assert Path(found["packageRootDirectory"]) == ROOT / "src" / "outlast"
    assert found["exportedSymbolCounts"]["withKnownType"] > 3000
    unknown = {
        symbol["name"]: [problem["message"] for problem in symbol["diagnostics"] if problem["severity"] == "error"]
        for symbol in found["symbols"]
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
    }
    assert unknown == {}
