"""The three hot writes (start, send, flush) as one statement over arrays: for databases that take rows as arrays.

Owns: the form of those writes for PostgreSQL's `unnest`, each one round trip when nothing is in its way.
May import: `outlast.stores.basis`, `outlast.stores.tables`, `outlast.ports`.
Start at `flushing`.
"""
