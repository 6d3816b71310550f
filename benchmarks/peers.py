"""The environment of the peers: made once beside the project's own, and anew when `peers.txt` changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.processes import ROOT

REQUIREMENTS: Final = ROOT / "benchmarks" / "peers.txt"


def peers_python(folder: Path) -> str:
    """The interpreter of the peers' environment, which is made if it is missing or out of date."""
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    wanted = REQUIREMENTS.read_text()
    if not installed.exists() or installed.read_text() != wanted:
        print(f"Installing the peers into {folder} ...", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-r", REQUIREMENTS]
        try:
            subprocess.run(pip, check=True)
        except subprocess.CalledProcessError:
            raise SystemExit("The peers could not be installed; to go without: --systems outlast") from None
        installed.write_text(wanted)
    return str(python)
