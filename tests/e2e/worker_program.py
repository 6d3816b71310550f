"""A process with a worker, for tests that kill, stop and pause it: `worker_program.py DATABASE_URL NAME [OPTIONS]`.

It says on stdout what its steps do. A step goes on when a file with its run's name stands in the folder `gates`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from outlast import CompensationContext, Context, Outlast, Retry, StepContext, WorkerOptions, step, workflow

GATES = Path(os.environ.get("GATES", "."))
NAME = sys.argv[2] if len(sys.argv) > 2 else "?"


def say(what: str) -> None:
    print(f"{NAME}: {what}", flush=True)


@step
async def reserve(s: StepContext) -> str:
    say(f"reserve {s.run_id} attempt {s.attempt}")
    return "reserved"


@reserve.compensate
async def release(s: CompensationContext, _: str) -> None:
    say(f"release {s.run_id}")


@step(retry=Retry(attempts=3, delay="10ms"))
async def charge(s: StepContext) -> str:
    say(f"charge {s.run_id} attempt {s.attempt} key {s.idempotency_key}")
    while not (GATES / s.run_id).exists():  # noqa: ASYNC110  the test makes the file
        await asyncio.sleep(0.01)
    say(f"charged {s.run_id}")
    return f"charged by {NAME}"


@step
async def ship(s: StepContext) -> str:
    say(f"ship {s.run_id}")
    return "shipped"


@workflow("order")
async def order(ctx: Context) -> str:
    await reserve()
    charged = await charge()
    await ship()
    return charged


@step(retry=Retry(attempts=3, delay="10ms"))
async def deadly(s: StepContext) -> None:
    say(f"deadly {s.run_id} attempt {s.attempt}")
    os._exit(9)


@workflow("poison")
async def poison(ctx: Context) -> None:
    await reserve()
    await deadly()


@workflow("quick")
async def quick(ctx: Context, number: int) -> int:
    first = await ctx.step("first", adding(number))
    return await ctx.step("second", adding(first))


def adding(number: int) -> Callable[[StepContext], Awaitable[int]]:
    async def add(_: StepContext) -> int:
        return number + 1

    return add


@step
def fork(s: StepContext) -> int:
    """Fork, let the child use what it inherited, and return its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        assert app is not None
        if not sys.argv[1].startswith("sqlite"):  # SQLite itself may be in the middle of something on another thread
            app.blocking.start(quick, 40, id=f"{s.run_id}-child")
        app._worker.wake()
        os._exit(0)
    finally:
        os._exit(1)


@workflow("forking")
async def forking(ctx: Context) -> int:
    return await fork()


WORKFLOWS = [order, poison, quick, forking]
app: Outlast | None = None


async def main(url: str, options: dict[str, str | int]) -> None:
    global app  # noqa: PLW0603  what a forked child inherits
    stop = asyncio.Event()
    app = Outlast(url, workflows=WORKFLOWS, worker=WorkerOptions(**options))  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    async with app:
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(signal.SIGTERM, stop.set)
        say("ready")
        await stop.wait()
        say("stopping")
    say("stopped")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format=f"{NAME} log: %(message)s")
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}))
