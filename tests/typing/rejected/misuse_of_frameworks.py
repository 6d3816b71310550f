"""Frameworks: what the type checkers must refuse."""

from __future__ import annotations

from flask import Flask

from outlast import Context, Outlast, step, workflow
from outlast.integrations.alembic import with_tables
from outlast.integrations.flask import FlaskOutlast, in_app_context
from outlast.integrations.starlette import lifespan
from sqlalchemy import MetaData


@step
@in_app_context
def save(customer: str) -> int:
    return len(customer)


@workflow("place")
async def place(ctx: Context, customer: str) -> int:
    return await save(42)  # refused: a step keeps its parameters in an application context of its own


app = Outlast(workflows=[place])
lifespan(app, within=app)  # refused: an app is no lifespan
FlaskOutlast(app)  # refused: it takes a function, which each process calls for itself
FlaskOutlast(lambda flask: app, worker="threads")  # refused: there is no such place
with_tables(MetaData(), "sqlite://")  # refused: a URL is no connection
extension = FlaskOutlast(lambda flask: app, Flask("shop"))
extension.blocking.start(place, 42)  # refused: the input is a text
