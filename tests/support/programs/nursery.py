"""A process that has imported everything once and forks on request: a new process costs milliseconds, not a second.

It listens on the Unix socket that its first argument names. A connection brings one line of JSON, `{"call":
"module:function", "arguments": {...}}`, and becomes the output of the child that performs it: the child says its number
first, its keeper its exit code last. No thread and no event loop is here, so a child inherits none.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import os
import signal
import socket
import sys
from typing import Any, Final, NoReturn

FIRST: Final = "process "
LAST: Final = "exit code "
_WARM: Final = (
    "outlast", "outlast.serving", "asyncpg", "psycopg", "sqlalchemy.dialects.postgresql.psycopg", "asyncmy", "pymysql",
)  # fmt: skip
_LOOK: Final = 2.0
logger = logging.getLogger("nursery")


def main(path: str) -> None:
    for module in _WARM:
        importlib.import_module(module)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # The system itself takes leave of the keepers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(128)
        server.settimeout(_LOOK)
        print("ready")
        while os.getppid() == parent:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            if os.fork() == 0:
                server.close()
                _keep(connection)
            connection.close()
    # The tests are gone without a word: so is everything that they have started here.
    os.killpg(0, signal.SIGKILL)


def _keep(connection: socket.socket) -> NoReturn:
    """Start the child that a connection asks for, wait for its end and tell it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.settimeout(None)
    with connection.makefile() as asked:
        request: dict[str, Any] = json.loads(asked.readline())
    child = os.fork()
    if child == 0:
        os.dup2(connection.fileno(), 1)
        os.dup2(connection.fileno(), 2)
        connection.close()
        print(f"{FIRST}{os.getpid()}")
        os._exit(_perform(request["call"], request["arguments"]))
    _, status = os.waitpid(child, 0)
    # On a line of its own, whatever the child was about to say.
    connection.sendall(f"\n{LAST}{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _perform(call: str, arguments: dict[str, Any]) -> int:
    module, _, name = call.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        outcome = function(**arguments)
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        logger.exception("the program failed")
        return 1
    return 0


if __name__ == "__main__":
    main(sys.argv[1])
