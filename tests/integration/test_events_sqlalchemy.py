"""Domain events that are recorded on objects of a session are published in the transaction that saves them."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import String, func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from outlast import DefinitionError, InvalidArgument, Outlast, RunIdConflict, WorkerOptions, WrongColour
from outlast.integrations.events_sqlalchemy import publish_on_commit
from support.callers import awaiting_engine, blocking_engine
from support.colours import written
from support.programs.publishing import OrderDelivered, OrderPlaced, delivered, fulfil, make_app


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    parcel: Mapped[str | None] = mapped_column(String(40), default=None)

    @classmethod
    def place(cls, order: str) -> Order:
        placed = cls(id=order)
        placed.record(OrderPlaced(order))
        return placed

    def deliver(self, parcel: str) -> None:
        self.parcel = parcel
        self.record(OrderDelivered(self.id, parcel))

    def record(self, happened: object) -> None:
        # An object that was loaded has not been through __init__.
        vars(self).setdefault("recorded", []).append(happened)

    def pulled(self) -> list[object]:
        assert type(self) is Order, "an object of another class was asked for events"
        recorded: list[object] = vars(self).pop("recorded", [])
        return recorded


class Note(Base):
    """What records no events."""

    __tablename__ = "notes"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)


class Undone(Exception):
    """What makes a transaction roll back."""


Work = Callable[[Session], None]
Transact = Callable[[Work], Awaitable[None]]


@asynccontextmanager
async def awaited(url: str, app: Outlast) -> AsyncGenerator[Transact, None]:
    engine = awaiting_engine(url)
    sessions = async_sessionmaker(engine)
    publish_on_commit(app, sessions, of=Order, events=Order.pulled)

    async def transact(work: Work) -> None:
        async with sessions.begin() as session:
            await session.run_sync(work)

    try:
        yield transact
    finally:
        await engine.dispose()


@asynccontextmanager
async def blocking(url: str, app: Outlast) -> AsyncGenerator[Transact, None]:
    engine = blocking_engine(url)
    sessions = sessionmaker(engine)
    publish_on_commit(app, sessions, of=Order, events=Order.pulled)

    def transact(work: Work) -> None:
        with sessions.begin() as session:
            work(session)

    try:
        yield lambda work: asyncio.to_thread(transact, work)
    finally:
        engine.dispose()


COLOURS = {"awaited": awaited, "blocking": blocking}


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Any:
    return COLOURS[request.param]


@asynccontextmanager
async def world(
    url: str, colour: Any, *, worker: bool | WorkerOptions = False
) -> AsyncGenerator[tuple[Outlast, Transact], None]:
    engine = blocking_engine(url)
    Base.metadata.create_all(engine)
    app = make_app(url, worker=worker)
    engine.dispose()
    try:
        async with app, colour(url, app) as transact:
            yield app, transact
    finally:
        await asyncio.to_thread(app.blocking.close)


def orders(url: str) -> int:
    engine = blocking_engine(url)
    with Session(engine) as session:
        count = session.scalar(select(func.count()).select_from(Order)) or 0
    engine.dispose()
    return count


async def was_sent(app: Outlast, order: str, parcel: str) -> bool:
    return not (await app.signal(delivered, parcel, key=order, id=parcel)).created


@pytest.mark.every_database
async def test_what_objects_record_is_published_with_the_rows(shared_database_url: str, colour: Any) -> None:
    async with world(shared_database_url, colour) as (app, transact):
        await transact(lambda session: session.add(Order.place("7")))
        assert await written(app) == ["order-7", "thanks-7"]

        def deliver(session: Session) -> None:
            session.get_one(Order, "7").deliver("p-1")

        await transact(deliver)
        await app.drain()

        assert await app.result("order-7", timeout="0s") == "7 by p-1"
        assert orders(shared_database_url) == 1


@pytest.mark.every_database
async def test_the_commit_wakes_the_worker(shared_database_url: str, colour: Any) -> None:
    """The worker's own look is an hour away."""
    async with world(shared_database_url, colour, worker=WorkerOptions(poll="1h")) as (app, transact):
        await transact(lambda session: session.add(Order.place("7")))

        assert await app.result("thanks-7", timeout="20s") == "thanks for 7"


