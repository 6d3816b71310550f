"""Child processes that tests start, listen to, pause and kill: the fixture `start_process`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Protocol

import pytest

from tools.processes import freeze, thaw

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


class Heard:
    """What another process says, read as it comes: `output` so far, and `wait_for` a line of it."""

    def __init__(self, said: IO[str]) -> None:
        self._said = said
        self._lines: list[str] = []
        self._seen = 0
        self._has_ended = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        with self._news:
            return "\n".join(self._lines)

    def wait_for(self, marker: str, *, timeout: float = 30) -> str:
        """The next line that holds `marker`, after the one found by the last call. Fails if the process ends first."""
        with self._news:
            while True:
                found = self._next_line_with(marker)
                if found is not None:
                    return found
                if self._has_ended:
                    pytest.fail(f"the process ended before it said {marker!r}; it said:\n{self.output}")
                if not self._news.wait(timeout):
                    pytest.fail(f"{timeout:g} s of silence before {marker!r}; the process said:\n{self.output}")

    def _read(self) -> None:
        with self._said as lines:
            for line in lines:
                with self._news:
                    self._lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    def _next_line_with(self, marker: str) -> str | None:
        for index in range(self._seen, len(self._lines)):
            if marker in self._lines[index]:
                self._seen = index + 1
                return self._lines[index]
        return None


class ChildProcess(Heard):
    """A Python process whose output is read as it comes. What it says is in `output`, stderr included."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> None:
        # The code of this very checkout, whichever one is installed.
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(TESTS)])
        self._process = subprocess.Popen(
            [sys.executable, "-u", *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": paths, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        super().__init__(self._process.stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, and return when it is gone."""
        self._process.kill()
        self.wait()

    def terminate(self) -> None:
        """SIGTERM; `wait` for the end."""
        self._process.terminate()

    def pause(self) -> None:
        """Stop it, and return when no thread of it runs any more."""
        freeze(self.pid)

    def resume(self) -> None:
        thaw(self.pid)

    def wait(self, *, timeout: float = 30) -> int:
        """Its exit code (minus the signal's number when a signal ended it), once all its output is read."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the process has not ended in {timeout:g} s; it said:\n{self.output}")
        self._reader.join(timeout)
        return code

    def close(self) -> None:
        """End it and every process it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(10)


class StartProcess(Protocol):
    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> ChildProcess: ...


@pytest.fixture
def start_process() -> Iterator[StartProcess]:
    """`start_process("-m", "outlast.cli.main", "worker", ...)`, or a script's path; all end with the test."""
    children: list[ChildProcess] = []

    def start(*arguments: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> ChildProcess:
        child = ChildProcess(*arguments, env=env, cwd=cwd)
        children.append(child)
        return child

    yield start
    with contextlib.ExitStack() as stack:
        for child in children:
            stack.callback(child.close)
