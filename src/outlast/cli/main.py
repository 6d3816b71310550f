"""The way in to the command line, which says what to install when its library is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command that the process's arguments name, and exit."""
    if find_spec("typer") is None:
        sys.exit('The command line of outlast needs typer: pip install "outlast[cli]"')
    from outlast.cli.commands import commands  # noqa: PLC0415 -- typer is optional until here

    commands()


if __name__ == "__main__":
    main()
