"""The commands."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import typer

from outlast.cli import schema
from outlast.cli.loading import load_app
from outlast.cli.telling import errors_told, say
from outlast.serving import work

commands = typer.Typer(
    name="outlast",
    help="Durable workflows in your own database.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where your Outlast(...) is, such as shop.main:app.")]


@commands.command()
def worker(target: Target) -> None:
    """Execute runs in this process until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with errors_told():
        code = asyncio.run(work(load_app(target), say))
    raise typer.Exit(code)


commands.command()(schema.migrate)
commands.command()(schema.status)
commands.command()(schema.sql)
