"""The command `outlast`: what operators run.

Owns: the way in (`main`), the commands (`commands`) and finding an application by `module:attribute` (`loading`).
May import: everything below, and typer inside `commands`; nothing of the library imports it.
Start at `commands`.
"""
