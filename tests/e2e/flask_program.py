"""A Flask application for the tests of real servers: `hello` says which process executed it.

`GREETINGS_URL` names its database, `GREETINGS_WORKER` where runs execute.
"""

from __future__ import annotations

import os
from typing import Literal, cast

from flask import Flask

from outlast import Context, Outlast, step, workflow
from outlast.integrations.flask import FlaskOutlast


@step
def greet(name: str) -> int:
    return os.getpid()


@workflow("hello")
async def hello(ctx: Context, name: str) -> int:
    return await greet(name)


outlast = FlaskOutlast(
    lambda flask: Outlast(flask.config["URL"], workflows=[hello]),
    worker=cast("Literal['process', 'thread']", os.environ["GREETINGS_WORKER"]),
)


def create_app() -> Flask:
    flask = Flask(__name__)
    flask.config["URL"] = os.environ["GREETINGS_URL"]
    outlast.init_app(flask)

    @flask.get("/health")
    def health() -> list[int]:
        return [os.getpid(), len(outlast.blocking.list().runs)]

    @flask.post("/greetings/<name>")
    def start(name: str) -> list[int]:
        return [os.getpid(), outlast.blocking.start_and_wait(hello, name, wait="30s")]

    return flask
