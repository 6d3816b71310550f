"""The commands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from outlast.cli.loading import NotFound, load_app
from outlast.errors import OutlastError
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
    with _errors_told():
        code = asyncio.run(work(load_app(target), _say))
    raise typer.Exit(code)


@commands.command()
def migrate(target: Target) -> None:
    """Bring the tables up to date, once, however many run it at the same time."""
    with _errors_told():
        applied = asyncio.run(load_app(target).migrate())
    if applied:
        _say(f"Applied {', '.join(str(version) for version in applied)}; the tables are up to date.")
    else:
        _say("The tables were up to date already.")


@contextmanager
def _errors_told() -> Generator[None, None, None]:
    """Say what is wrong in one line where a traceback would tell no more; exit with 1."""
    try:
        yield
    except (NotFound, OutlastError) as error:
        typer.secho(f"{type(error).__name__}: {error}", err=True, fg=typer.colors.RED)
        raise typer.Exit(1) from error


def _say(text: str) -> None:
    typer.echo(text)
