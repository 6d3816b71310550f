"""The three hot writes (start, send, flush) row by row: for every database that has nothing better.

Owns: the form of those writes in portable statements. `outlast.stores.arrays` holds the other form; both answer alike, and
the contract of stores runs over both.
May import: `outlast.stores.basis`, `outlast.stores.tables`, `outlast.ports`.
Start at `flushing`.
"""
