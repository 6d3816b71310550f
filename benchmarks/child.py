"""One process of a measurement, by its role: `create` makes the tables of a system, `measure` prints figures, `worker`
executes runs until its input closes, `versions` names the libraries measured.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib.metadata
import json
import os
import sys
from typing import Any

from benchmarks.processes import READY, RESULT, Measurement
from benchmarks.system import adapter, load, opened, parent_gone
from benchmarks.workloads import WORKLOADS


async def measure(text: str) -> None:
    asked = Measurement(**json.loads(text))
    answer(await WORKLOADS[asked.workload](asked))


async def create(text: str) -> None:
    name, database = json.loads(text)
    await load(name, database).create()
    answer({})


async def serve(text: str) -> None:
    name, database = json.loads(text)
    async with opened(load(name, database), "worker"):
        print(READY, flush=True)
        await parent_gone()


async def versions(text: str) -> None:
    answer({package: importlib.metadata.version(package) for package in adapter(json.loads(text)).packages})


def answer(value: dict[str, Any]) -> None:
    print(RESULT + json.dumps(value), flush=True)


ROLES = {"create": create, "measure": measure, "worker": serve, "versions": versions}


def main() -> None:
    faulthandler.enable()
    role, text = sys.argv[1:]
    asyncio.run(ROLES[role](text))
    sys.stdout.flush()
    os._exit(0)  # some libraries leave threads behind that would keep the process


if __name__ == "__main__":
    main()
