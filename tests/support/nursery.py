"""Processes that tests can have by the hundred: the fixture `nursery`.

`nursery.start(program.function, run="r-1")` calls a module's function, async or not, in a process of its own that was
forked from one which has imported everything. See `programs/nursery.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes import TESTS, ChildProcess, Heard
from support.programs.nursery import FIRST, LAST
from tools.processes import freeze, thaw


class WarmProcess(Heard):
    """A process from the nursery. What it says is in `output`, stderr included."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection.makefile())
        connection.close()
        self.pid = int(self.wait_for(FIRST).removeprefix(FIRST))

    @property
    def has_ended(self) -> bool:
        with self._news:
            return self._has_ended

    def kill(self) -> None:
        """SIGKILL, and return when it is gone."""
        self._send(signal.SIGKILL)
        self.wait()

    def terminate(self) -> None:
        """SIGTERM; `wait` for the end."""
        self._send(signal.SIGTERM)

    def pause(self) -> None:
        """Stop it, and return when no thread of it runs any more."""
        freeze(self.pid)

    def resume(self) -> None:
        thaw(self.pid)

    def wait(self, *, timeout: float = 30) -> int:
        """Its exit code (minus the signal's number when a signal ended it), once all its output is read."""
        self._reader.join(timeout)
        if self._reader.is_alive():
            pytest.fail(f"the process has not ended in {timeout:g} s; it said:\n{self.output}")
        return int(self._lines[-1].removeprefix(LAST))

    def close(self) -> None:
        """End it."""
        if not self.has_ended:
            self.kill()

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Nursery:
    """Starts processes; all of them end with the test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._children: list[WarmProcess] = []

    def start(self, function: Callable[..., object], **arguments: object) -> WarmProcess:
        """Call a function of a module in a process of its own. Arguments travel as JSON."""
        request = {"call": f"{function.__module__}:{function.__qualname__}", "arguments": arguments}
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._path))
        connection.sendall(f"{json.dumps(request)}\n".encode())
        child = WarmProcess(connection)
        self._children.append(child)
        return child

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for child in self._children:
                stack.callback(child.close)


@pytest.fixture(scope="session")
def _nursery_socket() -> Iterator[Path]:
    # A socket's path may have a hundred characters; pytest's own folders have more.
    folder = Path(tempfile.mkdtemp(prefix="outlast-"))
    program = ChildProcess(str(TESTS / "support" / "programs" / "nursery.py"), str(folder / "socket"))
    try:
        program.wait_for("ready")
        yield folder / "socket"
    finally:
        program.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nursery(_nursery_socket: Path) -> Iterator[Nursery]:
    with contextlib.closing(Nursery(_nursery_socket)) as mine:
        yield mine
