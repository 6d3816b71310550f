"""Frameworks: lifespans that nest, dependencies and steps that keep their types."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import assert_type

from alembic import context
from fastapi import FastAPI
from flask import Flask
from litestar import Litestar, post
from litestar.params import FromQuery
from sqlalchemy import Connection, MetaData
from sqlmodel import Field, SQLModel
from starlette.applications import Starlette

from outlast import BlockingClient, BlockingHandle, Context, Outlast, step, workflow
from outlast.integrations import fastapi, flask, litestar, starlette
from outlast.integrations.alembic import with_tables, without_tables
from outlast.integrations.fastapi import CurrentOutlast


class Order(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    customer: str


@step
@flask.in_app_context
def save(customer: str) -> Order:
    return Order(customer=customer)


@step
@flask.in_app_context
async def notify(order: Order) -> bool:
    return bool(order.id)


@workflow("place")
async def place(ctx: Context, customer: str) -> Order:
    order = await save(customer)
    assert_type(order, Order)
    assert_type(await notify(order), bool)
    return order


app = Outlast(workflows=[place])


@asynccontextmanager
async def resources(api: FastAPI) -> AsyncGenerator[dict[str, int]]:
    yield {"answer": 42}


@asynccontextmanager
async def stateless(api: Starlette) -> AsyncGenerator[None]:
    yield


api = FastAPI(lifespan=fastapi.lifespan(app, within=resources))
twice = FastAPI(lifespan=fastapi.lifespan(app, within=fastapi.lifespan(app), name="billing"))
bare = Starlette(lifespan=starlette.lifespan(app, within=stateless))


@api.post("/orders")
async def order(customer: str, outlast: CurrentOutlast) -> Order:
    return assert_type(await outlast.start_and_wait(place, customer), Order)


@post("/orders")
async def order_by_litestar(customer: FromQuery[str], outlast: litestar.CurrentOutlast) -> str:
    return (await outlast.start(place, customer)).id


served = Litestar([order_by_litestar], plugins=[litestar.OutlastPlugin(app)])
extension = flask.FlaskOutlast(lambda flask: Outlast(flask.import_name, workflows=[place]), worker="thread")


def order_by_flask(application: Flask) -> Order:
    extension.init_app(application)
    assert_type(extension.blocking, BlockingClient)
    run = extension.blocking.start(place, "Ada")
    assert_type(run, BlockingHandle[Order])
    return run.result()


def configure(connection: Connection, metadata: MetaData) -> None:
    context.configure(connection=connection, **with_tables([metadata], connection))
    context.configure(connection=connection, **without_tables(metadata, include_name=lambda name, kind, parents: True))
