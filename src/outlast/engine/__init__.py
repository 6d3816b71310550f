"""How a run decides: pure functions of a definition and a journal, on a deterministic event loop without I/O.

Owns: what authors declare (`definition`, `step`, `signatures`, `conditions`) and are given (`context`, `stepcontext`); the
run as their objects see it (`host`), and which step code is inside of (`frames`); the loop their code runs on (`eventloop`)
and that code with all it asks for (`code`); the journal while it runs (`replaying`), its time (`runtime`), its deadlines
(`timers`) and waits (`waiting`); attempts (`performing`, `retry`); the end (`stops`, `ending`, `saga`).
May import: `outlast.ports`, `outlast.model`, `outlast.errors` and asyncio's futures and tasks; no database, no socket, no
thread, no clock and no random source: those are handed in.
Start at `decision`, then `execution`, which drives it all. `docs/internals/replay.md` tells the story.
"""
