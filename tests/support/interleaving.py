"""Every order in which the statements of two operations can meet, each tried on two real connections.

A side's next step is its next statement, and in the end its COMMIT. A step that waits for a lock of the other side is seen
waiting (PostgreSQL tells in `pg_stat_activity`, SQLite refuses) and the other side goes on; so a schedule that cannot be
followed becomes the one that the database allows. A deadlock fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sqlalchemy import text

from outlast.ports.operation import Op, Result, Statement
from outlast.stores.databases import asyncpg_statements, sqlite_connection
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.mysql_link import MySQLLink
from outlast.stores.databases.opening import open_database
from outlast.stores.sql import SqlStore
from outlast.testing import ManualClock
from support.probing import MYSQL_LOCKS_WAITED_FOR

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

MakeOp = Callable[[SqlStore], Op[Any]]
Answer: TypeAlias = Any
"""What an op answered, or `Failed`."""


@dataclass(frozen=True, slots=True)
class Failed:
    """What a side raised, in the place of its answer."""

    error: Exception


class Link(Protocol):
    """One side's connection. `execute` waits as the database does; `is_waiting` tells whether it waits for a lock."""

    async def execute(self, statement: Statement | str) -> Result: ...

    async def is_waiting(self) -> bool: ...

    async def clear(self) -> None: ...


class Arena:
    """Two links to one database, and a handle on it that takes no part."""

    def __init__(
        self, database: SqlDatabase, clock: ManualClock, links: tuple[Link, Link], most_switches: int | None = None
    ) -> None:
        """`most_switches` bounds those of every interleaving."""
        self.database = database
        self.clock = clock
        self.links = links
        self.schedules = 0
        self._most_switches = most_switches

    async def do(self, make: MakeOp) -> Answer:
        return await self.database.run(lambda: make(self.database.store))

    async def every_interleaving(
        self,
        first: MakeOp,
        second: MakeOp,
        *,
        given: Callable[[], Awaitable[None]],
        then: Callable[[Any, Any], Awaitable[None]],
        most_switches: int | None = None,
        are_alike: bool = False,
    ) -> None:
        """Set up with `given`, let the two meet, look with `then`; once for each possible order of their steps.

        `most_switches` leaves out the orders that go back and forth more often than that. Where the two `are_alike`, an
        order says the same as the one with both exchanged: then the first one always begins.
        """
        if self._most_switches is not None:
            most_switches = min(self._most_switches, most_switches or self._most_switches)
        pending: list[tuple[int, ...]] = [()]
        while pending:
            prefix = pending.pop()
            await self._wipe()
            await given()
            race = _Race(self, first, second)
            taken = await race.run(prefix)
            # Wherever both sides could have gone on after the given prefix, the other choice is another schedule.
            others = [
                (*(side for side, _ in taken[:at]), 1 - side)
                for at, (side, had_choice) in enumerate(taken)
                if at >= max(len(prefix), int(are_alike)) and had_choice
            ]
            pending += [other for other in others if most_switches is None or _switches(other) <= most_switches]
            self.schedules += 1
            try:
                await then(*race.answers)
            except BaseException as error:
                error.add_note(f"in the schedule {''.join('AB'[side] for side, _ in taken)}")
                raise

    async def _wipe(self) -> None:
        tables = self.database._basis.tables  # pyright: ignore[reportPrivateUsage]  wiping is no verb

        def wipe(_: SqlStore) -> Op[None]:
            for table in (tables.runs, tables.journal, tables.waits, tables.signals, tables.workers):
                yield Statement(table.delete())

        await self.do(wipe)


def _switches(schedule: tuple[int, ...]) -> int:
    return sum(before != after for before, after in itertools.pairwise(schedule))


class _Race:
    def __init__(self, arena: Arena, first: MakeOp, second: MakeOp) -> None:
        store = arena.database.store
        self._links = arena.links
        self._sides = [_Side(first(store)), _Side(second(store))]
        self.answers: list[Any] = []

    async def run(self, prefix: tuple[int, ...]) -> list[tuple[int, bool]]:
        """Follow the prefix, then always the first side that can go; return each choice and whether there was one."""
        taken: list[tuple[int, bool]] = []
        while not all(side.is_over for side in self._sides):
            able = [at for at, side in enumerate(self._sides) if not side.is_over and side.step is None]
            if not able:
                await self._settle()
                continue
            wanted = prefix[len(taken)] if len(taken) < len(prefix) else able[0]
            chosen = wanted if wanted in able else able[0]
            taken.append((chosen, len(able) == 2))
            self._sides[chosen].begin(self._links[chosen])
            await self._settle()
        self.answers = [side.answer for side in self._sides]
        for link in self._links:
            await link.clear()
        return taken

    async def _settle(self) -> None:
        """Wait until each step that was begun is done or waits for a lock."""
        for side, link in zip(self._sides, self._links, strict=True):
            while side.step is not None and not side.step.done():
                await asyncio.wait({side.step}, timeout=0.002)
                if not side.step.done() and await link.is_waiting():
                    break
        for side in self._sides:
            side.collect()


