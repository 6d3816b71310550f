"""In a transaction of the caller's, what outlast writes is dated when it becomes the writer, not before it waited."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from outlast import Context, Outlast, Signal, workflow

paid = Signal("paid", str)


@workflow("awaits-payment")
async def awaits_payment(ctx: Context) -> str | None:
    return await ctx.wait_for("payment", ctx.signal(paid))


class WatchingClock:
    """A clock that notes, each time it is read, whether somebody else could still become the writer before that time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 1_800_000_000_000_000
        self.was_writer: list[bool] = []

    def now(self) -> int:
        other = sqlite3.connect(self._file, timeout=0, isolation_level=None)
        try:
            other.execute("begin immediate")
        except sqlite3.OperationalError:
            self.was_writer.append(True)
        else:
            self.was_writer.append(False)
        finally:
            other.close()
        self._at += 1
        return self._at


async def test_a_joined_write_reads_the_time_as_the_writer(tmp_path: Path) -> None:
    """A signal that waited for another transaction was dated before the cancel that was committed by it meanwhile, so the
    cancelled run took the signal."""
    file = tmp_path / "shop.db"
    clock = WatchingClock(file)
    async with Outlast(f"sqlite:///{file}", workflows=[awaits_payment], worker=False, clock=clock) as app:
        await app.start(awaits_payment, id="first")
        callers = sqlite3.connect(file)
        clock.was_writer.clear()

        with callers:
            await app.start(awaits_payment, id="second", tx=callers)
        with callers:
            await app.signal(paid, "42", tx=callers)
        with callers:
            await app.cancel("first", tx=callers)
        callers.close()

    assert clock.was_writer
    assert all(clock.was_writer)
