"""The command `outlast`: what operators run.

Owns: the way in (`main`), the commands (`commands`), finding an application by `module:attribute` (`loading`) and running
its worker until a signal (`serving`).
May import: everything below, and typer inside `commands`; nothing of the library imports it.
Start at `commands`.
"""