class _Side:
    def __init__(self, op: Op[Any]) -> None:
        self._op = op
        self._next: Statement | None = None
        self._has_begun = False
        self.is_over = False
        self.answer: Any = None
        self.step: asyncio.Task[Result] | None = None
        self._advance(lambda: next(op))

    def begin(self, link: Link) -> None:
        self.step = asyncio.ensure_future(self._execute(link))

    async def _execute(self, link: Link) -> Result:
        if not self._has_begun:
            await link.execute("BEGIN")
            self._has_begun = True
        if isinstance(self.answer, Failed):
            return await link.execute("ROLLBACK")
        return await link.execute("COMMIT" if self._next is None else self._next)

    def collect(self) -> None:
        if self.step is None or not self.step.done():
            return
        step, self.step = self.step, None
        try:
            result = step.result()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this side's answer
            self.answer, self._next, self.is_over = Failed(error), None, True
            return
        if self._next is None:
            self.is_over = True
        else:
            self._advance(lambda: self._op.send(result))

    def _advance(self, resume: Callable[[], Statement]) -> None:
        try:
            self._next = resume()
        except StopIteration as end:
            self._next, self.answer = None, end.value
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this side's answer
            self._next, self.answer = None, Failed(error)


class _AsyncpgLink:
    def __init__(self, connection: Connection, monitor: Connection) -> None:
        self._connection = connection
        self._monitor = monitor

    async def execute(self, statement: Statement | str) -> Result:
        if isinstance(statement, str):
            await self._connection.execute(statement)
            return Result()
        return await asyncpg_statements.execute(self._connection, statement)

    async def is_waiting(self) -> bool:
        found = await self._monitor.fetchval(
            "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1", self._connection.get_server_pid()
        )
        return found is True

    async def clear(self) -> None:
        await self._connection.execute("ROLLBACK")


class _SQLiteLink:
    """SQLite refuses at once instead of waiting, so waiting is trying again."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        self._is_waiting = False

    async def execute(self, statement: Statement | str) -> Result:
        if statement == "BEGIN":
            statement = "BEGIN IMMEDIATE"
        while True:
            try:
                if isinstance(statement, str):
                    self._connection.execute(statement)
                    return Result()
                return sqlite_connection.execute(self._connection, statement)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
            finally:
                self._is_waiting = False
            self._is_waiting = True
            await asyncio.sleep(0)

    async def is_waiting(self) -> bool:
        return self._is_waiting

    async def clear(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()


@contextlib.asynccontextmanager
async def arena_over(url: str) -> AsyncGenerator[Arena]:
    """An arena over a fresh database that several connections can open."""
    clock = ManualClock()
    database = open_database(url, clock=clock)
    await database.open()
    await database.migrate()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        stack.callback(database.close_blocking)
        # Row by row an operation is many statements, and here each is a round trip to a server; SQLite goes through all
        # the orders of the same statements.
        most_switches = None if url.startswith(("sqlite", "postgresql")) else 2
        yield Arena(database, clock, await _links(url, database, stack), most_switches)


class _MySQLLink:
    """Its server has one other user: so whenever somebody waits for a lock there, this side's step does."""

    def __init__(self, link: MySQLLink, monitor: MySQLLink) -> None:
        self._link = link
        self._monitor = monitor

    async def execute(self, statement: Statement | str) -> Result:
        if isinstance(statement, str):
            await self._link.say(statement)
            return Result()
        return await self._link.perform(statement)

    async def is_waiting(self) -> bool:
        locks = await self._monitor.perform(_ROW_LOCKS_WAITED_FOR)
        users = await self._monitor.perform(_USERS)
        return int(locks.rows[0][1]) > 0 or any(row[6] == "User lock" for row in users.rows)

    async def clear(self) -> None:
        await self._link.say("ROLLBACK")


_ROW_LOCKS_WAITED_FOR = Statement(text(MYSQL_LOCKS_WAITED_FOR))
_USERS = Statement(text("show processlist"))


async def _links(url: str, database: SqlDatabase, stack: contextlib.AsyncExitStack) -> tuple[Link, Link]:
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        files = (_SQLiteLink(path), _SQLiteLink(path))
        for file in files:
            stack.callback(file.close)
        return files
    if url.startswith(("mysql", "mariadb")):
        return await _mysql_links(database, stack)
    connections: list[Connection] = []
    for _ in range(3):
        road: Any = database._road  # pyright: ignore[reportPrivateUsage]  a connection of its own to lock on
        connection: Connection = await road._pools._connect()
        stack.push_async_callback(connection.close)
        # Whoever waits here waits for as long as the schedule wants; only a circle ends it.
        await connection.execute("set deadlock_timeout = '20ms'")
        await connection.execute("set lock_timeout = 0")
        connections.append(connection)
    return _AsyncpgLink(connections[0], connections[2]), _AsyncpgLink(connections[1], connections[2])


async def _mysql_links(database: SqlDatabase, stack: contextlib.AsyncExitStack) -> tuple[Link, Link]:
    links: list[MySQLLink] = []
    for _ in range(3):
        road: Any = database._road  # pyright: ignore[reportPrivateUsage]  a connection of its own to lock on
        link: MySQLLink = await road._pools._connect()
        stack.push_async_callback(link.close)
        # Whoever waits here waits for as long as the schedule wants; only a circle ends it.
        await link.say("set session innodb_lock_wait_timeout = 60")
        links.append(link)
    return _MySQLLink(links[0], links[2]), _MySQLLink(links[1], links[2])
