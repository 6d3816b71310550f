"""Flask: the blocking verbs in views, the worker on a thread, and what a fork leaves of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from flask import Flask, abort, current_app, g
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import String, create_engine, select, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from outlast import Context, DefinitionError, InvalidArgument, Outlast, WorkerOptions, step, workflow
from outlast.integrations.flask import FlaskOutlast, in_app_context
from outlast.integrations.threaded import WorkerThread
from support.callers import blocking_url
from support.probing import Tables, until
from support.processes import StartProcess


@step
def look_at_the_application(name: str) -> str:
    return f"{current_app.config['GREETING']}, {name}!"


@step
@in_app_context
def keep(name: str) -> list[str]:
    """What it keeps in `g` is gone when the next call begins."""
    g.setdefault("names", []).append(name)
    names: list[str] = g.names
    return names


@step
@in_app_context
async def keep_awaiting(name: str) -> list[str]:
    g.setdefault("names", []).append(name)
    await asyncio.sleep(0)
    names: list[str] = g.names
    return names


@workflow("hello")
async def hello(ctx: Context, name: str) -> str:
    return await look_at_the_application(name)


@workflow("keeping")
async def keeping(ctx: Context) -> list[list[str]]:
    return [await keep("Ada"), await keep.named("again")("Bob"), await keep_awaiting("Cem")]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    status: Mapped[str] = mapped_column(String(40))


_ship: list[Callable[[str], Awaitable[None]]] = []
"""The step of the test that runs: its session is of that test's own."""


@workflow("shipping")
async def shipping(ctx: Context, order: str) -> None:
    await _ship[0](order)


MakeExtension = Callable[[Callable[[Flask], Outlast], Literal["process", "thread"]], FlaskOutlast]


@pytest.fixture
def extension() -> Iterator[MakeExtension]:
    """Makes extensions. What they have open in this process is closed when the test has ended, also when it has failed:
    applications are not told, and a worker that was left would go on beside the tests of other files."""
    used: list[tuple[FlaskOutlast, Flask]] = []

    def extended(make: Callable[[Flask], Outlast], worker: Literal["process", "thread"]) -> FlaskOutlast:
        def noted(flask: Flask) -> Outlast:
            used.append((made, flask))
            return make(flask)

        made = FlaskOutlast(noted, worker=worker)
        return made

    yield extended
    for outlast, flask in used:
        stop(outlast, flask)
    assert worker_threads() == []


@pytest.fixture
def outlast(extension: MakeExtension) -> FlaskOutlast:
    """The extension with a worker thread, as an application's module would make it."""
    return extension(lambda flask: Outlast(flask.config["URL"], workflows=[hello, keeping]), "thread")


def application(outlast: FlaskOutlast, url: str, greeting: str = "Hello") -> Flask:
    flask = Flask(__name__)
    flask.config.update(URL=url, GREETING=greeting)
    outlast.init_app(flask)

    @flask.post("/greetings/<name>")
    def greet(name: str) -> dict[str, Any]:
        return {"greeting": outlast.blocking.start_and_wait(hello, name, wait="20s")}

    @flask.get("/runs")
    def runs() -> list[str]:
        return [run.id for run in outlast.blocking.list().runs]

    return flask


def stop(outlast: FlaskOutlast, flask: Flask) -> None:
    with flask.app_context():
        outlast.close()


def worker_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "outlast-worker"]


def test_a_view_starts_a_run_which_the_thread_executes_in_the_applications_context(
    outlast: FlaskOutlast, database_url: str
) -> None:
    flask = application(outlast, database_url)

    answer = flask.test_client().post("/greetings/Ada").get_json()

    assert answer == {"greeting": "Hello, Ada!"}


def test_the_applications_of_a_factory_have_nothing_in_common(outlast: FlaskOutlast) -> None:
    one, other = application(outlast, "sqlite://"), application(outlast, "sqlite://", greeting="Salve")

    assert other.test_client().post("/greetings/Bob").get_json() == {"greeting": "Salve, Bob!"}
    assert one.test_client().get("/runs").get_json() == []


def test_making_an_application_connects_to_nothing_and_starts_no_thread(outlast: FlaskOutlast, tmp_path: Path) -> None:
    application(outlast, f"sqlite:///{tmp_path}/missing/folder/shop.db")

    assert worker_threads() == []


@pytest.mark.every_database
def test_requests_at_the_same_time_start_one_worker(outlast: FlaskOutlast, shared_database_url: str) -> None:
    flask = application(outlast, shared_database_url)
    with ThreadPoolExecutor(8) as requests:
        answers = list(requests.map(lambda n: flask.test_client().post(f"/greetings/{n}").status_code, range(16)))

    assert answers == [200] * 16
    assert len(worker_threads()) == 1
    assert len(Tables(shared_database_url)("select id from {workers}")) == 1


