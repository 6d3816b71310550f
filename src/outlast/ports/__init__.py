"""What we need from the outside, as protocols: operations, a store, a database, a clock.

Owns: the words in which engine, client, worker and stores talk to each other.
May import: `outlast.model`, `outlast.errors` and the standard library.
Start at `operation`, then `store`.
"""
