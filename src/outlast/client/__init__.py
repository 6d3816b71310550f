"""How applications ask: every verb once, then awaited by one class and blocking in the other.

Owns: the verbs as operations (`calls`), the two clients (`client`, `blocking`), handles (`handle`), waiting for a run's end
(`endings`), group commit of single questions (`grouping`), the way to database and worker (`access`), the registered
workflows (`catalog`), ids that clients make (`identity`) and what stored rows look like to callers (`views`).
May import: `outlast.engine`, `outlast.ports`, `outlast.model`, `outlast.errors`; no store and no worker.
Start at `calls`, then `client`.
"""
