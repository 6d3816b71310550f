"""What the commands say: to people on a terminal, to other programs in plain lines."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.table import Table

from outlast.cli.loading import NotFound
from outlast.client.operating import in_words
from outlast.errors import OutlastError


@contextmanager
def errors_told() -> Generator[None, None, None]:
    """Say what is wrong in one line where a traceback would tell no more; exit with 1."""
    try:
        yield
    except (NotFound, OutlastError) as error:
        typer.secho(in_words(error), err=True, fg=typer.colors.RED)
        raise typer.Exit(1) from error


def say(text: str, *, err: bool = False) -> None:
    """Say one line; about the output, beside it."""
    typer.echo(text, err=err)


def table(title: str, rows: Mapping[str, object]) -> None:
    """Show names and what they stand for."""
    made = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        made.add_row(name, str(value))
    Console().print(made)
