"""The roads on which statements reach a database.

Owns: what an application may pass as its database (`opening`, `urls`), how an op becomes a transaction of our own and when
it is tried again (`database`), how it joins one of the application's (`joining`, and `marking` for steps, whose transactions
come from `sources`), and one road for each driver and colour.
May import: the rest of `outlast.stores`, and the drivers, each inside the module that needs it.
Start at `opening`, then `database`.
"""
