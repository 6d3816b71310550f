"""A program that serves requests, forks, and serves in the children and in the parent at the same time."""

from __future__ import annotations

import os
import sys

from flask import Flask

from outlast import Context, Outlast, Run, step, workflow
from outlast.integrations.flask import FlaskOutlast


@step
def greet(name: str) -> int:
    return os.getpid()


@workflow("hello")
async def hello(ctx: Context, name: str) -> int:
    return await greet(name)


outlast = FlaskOutlast(lambda flask: Outlast(sys.argv[1], workflows=[hello]), worker="thread")
flask = Flask(__name__)
outlast.init_app(flask)


@flask.post("/<name>")
def serve(name: str) -> str:
    return str(outlast.blocking.start_and_wait(hello, name, wait="30s"))


def main() -> None:
    client = flask.test_client()
    client.post("/before")
    client.post("/before-too")
    children = []
    for _ in range(2):
        child = os.fork()
        if not child:
            for n in range(100):
                client.post(f"/child-{n}")
            sys.exit(0)
        children.append(child)
    for n in range(101):
        client.post(f"/parent-{n}")
    for child in children:
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    with flask.app_context():
        runs: list[Run] = []
        cursor = None
        while True:
            page = outlast.blocking.list(cursor=cursor)
            runs += page.runs
            cursor = page.cursor
            if cursor is None:
                break
        assert all(run.status == "completed" for run in runs)
        workers = {run.output for run in runs}
        outlast.close()
    print(f"parent and {len(children)} children: {len(runs)} greetings by {len(workers)} workers", flush=True)


main()
