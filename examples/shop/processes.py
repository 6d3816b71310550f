"""Server processes for the demo: started, waited for, killed and stopped by their ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx

T = TypeVar("T")

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[2]


class NotInTime(Exception):
    """Something that was waited for did not happen."""


def until(what: str, probe: Callable[[], T | None], *, within: float = 30) -> T:
    """Ask again and again until the answer is neither None nor False, and return it."""
    deadline = time.monotonic() + within
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise NotInTime(f"Waited {within:g} s in vain: {what}.")
        time.sleep(0.02)
    return answer


class Server:
    """An ASGI application in a uvicorn process of its own, on a loopback port that it keeps over restarts.

    As a context manager it is started on the way in and stopped on the way out. Its output goes to `log`.
    """

    def __init__(self, application: str, log: Path, environment: dict[str, str]) -> None:
        self.application = application
        self.log = log
        self.environment = environment
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=30)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process, or None when none is running."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    def start(self) -> None:
        """Start the process and return when it answers."""
        options = ["--host", HOST, "--port", str(self.port), "--no-access-log", "--timeout-graceful-shutdown", "5"]
        command = [sys.executable, "-m", "uvicorn", self.application, *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=os.environ | self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        until(f"{self.application} answers at {self.url}", self._is_up)

    def kill(self) -> None:
        """End the process as a power cut would: SIGKILL, nothing gets to clean up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process as a deploy would: SIGTERM, and time to hand its work back."""
        self._end(signal.SIGTERM)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.http.close()
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.http.close()
        self.stop()

    def _is_up(self) -> bool:
        if self.pid is None:
            raise NotInTime(f"{self.application} ended while it was starting.")
        try:
            return self.http.get("/health").is_success
        except httpx.TransportError:
            return False

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Find a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def end_in_order_on_sigterm() -> None:
    """Have SIGTERM raise SystemExit here, so that `with` ends the servers too."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