@pytest.mark.every_database
def test_a_worker_that_was_stopped_gives_its_lease_back_and_begins_again_with_the_next_request(
    outlast: FlaskOutlast, shared_database_url: str
) -> None:
    flask = application(outlast, shared_database_url)
    flask.test_client().post("/greetings/Ada")
    stop(outlast, flask)
    assert Tables(shared_database_url)("select id from {workers}") == []

    assert flask.test_client().post("/greetings/Bob").get_json() == {"greeting": "Hello, Bob!"}


def test_a_worker_that_could_not_begin_tries_again_with_a_later_request(
    outlast: FlaskOutlast, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flask = application(outlast, f"sqlite:///{tmp_path}/later/shop.db")
    with flask.app_context():
        outlast.start_worker()
    until(lambda: not worker_threads(), "the thread to end")
    assert "has ended" in caplog.text

    (tmp_path / "later").mkdir()

    assert flask.test_client().post("/greetings/Ada").get_json() == {"greeting": "Hello, Ada!"}


def test_a_worker_that_is_told_to_stop_before_it_has_begun_does_not_begin(tmp_path: Path) -> None:
    app = Outlast(f"sqlite:///{tmp_path}/shop.db", workflows=[hello])
    is_made = threading.Event()

    @contextmanager
    def told_first() -> Iterator[None]:
        is_made.wait()
        with suppress(RuntimeError):  # it cannot wait for its own end
            worker.stop()
        yield

    worker = WorkerThread(app, within=told_first)
    is_made.set()

    until(lambda: not worker.is_alive, "the thread to end")
    assert list(tmp_path.iterdir()) == []
    worker.stop()


def test_a_thread_ends_though_what_it_opens_swallows_being_told_to() -> None:
    """As asyncio.wait_for may before Python 3.12: a worker that was told to stop while it connected went on for ever."""
    is_opening, is_closed = threading.Event(), threading.Event()

    class Deaf(Outlast):
        @asynccontextmanager
        async def working(self, options: WorkerOptions | None = None) -> AsyncGenerator[Deaf, None]:
            is_opening.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            yield self
            is_closed.set()

    worker = WorkerThread(Deaf("sqlite://", workflows=[]))
    assert is_opening.wait(20)
    worker.stop()
    assert is_closed.is_set()


def test_a_steps_context_is_its_own(outlast: FlaskOutlast) -> None:
    flask = application(outlast, "sqlite://")
    with flask.app_context():
        outlast.start_worker()

        assert outlast.blocking.start_and_wait(keeping, wait="20s") == [["Ada"], ["Bob"], ["Cem"]]


async def test_a_function_with_a_context_of_its_own_is_called_and_named_as_it_was() -> None:
    @in_app_context
    def plain(one: str, *, other: str) -> tuple[str, str]:
        """Say both."""
        return one, other

    @in_app_context
    async def awaiting(one: str, *, other: str) -> tuple[str, str]:
        """Say both."""
        return one, other

    with Flask("bare").app_context():
        assert plain("a", other="b") == await awaiting("a", other="b") == ("a", "b")

    assert plain.__doc__ == awaiting.__doc__ == "Say both."
    assert [one.name for one in (keep, keep_awaiting)] == ["keep", "keep_awaiting"]


def test_a_process_that_only_serves_starts_no_thread(extension: MakeExtension, tmp_path: Path) -> None:
    outlast = extension(lambda flask: Outlast(flask.config["URL"], workflows=[hello]), "process")
    flask = application(outlast, f"sqlite:///{tmp_path}/shop.db")

    assert flask.test_client().get("/runs").get_json() == []
    assert worker_threads() == []


def test_a_run_and_the_views_own_rows_commit_together(extension: MakeExtension, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    engine = create_engine(url)
    outlast = extension(lambda flask: Outlast(engine, workflows=[hello]), "process")
    flask = application(outlast, url)
    seen = []
    with flask.app_context():
        outlast.app.blocking.migrate()
        for fails in (True, False):
            with Session(engine) as session:
                session.execute(text("create table if not exists orders (id text)"))
                session.execute(text("insert into orders values ('o-1')"))
                outlast.blocking.start(hello, "Ada", id="order-o-1", tx=session)
                session.rollback() if fails else session.commit()
            seen.append(len(outlast.blocking.list().runs))

    assert seen == [0, 1]
    engine.dispose()


@pytest.mark.every_database
def test_the_session_of_flask_sqlalchemy_joins_in_views_and_works_in_steps(
    extension: MakeExtension, shared_database_url: str
) -> None:
    db = SQLAlchemy(model_class=Base)
    outlast = extension(lambda flask: Outlast(db.engine, workflows=[shipping]), "thread")
    flask = Flask(__name__)
    flask.config["SQLALCHEMY_DATABASE_URI"] = blocking_url(shared_database_url)
    db.init_app(flask)
    outlast.init_app(flask)

    @step(name="ship")
    @in_app_context
    def ship(order: str) -> None:
        db.session.execute(update(Order).where(Order.id == order).values(status="shipped"))
        db.session.commit()

    @flask.post("/orders/<order>")
    def place(order: str) -> str:
        db.session.add(Order(id=order, status="placed"))
        outlast.blocking.start(shipping, order, id=order, tx=db.session)
        if order == "refused":
            abort(409)
        db.session.commit()
        return order

    _ship[:] = [ship]
    with flask.app_context():
        db.create_all()
        outlast.blocking.migrate()  # else the first request and the worker's thread make the tables at the same time
    client = flask.test_client()
    assert [client.post(f"/orders/{order}").status_code for order in ("o-1", "refused", "o-2")] == [200, 409, 200]
    with flask.app_context():
        for order in ("o-1", "o-2"):
            outlast.blocking.result(order, timeout="20s")
        assert outlast.blocking.get("refused") is None
        found = db.session.scalars(select(Order).order_by(Order.id)).all()
        assert [(order.id, order.status) for order in found] == [("o-1", "shipped"), ("o-2", "shipped")]
        outlast.close()
        db.session.remove()
        db.engine.dispose()


def test_the_commands_see_to_the_tables(extension: MakeExtension, tmp_path: Path) -> None:
    outlast = extension(lambda flask: Outlast(flask.config["URL"], workflows=[hello]), "process")
    flask = application(outlast, f"sqlite:///{tmp_path}/shop.db")
    commands = [
        flask.test_cli_runner().invoke(args=["outlast", name]) for name in ("status", "migrate", "migrate", "status")
    ]

    assert [done.exit_code for done in commands] == [3, 0, 0, 0]
    assert [done.output.strip() for done in commands] == [
        "The tables are at version none; this code needs version 1.\nBring them up to date with: flask outlast migrate",
        "Applied 1; the tables are up to date.",
        "The tables were up to date already.",
        "The tables are at version 1; this code needs version 1.",
    ]


def test_what_is_wrong_with_an_application_is_said_in_one_line_by_its_commands(extension: MakeExtension) -> None:
    def twice(flask: Flask) -> Outlast:
        return Outlast("sqlite://", workflows=[hello, hello])

    for name in ("worker", "migrate", "status"):
        flask = application(extension(twice, "process"), "sqlite://")
        done = flask.test_cli_runner().invoke(args=["outlast", name])

        assert done.exit_code == 1
        assert done.output.startswith("Error: DefinitionError: ")


def test_a_function_that_makes_no_outlast_is_told(extension: MakeExtension) -> None:
    def forgets_to_return(flask: Flask) -> Any:
        Outlast("sqlite://")

    outlast = extension(forgets_to_return, "process")
    flask = application(outlast, "sqlite://")

    with flask.app_context(), pytest.raises(DefinitionError, match="it returned None"):
        _ = outlast.blocking


def test_an_application_without_the_extension_is_told_what_is_missing() -> None:
    outlast = FlaskOutlast(lambda flask: Outlast("sqlite://"))

    with Flask("bare").app_context(), pytest.raises(DefinitionError, match=r"'bare' .* init_app"):
        _ = outlast.blocking


def test_an_application_is_given_one_extension_of_a_name() -> None:
    flask = Flask(__name__)
    outlast = FlaskOutlast(lambda flask: Outlast("sqlite://"), flask)
    billing = FlaskOutlast(lambda flask: Outlast("sqlite://"), flask, name="billing")

    with pytest.raises(DefinitionError, match="init_app once"):
        outlast.init_app(flask)
    with flask.app_context():
        assert outlast.app is outlast.app is not billing.app


def test_a_misspelled_place_for_the_worker_is_refused() -> None:
    with pytest.raises(InvalidArgument, match='"process" or "thread"'):
        FlaskOutlast(lambda flask: Outlast("sqlite://"), worker="threads")  # type: ignore[arg-type]


@pytest.mark.time_limit(120)
def test_a_child_of_a_fork_has_connections_and_a_worker_of_its_own(
    start_process: StartProcess, shared_database_url: str
) -> None:
    """A server that uses the application, worker and all, before it forks the processes that serve."""
    program = start_process(str(Path(__file__).parent / "flask_forking.py"), shared_database_url)

    assert program.wait(timeout=100) == 0, program.output
    assert program.output.splitlines()[-1] == "parent and 2 children: 303 greetings by 3 workers"
