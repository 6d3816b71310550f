"""What executes runs: claims them, drives their turns, performs their steps and makes their journals durable.

Owns, from the outside in: the worker of a process (`worker`); its shift on one event loop (`shift`, with the look for due
runs in `claiming`, the care for those that nobody gets on with in `neglected`, the lease's renewal in `heartbeat` and the
database's time in `databasetime`); its tenure under one lease (`tenure`, with group commit in `flusher`); one run's turn
(`turn`, with parked executions in `parked`); one attempt of a step (`steps`, `threads`), or of one in a transaction of the
application's (`transactional`, with what it may write there in `granting`).
May import: `outlast.engine`, `outlast.ports`, `outlast.model`, `outlast.errors`; no store and no client.
Start at `worker`, then `turn`.
"""
