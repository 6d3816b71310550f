"""Stopping a server as a whole: every process of it, and every thread of those."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from support.probing import until
from support.processes import StartProcess
from tools.processes import children, freeze, is_standing, thaw

BUSY_IN_THE_KERNEL = """
import os, sys, threading
never = threading.Event()
threading.Thread(target=never.wait, daemon=True).start()
print("here")
# The child waits for a writer, and this thread waits in the kernel until the child has become a program.
os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, sys.argv[1], os.O_RDONLY, 0)])
never.wait()
"""


def test_freezing_returns_when_the_last_thread_has_stopped(start_process: StartProcess, tmp_path: Path) -> None:
    """A signal is taken by one thread, which tells the others. While it was held up, a paused server answered."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = start_process("-c", BUSY_IN_THE_KERNEL, str(pipe))
    process.wait_for("here")
    until(lambda: _states(process.pid)[0] == "D", "the process to wait in the kernel")
    seen: list[str] = []

    def freeze_and_look() -> None:
        freeze(process.pid)
        seen.extend(_states(process.pid))

    freezing = threading.Thread(target=freeze_and_look, daemon=True)
    freezing.start()
    freezing.join(0.3)
    assert seen == []
    with pipe.open("wb"):
        freezing.join()

    assert seen == ["T", "T"]


def test_what_came_from_a_process_is_frozen_and_goes_on_with_it(start_process: StartProcess) -> None:
    program = "import subprocess; subprocess.run(['sh', '-c', 'sleep 600 & echo here; wait'])"
    eldest = start_process("-c", program)
    eldest.wait_for("here")
    (child,) = children(eldest.pid)
    (grandchild,) = children(child)

    freeze(eldest.pid)

    assert [_states(pid) for pid in (eldest.pid, child, grandchild)] == [["T"], ["T"], ["T"]]
    thaw(eldest.pid)
    assert not any(map(is_standing, (eldest.pid, child, grandchild)))


def test_a_process_that_has_ended_stands_still(start_process: StartProcess) -> None:
    ended = start_process("-c", "")
    ended.wait()

    freeze(ended.pid)

    assert is_standing(ended.pid)


def _states(pid: int) -> list[str]:
    """What this machine says of each thread, the first one first."""
    tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name))
    return [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
