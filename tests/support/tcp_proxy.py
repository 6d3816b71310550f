"""A link to a server that tests may cut, hold up and refuse: `TcpProxy`, on loopback, in a thread of its own.

`cut()`                   every link breaks now, as when a cable is pulled and the kernel notices
`cut_after(n)`            the link breaks once the client has sent `n` more bytes, in the middle of a message if need be
`cut_at(b"COMMIT")`       the server gets that message and acts on it; its answer never arrives
`cut_at(b"COMMIT", delivered=False)`   the message itself never arrives
`hold_at(b"COMMIT")`      the client's side breaks now; the server gets the message when `release()` is called
`refuse()`                links break and new ones are refused, as when the server is down
`stall()`                 links stay open and nothing passes, as when packets are dropped on the way
`let_through()`           all of that ends

Rules hold for the next link that meets them, once; one with `after=` for a link that has said that before.
`wait_for_cut()` returns when a rule has struck. outlast begins with `BEGIN ISOLATION LEVEL READ COMMITTED`, which is no
COMMIT: the message is `COMMIT_MESSAGE`; on MySQL and MariaDB `COMMIT_OF_MYSQL`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

# What PostgreSQL ends each answer with; one byte of transaction status follows.
READY_FOR_QUERY = b"Z\x00\x00\x00\x05"
COMMIT_MESSAGE = b"COMMIT\0"
# MySQL and MariaDB answer a command when they have done it, and carry COMMIT in a packet of its own.
ANY_ANSWER = b""
COMMIT_OF_MYSQL = b"\x07\x00\x00\x00\x03COMMIT"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class _After:
    left: int


@dataclass(frozen=True, slots=True)
class _At:
    needle: bytes
    delivered: bool
    held: bool = False
    after: bytes = b""

    def is_met_by(self, link: _Link) -> bool:
        if not link.is_known:
            _, found, rest = link.heard.partition(self.after) if self.after else (b"", b"found", link.heard)
            if not found:
                return False
            link.is_known, link.heard = True, rest
        return self.needle in link.heard


class TcpProxy:
    """`with TcpProxy("127.0.0.1", port) as proxy: connect(proxy.url(server_url))`; its methods are for any thread."""

    def __init__(self, host: str, port: int, *, answer: bytes = READY_FOR_QUERY) -> None:
        """`answer` is what the server ends the answer to a statement with."""
        self.target = (host, port)
        self._answer = answer
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rule: _After | _At | None = None
        self._open = asyncio.Event()
        self._held = asyncio.Event()
        self._struck = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, server_url: str) -> str:
        """The same database, reached through here."""
        parts = urlsplit(server_url)
        credentials, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{credentials}{at}127.0.0.1:{self.port}"))

    @property
    def links(self) -> int:
        return len(self._links)

    def cut(self) -> None:
        self._run(self._break_links())

    def cut_after(self, count: int) -> None:
        self._set_rule(_After(count))

    def cut_at(self, needle: bytes, *, delivered: bool = True, after: bytes = b"") -> None:
        self._set_rule(_At(needle, delivered, after=after))

    def hold_at(self, needle: bytes, *, after: bytes = b"") -> None:
        self._set_rule(_At(needle, delivered=True, held=True, after=after))

    def release(self) -> None:
        """Let the server have what was held. Returns when it has; its answer goes nowhere."""
        self._run(self._release())

    def wait_for_cut(self, *, timeout: float = 30) -> None:
        """Return when the rule set last has struck. Blocks: in an `async` test, await it in a thread."""
        assert self._struck.wait(timeout), f"no link met {self._rule} within {timeout:g} s"

    def refuse(self) -> None:
        self._run(self._refuse())

    def stall(self) -> None:
        self._run(self._stall())

    def let_through(self) -> None:
        self._rule = None
        self._run(self._listen())

    # -- in the proxy's thread

    def _run(self, action: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(action, self._loop).result(30)

    def _set_rule(self, rule: _After | _At) -> None:
        self._struck.clear()
        self._rule = rule

    async def _listen(self) -> None:
        self._open.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._break_links()

    async def _stall(self) -> None:
        self._open.clear()

    async def _release(self) -> None:
        self._held.set()
        await asyncio.gather(*(link.answered.wait() for link in self._links if link.is_held))
        self._held.clear()

    async def _break_links(self) -> None:
        for link in list(self._links):
            link.cut()

    async def _close(self) -> None:
        await self._refuse()
        self._open.set()
        self._held.set()
        await asyncio.gather(*self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, server_writer)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(reader, server_writer, link, self._of_client),
                self._pump(server_reader, writer, link, self._of_server),
            )
        finally:
            self._links.discard(link)
            link.cut()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        link: _Link,
        passes: Callable[[_Link, bytes], bytes],
    ) -> None:
        """Carry bytes one way until either end closes; closing it ends the other way as well."""
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                await self._open.wait()
                passing = passes(link, chunk)
                if link.is_held and passing:
                    link.break_client()
                    self._struck.set()
                    await self._held.wait()
                    writer.write(passing)
                    await link.answered.wait()
                    return
                if passing:
                    writer.write(passing)
                    await writer.drain()
                if link.is_doomed:
                    link.answered.set()
                    link.cut()
                    self._struck.set()
                    return
        if not writer.transport.is_closing():
            writer.close()

    def _of_client(self, link: _Link, chunk: bytes) -> bytes:
        """What of the client's bytes goes on to the server."""
        if link.rule is not self._rule:
            # What was said before the rule was set does not meet it.
            link.rule, link.heard, link.is_known = self._rule, b"", False
        link.heard = link.heard[-256:] + chunk
        match self._rule:
            case _After() as rule if rule.left <= len(chunk):
                self._rule, link.is_doomed = None, True
                return chunk[: rule.left]
            case _After() as rule:
                rule.left -= len(chunk)
            case _At() as rule if rule.is_met_by(link):
                self._rule, link.is_deaf, link.is_doomed = None, rule.delivered, not rule.delivered
                link.is_held = rule.held
                return chunk if rule.delivered else b""
            case _:
                pass
        return chunk

    def _of_server(self, link: _Link, chunk: bytes) -> bytes:
        """What of the server's bytes goes on to the client."""
        if not link.is_deaf:
            return chunk
        link.unheard = link.unheard[-256:] + chunk
        link.is_doomed = self._answer in link.unheard
        return b""


class _Link:
    """The two sockets of one connection and what a rule has made of them."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.rule: _After | _At | None = None
        self.heard = b""
        self.unheard = b""
        self.is_known = False
        self.is_deaf = False
        self.is_held = False
        self.is_doomed = False
        self.answered = asyncio.Event()
        self._client, self._server = client, server

    def cut(self) -> None:
        self.answered.set()
        _reset(self._client)
        _reset(self._server)

    def break_client(self) -> None:
        _reset(self._client)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