@pytest.mark.every_database
async def test_what_is_rolled_back_is_not_published(shared_database_url: str, colour: Any) -> None:
    def place(session: Session) -> None:
        session.add(Order.place("7"))
        session.flush()
        raise Undone

    async with world(shared_database_url, colour) as (app, transact):
        with suppress(Undone):
            await transact(place)
        await transact(lambda session: session.add(Order(id="8")))

        assert await written(app) == []
        assert orders(shared_database_url) == 1


async def test_a_session_that_is_closed_and_used_again_publishes_what_is_committed_alone(tmp_path: Any) -> None:
    """A close with a transaction open is neither a commit nor a rollback to those who listen."""

    def work(session: Session) -> None:
        session.add(Order.place("7"))
        session.flush()
        session.close()
        session.add(Order.place("8"))
        session.commit()

    assert await published_by(f"sqlite:///{tmp_path}/app.db", work, []) == ["8"]


async def test_the_release_of_a_savepoint_publishes_nothing_yet(tmp_path: Any) -> None:
    told: list[str] = []

    def work(session: Session) -> None:
        with session.begin_nested():
            session.add(Order.place("7"))
        assert told == []
        session.commit()

    assert await published_by(f"sqlite:///{tmp_path}/app.db", work, told) == ["7"]


async def published_by(url: str, work: Work, told: list[str]) -> list[str]:
    """Return `told`: the orders whose events were published by this work with a session."""
    engine = blocking_engine(url)
    Base.metadata.create_all(engine)
    sessions = sessionmaker(engine)

    def transact() -> None:
        with sessions() as session:
            work(session)

    async with make_app(url, worker=False) as app:

        @app.on(OrderPlaced)
        def tell(event: OrderPlaced) -> None:
            told.append(event.order)

        publish_on_commit(app, sessions, of=Order, events=Order.pulled)
        await asyncio.to_thread(transact)
        await asyncio.to_thread(app.blocking.close)
    engine.dispose()
    return told


@pytest.mark.every_database
async def test_a_start_that_conflicts_refuses_the_commit(shared_database_url: str, colour: Any) -> None:
    async with world(shared_database_url, colour) as (app, transact):
        await app.start(fulfil, "other", id="order-7")

        with pytest.raises(RunIdConflict):
            await transact(lambda session: session.add(Order.place("7")))

        assert await written(app) == ["order-7"]
        assert orders(shared_database_url) == 0


@pytest.mark.every_database
async def test_a_rolled_back_savepoint_takes_what_was_recorded_in_it(shared_database_url: str, colour: Any) -> None:
    def work(session: Session) -> None:
        outer = Order.place("outer")
        session.add(outer)
        quiet = Order(id="quiet")
        session.add(quiet)
        session.flush()
        quiet.record(OrderPlaced("before"))  # nothing of it is to be saved
        with suppress(Undone), session.begin_nested():
            session.add(Order.place("undone"))
            session.flush()
            quiet.record(OrderPlaced("within"))
            with session.begin_nested():
                session.add(Order.place("undone with it"))
            quiet.record(OrderPlaced("last within"))
            raise Undone
        with session.begin_nested():
            session.add(Order.place("inner"))
            quiet.record(OrderPlaced("kept"))

    async with world(shared_database_url, colour) as (app, transact):
        await transact(work)

        placed = ["before", "inner", "kept", "outer"]
        assert await written(app) == sorted(f"{what}-{order}" for order in placed for what in ("order", "thanks"))


async def test_what_was_let_go_of_after_it_was_saved_is_published(shared_database_url: str, colour: Any) -> None:
    def work(session: Session) -> None:
        session.add_all([Order.place("7"), Note(id="of 7")])
        changed = session.get_one(Order, "8")
        changed.parcel = "P-8"
        changed.record(OrderPlaced("8"))
        session.flush()
        session.expunge_all()

    async with world(shared_database_url, colour) as (app, transact):
        await transact(lambda session: session.add(Order(id="8")))
        await transact(work)

        assert await written(app) == ["order-7", "order-8", "thanks-7", "thanks-8"]


