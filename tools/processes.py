"""Processes by their number, and who started whom: what a server is that consists of several."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_STANDING = frozenset("TtZX")
"""Stopped, or ended and not yet noticed by its parent: neither does anything more."""
_PATIENCE = 60


def freeze(pid: int) -> None:
    """Stop a process and all that came from it. When this returns, not one of their threads does anything more.

    A signal only asks: each thread stops by itself when it next leaves the kernel, and may answer a request before.
    """
    signal_all([pid], signal.SIGSTOP)
    deadline = time.monotonic() + _PATIENCE
    while not is_standing(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"Process {pid} was told to stop {_PATIENCE} s ago and still has a running thread.")
        time.sleep(0.001)
    # Only now: what still runs may start another.
    for child in children(pid):
        freeze(child)


def thaw(pid: int) -> None:
    """Let a frozen process and all that came from it go on."""
    for child in children(pid):
        thaw(child)
    signal_all([pid], signal.SIGCONT)


def is_standing(pid: int) -> bool:
    """Whether no thread of a process runs: all are stopped, or it has ended."""
    return _STANDING.issuperset(_states(pid))


def children(parent: int) -> list[int]:
    """The processes that `parent` has started. A process may leave its parent's group, so only this finds them all."""
    return [pid for pid, its_parent in _processes() if its_parent == parent]


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _states(pid: int) -> Iterator[str]:
    """The state of each thread, as one letter. Without /proc, of the process as a whole: such systems stop it as one."""
    if not Path("/proc/self/stat").exists():
        shown = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
        yield from shown.stdout.strip()[:1]
        return
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            yield _fields(stat)[0]


def _processes() -> Iterator[tuple[int, int]]:
    """Every process with its parent; from /proc where there is one, since a small image may lack `ps`."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            pid, parent = line.split()
            yield int(pid), int(parent)
        return
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            yield int(stat.parent.name), int(_fields(stat)[1])


def _fields(stat: Path) -> list[str]:
    """The state, the parent and the rest of "pid (name) state parent ..."; a name may hold spaces and brackets."""
    return stat.read_text().rpartition(")")[2].split()
