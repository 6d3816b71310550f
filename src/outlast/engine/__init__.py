"""How a run decides: pure functions of a definition and a journal, on a deterministic event loop without I/O.

Owns: what authors declare (`definition`), the verbs they call (`context`), the loop their code runs on (`eventloop`),
replay (`execution`), undoing (`saga`) and retry delays (`retry`).
May import: `outlast.ports`, `outlast.model`, `outlast.errors` and asyncio's futures and tasks; no database, no socket, no
thread, no clock and no random source: those are handed in.
Start at `decision`, then `execution`.
"""
