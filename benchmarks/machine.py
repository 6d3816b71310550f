"""The conditions of a run: what was measured on, and with which versions."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT


def describe(data: Path, servers: Mapping[str, str]) -> dict[str, Any]:
    """`servers` are their own versions; `data` the folder that the databases lie in."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        **servers,
        "filesystem": _filesystem(data),
        "fdatasync_ms": _fdatasync(data),
        "commit": _commit(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _filesystem(folder: Path) -> str:
    """Figures from a file system in memory say nothing on durable commits, so it is named."""
    found = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _fdatasync(folder: Path) -> float:
    """Median milliseconds to make 8 kB durable, which bounds what a commit can take."""
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(200):
            file.seek(0)
            began = time.perf_counter()
            file.write(os.urandom(8192))
            file.flush()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return round(statistics.median(taken) * 1000, 3)


def _commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