async def test_what_is_loaded_and_only_records_is_not_forgotten(shared_database_url: str, colour: Any) -> None:
    """Nobody but the session knows the object when it commits, and nothing of it is to be saved."""

    def place(session: Session) -> None:
        session.get_one(Order, "7").record(OrderPlaced("7"))

    def place_and_release(session: Session) -> None:
        session.get_one(Order, "8")
        with session.begin_nested():
            session.get_one(Order, "8").record(OrderPlaced("8"))

    def place_what_comes_back(session: Session) -> None:
        deleted, detached = session.get_one(Order, "9"), session.get_one(Order, "10")
        with suppress(Undone), session.begin_nested():
            session.delete(deleted)
            session.flush()
            raise Undone
        deleted.record(OrderPlaced("9"))
        session.expunge(detached)
        session.add(detached)
        detached.record(OrderPlaced("10"))

    async with world(shared_database_url, colour) as (app, transact):
        await transact(lambda session: session.add_all([Order(id="7"), Order(id="8"), Order(id="9"), Order(id="10")]))
        await transact(place)
        await transact(place_and_release)
        await transact(place_what_comes_back)

        assert [run for run in await written(app) if "order" in run] == ["order-10", "order-7", "order-8", "order-9"]


async def test_a_session_lets_go_of_what_is_no_longer_its_own(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/outlast.db"
    engine = blocking_engine(url)
    async with world(url, blocking) as (app, _):
        session = Session(engine)
        publish_on_commit(app, session, of=Order, events=Order.pulled)
        first, second, third, fourth = (Order(id=order) for order in "6789")
        session.add(fourth)
        session.commit()
        session.add_all([first, second, third])
        session.flush()
        references = [weakref.ref(one) for one in (first, second, third, fourth)]

        session.delete(first)
        session.flush()
        session.expunge(second)
        session.rollback()
        session.expunge(fourth)
        del first, second, third, fourth

        assert [reference() for reference in references] == [None] * 4
        session.close()
    engine.dispose()


async def test_what_a_deleted_object_recorded_is_published(shared_database_url: str, colour: Any) -> None:
    def delete(session: Session) -> None:
        gone = session.get_one(Order, "7")
        gone.record(OrderDelivered("7", "p-1"))
        session.delete(gone)

    async with world(shared_database_url, colour) as (app, transact):
        await transact(lambda session: session.add(Order(id="7")))
        await transact(delete)

        assert await was_sent(app, "7", "p-1")


@pytest.mark.every_database
async def test_the_order_of_objects_does_not_hide_a_signal_from_a_run(shared_database_url: str, colour: Any) -> None:
    """Whichever object comes first: the run is started before the signal is sent, so it sees it."""

    def work(session: Session) -> None:
        delivered_one, placed_one = Order(id="a"), Order(id="b")
        delivered_one.record(OrderDelivered("7", "p-1"))
        placed_one.record(OrderPlaced("7"))
        session.add_all([delivered_one, placed_one])

    async with world(shared_database_url, colour) as (app, transact):
        await transact(work)
        await app.drain()

        assert await app.result("order-7", timeout="0s") == "7 by p-1"


async def test_events_that_nothing_maps_are_passed_over(
    shared_database_url: str, colour: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def work(session: Session) -> None:
        order = Order(id="7")
        order.record("something else")
        session.add(order)

    async with world(shared_database_url, colour) as (app, transact):
        await transact(work)

        assert await written(app) == []
        assert [record for record in caplog.records if record.name == "outlast.events"] == []


async def test_handlers_record_further_events_before_the_commit(shared_database_url: str, colour: Any) -> None:
    async with world(shared_database_url, colour) as (app, transact):
        objects: list[Order] = []

        @app.on(OrderPlaced)
        def ship_at_once(event: OrderPlaced) -> None:
            objects[0].deliver("p-1")

        def place(session: Session) -> None:
            objects.append(Order.place("7"))
            session.add(objects[0])

        await transact(place)
        await app.drain()

        assert await app.result("order-7", timeout="0s") == "7 by p-1"


async def test_handlers_that_never_stop_recording_are_stopped(shared_database_url: str, colour: Any) -> None:
    async with world(shared_database_url, colour) as (app, transact):
        objects: list[Order] = []

        @app.on(str)
        def again(event: str) -> None:
            objects[0].record(event)

        def work(session: Session) -> None:
            objects.append(Order(id="7"))
            objects[0].record("again")
            session.add(objects[0])

        with pytest.raises(InvalidArgument, match="still record further ones"):
            await transact(work)

        assert orders(shared_database_url) == 0


async def test_an_awaited_handler_is_awaited_in_an_awaited_commit_only(shared_database_url: str) -> None:
    told: list[object] = []
    async with world(shared_database_url, awaited) as (app, transact):

        @app.on(OrderPlaced)
        async def tell(event: OrderPlaced) -> None:
            told.append(await app.get("order-unknown"))

        await transact(lambda session: session.add(Order.place("7")))
        assert told == [None]

        async with blocking(shared_database_url, app) as transact_blocking:
            with pytest.raises(DefinitionError, match="tell of OrderPlaced is awaited"):
                await transact_blocking(lambda session: session.add(Order.place("8")))
        assert orders(shared_database_url) == 1


async def test_a_session_that_is_not_awaited_publishes_where_no_loop_runs(shared_database_url: str) -> None:
    engine = blocking_engine(shared_database_url)
    async with world(shared_database_url, blocking) as (app, _):
        sessions = sessionmaker(engine)
        publish_on_commit(app, sessions, of=Order, events=Order.pulled)
        with pytest.raises(WrongColour) as refused, sessions.begin() as session:
            session.add(Order.place("7"))

        assert "called by the commit of a Session" in refused.value.__notes__[0]
        assert await written(app) == []
    engine.dispose()


async def test_every_kind_of_session_can_be_listened_to(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/outlast.db"
    engine, awaiting = blocking_engine(url), awaiting_engine(url)
    async with world(url, blocking) as (app, _):

        class Own(Session): ...

        class Inner(Session): ...

        def commit(session: Any, order: str) -> None:
            session.add(Order.place(order))
            session.commit()
            session.close()

        registry = scoped_session(sessionmaker(engine))
        one = Session(engine)
        plain: list[tuple[str, Any, Any]] = [
            ("class", Own, Own(engine)),
            ("registry", registry, registry),
            ("one", one, one),
        ]
        for order, sessions, session in plain:
            with monkeypatch.context() as unloaded:
                if order == "class":  # as where greenlet is not installed
                    unloaded.delitem(sys.modules, "sqlalchemy.ext.asyncio")
                publish_on_commit(app, sessions, of=Order, events=Order.pulled)
            await asyncio.to_thread(commit, session, order)

        awaiting_registry = async_scoped_session(async_sessionmaker(awaiting), scopefunc=asyncio.current_task)
        alone = AsyncSession(awaiting)
        awaited_ones: list[tuple[str, Any]] = [("awaiting-one", alone), ("awaiting-registry", awaiting_registry)]
        for order, sessions in awaited_ones:
            publish_on_commit(app, sessions, of=Order, events=Order.pulled)
            sessions.add(Order.place(order))
            await sessions.commit()
            await sessions.close()
        await awaiting_registry.remove()
        of_own = async_sessionmaker(awaiting, sync_session_class=Inner)
        publish_on_commit(app, of_own, of=Order, events=Order.pulled)
        async with of_own.begin() as of_inner:
            assert isinstance(of_inner.sync_session, Inner)
            of_inner.add(Order.place("inner"))

        # Whoever was not listened to is not heard.
        await asyncio.to_thread(commit, Session(engine), "unheard")

        heard = ["awaiting-one", "awaiting-registry", "class", "inner", "one", "registry"]
        assert [run for run in await written(app) if run.startswith("order-")] == [f"order-{order}" for order in heard]
        assert orders(url) == 7
    engine.dispose()
    await awaiting.dispose()
