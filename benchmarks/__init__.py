"""Measure outlast beside its peers: the workloads W1 to W6, on the same machine, interleaved, in one command.

Start here: `run.py` (the command), then `workloads.py` (what is measured) and `system.py` (what a system must offer).
Nothing of `src/` imports this package.
"""
