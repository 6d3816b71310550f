"""The commands."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Final

import typer

from outlast.cli import schema
from outlast.cli.loading import load_app
from outlast.cli.telling import errors_told, say
from outlast.serving import work

commands: Final = typer.Typer(
    name="outlast",
    help="Durable workflows in your own database.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where your Outlast(...) is, such as shop.main:app.")]


@commands.command()
def worker(
    target: Target,
    *,
    concurrency: Annotated[int | None, typer.Option(help="Runs that execute at once.")] = None,
    lease: Annotated[str | None, typer.Option(help="How long a worker that died keeps its runs, such as 30s.")] = None,
    poll: Annotated[
        str | None, typer.Option(help="The longest time between two looks for due runs, such as 1s.")
    ] = None,
    shutdown_timeout: Annotated[
        str | None, typer.Option(help="How long a stop waits for running steps, such as 10s.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads for plain step functions.")] = None,
) -> None:
    """Execute runs in this process until SIGTERM or Ctrl-C.

    What is not given here is as the app's worker= says; with worker=False, the defaults.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asked = {
        "concurrency": concurrency, "lease": lease, "poll": poll, "shutdown_timeout": shutdown_timeout,
        "threads": threads,
    }  # fmt: skip
    with errors_told():
        options = {name: value for name, value in asked.items() if value is not None}
        code = asyncio.run(work(load_app(target), say, options))
    raise typer.Exit(code)


commands.command()(schema.migrate)
commands.command()(schema.status)
commands.command()(schema.sql)
