"""A payment as a transactional step whose transaction can be made to end badly, on each database in both colours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast import Context, Outlast, Retry, StepContext, WorkerOptions, workflow
from support.payments import Source, source_on
from support.probing import Tables

AGAIN = Retry(attempts=3, delay="1ms")
PLACES = (
    "sqlite, sessionmaker",
    "sqlite, async_sessionmaker",
    "postgresql, sessionmaker",
    "postgresql, asyncpg pool",
    "mysql, PyMySQL",
    "mariadb, aiomysql",
)
"""Each database in both colours; MySQL and MariaDB are one."""
ON_SERVERS = tuple(place for place in PLACES if not place.startswith("sqlite"))


class Breaking:
    """A source whose transactions do something else at their end, the first time."""

    def __init__(self, source: Source, begin: Callable[[], Any]) -> None:
        self.source = source
        self._begin = begin
        self.before: Callable[[], object] | None = None
        """Called instead of the commit; what it does not raise is a rollback without a word."""
        self.after: Callable[[], object] | None = None
        """Called after the commit."""

    @property
    def option(self) -> Callable[[], Any]:
        return self._blocking if self.source.is_blocking else self._awaiting

    @contextmanager
    def _blocking(self) -> Generator[Any]:
        before, after, self.before, self.after = self.before, self.after, None, None
        try:
            with self._begin() as tx:
                yield tx
                if before is not None:
                    raise _Instead
        except _Instead:
            assert before is not None
            before()
        if after is not None:
            after()

    @asynccontextmanager
    async def _awaiting(self) -> AsyncGenerator[Any]:
        before, after, self.before, self.after = self.before, self.after, None, None
        try:
            async with self._begin() as tx:
                yield tx
                if before is not None:
                    raise _Instead
        except _Instead:
            assert before is not None
            before()
        if after is not None:
            after()


class _Instead(Exception):
    """In the place of a commit."""


class Place:
    """A database and a source that can be broken."""

    def __init__(self, url: str, source: Source) -> None:
        self.url = url
        self.source = source
        option: Any = source.option
        if not hasattr(option, "begin") and hasattr(option, "acquire"):

            @asynccontextmanager
            async def begin() -> AsyncGenerator[Any]:
                async with option.acquire() as connection, connection.transaction():
                    yield connection

            self.breaking = Breaking(source, begin)
        else:
            self.breaking = Breaking(source, getattr(option, "begin", option))
        self.attempts: list[int] = []

    def shop(
        self,
        *acts: Callable[..., Any],
        first: Callable[..., Any] | None = None,
        retry: Retry | bool = AGAIN,
        **options: Any,
    ) -> Any:
        """A workflow of one payment; the step does `first` before it pays and the other acts after it."""
        source = self.source

        def note(_: Any, s: StepContext) -> None:
            self.attempts.append(s.attempt)

        before: tuple[Callable[..., Any], ...] = (note,) if first is None else (note, first)

        def insert(tx: Any, s: StepContext) -> Any:
            return source.pay(tx, s.run_id, f"attempt {s.attempt}")

        pay = source.step(*before, insert, *acts)

        @workflow("shop")
        async def shop(ctx: Context) -> str:
            paid: str = await ctx.transaction("pay", pay, retry=retry, **options)
            return paid

        return shop

    def app(self, shop: Any, *, option: object = None, **options: Any) -> Outlast:
        given: dict[str, Any] = {"poll": "50ms", **options}
        worker = WorkerOptions(**given)
        return Outlast(self.url, workflows=[shop], transactions=option or self.breaking.option, worker=worker)

    def recorded(self) -> list[tuple[Any, ...]]:
        return Tables(self.url)("select run_id, name, phase, attempt from {journal} order by run_id, seq")


def in_places(*places: str) -> Callable[[Callable[[Place], Awaitable[None]]], Callable[..., Awaitable[None]]]:
    def on(test: Callable[[Place], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        @pytest.mark.parametrize("where", places)
        async def run(where: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
            database, name = where.split(", ")
            server = "postgres_url" if database == "postgresql" else f"{database}_url"
            url = f"sqlite:///{tmp_path}/app.db" if database == "sqlite" else request.getfixturevalue(server)
            async with source_on(url, name) as source:
                await test(Place(url, source))

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return on
