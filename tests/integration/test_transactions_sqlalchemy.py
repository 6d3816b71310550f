"""Sessions and connections of SQLAlchemy that choose where a statement goes: ours go with the caller's rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Delete, Engine, Insert, String, Update, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from outlast import Context, NotATransaction, Outlast, Signal, WorkerOptions, workflow
from support.callers import awaiting_engine, blocking_engine, kind_of

pytestmark = pytest.mark.every_database("mysql")
poked = Signal("poked", str)


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(String(20), primary_key=True)


@workflow("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"


class Routing(Session):
    """As SQLAlchemy's documentation shows it: writes go to the leader, everything else to a follower."""

    leader: Any
    follower: Any

    def get_bind(self, mapper: Any = None, *, clause: Any = None, **_: Any) -> Any:
        writes = self._flushing or isinstance(clause, (Update, Delete, Insert))
        return self.leader if writes else self.follower


class RoutingFlushes(Routing):
    """One that looks at nothing but whether it is flushing."""

    def get_bind(self, mapper: Any = None, **_: Any) -> Any:
        return self.leader if self._flushing else self.follower


def sent_on(engine: Engine) -> list[str]:
    """Return what is sent on an engine."""
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *call: sent.append(call[2]))
    return sent


@pytest.mark.parametrize("routing", [Routing, RoutingFlushes])
@pytest.mark.parametrize("handle", ["Session", "scoped_session", "AsyncSession"])
async def test_a_session_that_routes_writes_where_it_sends_its_own_rows(
    shared_database_url: str, routing: type[Routing], handle: str
) -> None:
    """On the other connection they would be in another transaction, whose fate is not that of the caller's rows."""
    is_awaiting = handle == "AsyncSession"
    make: Any = awaiting_engine if is_awaiting else blocking_engine
    leader, follower = make(shared_database_url), make(shared_database_url)
    tables = blocking_engine(shared_database_url)
    Base.metadata.create_all(tables)

    class Chosen(routing):  # type: ignore[misc, valid-type]  # a class for this database
        pass

    Chosen.leader, Chosen.follower = [getattr(engine, "sync_engine", engine) for engine in (leader, follower)]
    on_follower = sent_on(Chosen.follower)
    async with Outlast(shared_database_url, workflows=[greet], worker=False) as app, _opened(handle, Chosen) as session:
        session.add(Order(id="o-1"))
        await _awaited(session.flush())
        await app.start(greet, "Ada", id="o-1", tx=session)
        await app.signal(poked, "x", key="k", tx=session)
        await _awaited(session.rollback())
        assert await app.get("o-1") is None

        session.add(Order(id="o-2"))
        await app.start(greet, "Ada", id="o-2", tx=session)
        await _awaited(session.commit())
        assert await app.get("o-2") is not None
    assert on_follower == []
    with Session(tables) as session:
        assert [order.id for order in session.query(Order)] == ["o-2"]
    for engine in (leader, follower, tables):
        await _awaited(engine.dispose())


@asynccontextmanager
async def _opened(handle: str, kind: type[Session]) -> AsyncGenerator[Any]:
    if handle == "AsyncSession":
        async with AsyncSession(sync_session_class=kind) as session:
            yield session
    elif handle == "Session":
        with kind() as opened:
            yield opened
    else:
        registry = scoped_session(sessionmaker(class_=kind))
        yield registry
        registry.remove()


@asynccontextmanager
async def _begun(handle: str, engine: Any) -> AsyncGenerator[Any]:
    made: Any = {"Session": Session, "AsyncSession": AsyncSession}.get(handle, lambda engine: engine.connect())(engine)
    if handle.startswith("Async"):
        async with made as tx:
            yield tx
    else:
        with made as tx:
            yield tx


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


async def test_a_session_with_an_engine_for_its_own_tables_uses_the_other_for_ours(shared_database_url: str) -> None:
    ours, theirs = blocking_engine(shared_database_url), create_engine("sqlite://")
    Base.metadata.create_all(theirs)
    async with Outlast(shared_database_url, workflows=[greet], worker=False) as app:
        with Session(ours, binds={Order: theirs}) as session, session.begin():
            session.add(Order(id="o-1"))
            await app.start(greet, "Ada", id="o-1", tx=session)
        assert await app.get("o-1") is not None

        with (
            Session(binds={Order: theirs}) as session,
            pytest.raises(NotATransaction, match="bound to no one database"),
        ):
            await app.start(greet, "Ada", tx=session)
    ours.dispose()
    theirs.dispose()


async def test_a_session_within_a_connections_transaction_ends_with_that(shared_database_url: str) -> None:
    engine = blocking_engine(shared_database_url)
    async with Outlast(shared_database_url, workflows=[greet], worker=False) as app:
        with engine.connect() as connection:
            outer = connection.begin()
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                if kind_of(shared_database_url) == "sqlite":
                    connection.execute(text("begin"))
                await app.start(greet, "Ada", id="o-1", tx=session)
                session.commit()
            outer.rollback()
        assert await app.get("o-1") is None
    engine.dispose()


@pytest.mark.parametrize("handle", ["Connection", "Session", "AsyncConnection", "AsyncSession"])
async def test_a_connection_that_is_a_tenants_still_finds_outlasts_tables(
    shared_database_url: str, handle: str
) -> None:
    """Where tables have no schema of ours, they would be looked for among the tenant's."""
    options = {"schema_translate_map": {None: "tenant", "outlast": "tenant"}}
    is_awaiting = handle.startswith("Async")
    plain: Any = (awaiting_engine if is_awaiting else blocking_engine)(shared_database_url)
    engine = plain.execution_options(**options)
    worker = WorkerOptions(poll="50ms")
    async with Outlast(shared_database_url, workflows=[greet], worker=worker) as app:
        async with _begun(handle, engine) as tx:
            await app.start(greet, "Ada", id="o-1", tx=tx)
            await app.signal(poked, "x", key="k", tx=tx)
            await _awaited(tx.commit())
        assert await app.result("o-1", timeout="20s") == "Hello, Ada"
    await _awaited(plain.dispose())


@pytest.mark.two_databases
async def test_a_transaction_that_is_prepared_is_refused_with_what_to_use(postgres_url: str) -> None:
    """PostgreSQL would refuse it only at the PREPARE, for the NOTIFY in it, and take all that was done in it back."""
    engine, awaiting = blocking_engine(postgres_url), awaiting_engine(postgres_url)
    async with Outlast(postgres_url, workflows=[greet], worker=False) as app:
        with Session(engine, twophase=True) as session, pytest.raises(NotATransaction, match="without twophase=True"):
            await app.start(greet, "Ada", tx=session)
        async with AsyncSession(awaiting, twophase=True) as session:
            with pytest.raises(NotATransaction, match="PostgreSQL prepares no transaction"):
                await app.start(greet, "Ada", tx=session)
        with (
            engine.connect() as connection,
            connection.begin_twophase(),
            pytest.raises(NotATransaction, match="not begin_twophase"),
        ):
            await app.start(greet, "Ada", tx=connection)
        assert (await app.list()).runs == ()
    engine.dispose()
    await awaiting.dispose()
