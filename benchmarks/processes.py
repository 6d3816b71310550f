"""Processes of a measurement: the child that measures, and the workers that it starts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
MARK: Final = "OUTLAST_BENCH_CHILD"
RESULT: Final = "RESULT "
READY: Final = "READY"
IN_CHILD: Final = os.environ.get(MARK) == "1"

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one child process is asked for."""

    system: str
    workload: str
    database: str
    server: int | None
    """The process of the database server, if there is one."""
    runs: int
    at_once: int = 100
    workers: int = 1
    ahead_s: float = 0.0
    """W4: how far off the moment is that all runs sleep until."""
    finished: int = 0
    """W6: how many finished runs are put in."""
    sleeping: int = 0

    @property
    def by_queue(self) -> bool:
        return self.workload.startswith("w1-queue")

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


class Worker:
    """A process that only executes runs. It is serving once this object exists, and ends when its input closes."""

    def __init__(self, system: str, database: str) -> None:
        command = [sys.executable, "-m", "benchmarks.child", "worker", json.dumps([system, database])]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        if not any(line.startswith(READY) for line in iter(self._process.stdout.readline, "")):
            raise RuntimeError(f"the worker of {system} died before it was ready")

    def stop(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class MeasurementFailed(RuntimeError):
    """The child ended without figures; the message holds the end of what it said."""


async def measure_in_child(asked: Measurement, *, python: str = sys.executable, within: float = 300) -> Figures:
    """Run one measurement in a process of its own and return its figures."""
    return await ask_child("measure", asked.as_json(), python=python, within=within)


async def ask_child(role: str, text: str, *, python: str = sys.executable, within: float = 60) -> dict[str, Any]:
    """Start `child.py` in a role and return what it answers."""
    with tempfile.TemporaryFile() as complaints:
        process = await asyncio.create_subprocess_exec(
            python,
            "-m",
            "benchmarks.child",
            role,
            text,
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=complaints,
            # What a child starts stays in its session, so that one signal ends it all.
            start_new_session=not IN_CHILD,
            env=os.environ | {MARK: "1"},
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), within)
            outcome = f"it ended with status {process.returncode}"
        except TimeoutError:
            out, outcome = b"", f"no answer after {within:.0f} s"
            process.send_signal(signal.SIGABRT)  # the child writes down where it stands, and dies
            await process.wait()
        finally:
            if not IN_CHILD:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for line in out.decode().splitlines():
            if line.startswith(RESULT):
                found: dict[str, Any] = json.loads(line.removeprefix(RESULT))
                return found
        complaints.seek(0)
        raise MeasurementFailed(f"{outcome}\n{complaints.read().decode(errors='replace')[-3000:]}".strip())
