"""Flask: an extension with the blocking verbs, and a worker in a process of its own or on a thread.

    outlast = FlaskOutlast(lambda flask: Outlast(flask.config["DATABASE_URL"], workflows=[fulfil]))

    def create_app() -> Flask:
        flask = Flask(__name__)
        outlast.init_app(flask)
        return flask

Servers fork: gunicorn after it has loaded the application, werkzeug's reloader by starting it twice. So each process makes
its own app when it first needs one, and a thread begins with the first request, which the process that only watches over
the others never gets. Held by tests/integration/test_flask.py and tests/e2e/test_flask_servers.py.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from typing import Any, Final, Literal, ParamSpec, TypeVar, cast

from outlast.app import Outlast
from outlast.client.blocking import BlockingClient
from outlast.client.operating import BEHIND, in_words, migrated
from outlast.errors import DefinitionError, InvalidArgument, OutlastError
from outlast.integrations import extras
from outlast.integrations.threaded import WorkerThread
from outlast.serving import work

try:
    import click
    from flask import Flask, current_app
    from flask.cli import AppGroup
except ModuleNotFoundError as _error:
    raise extras.missing("flask", _error) from _error


P = ParamSpec("P")
T = TypeVar("T")

NAME: Final = "outlast"


class FlaskOutlast:
    """The extension: `outlast.blocking.start(...)` in a view, on the database of the application that serves the request.

    make: returns the `Outlast` of an application; called once in each process that uses it, in an application context.
    flask: an application to be added to at once; else `init_app` does that, for one application or several.
    worker: "process" (the default): runs execute in `flask outlast worker`, so that restarting a web server interrupts
        no step. "thread": this process executes them too, on a thread that begins with its first request.
    name: that of the command, and of one extension where an application has several. Default "outlast".

    Versionadded: 0.1
    """

    def __init__(
        self,
        make: Callable[[Flask], Outlast],
        flask: Flask | None = None,
        *,
        worker: Literal["process", "thread"] = "process",
        name: str = NAME,
    ) -> None:
        if worker not in {"process", "thread"}:
            raise InvalidArgument(f'FlaskOutlast(worker=...) is "process" or "thread"; {worker!r} is not.')
        self._make = make
        self._on_thread = worker == "thread"
        self._name = name
        if flask is not None:
            self.init_app(flask)

    def init_app(self, flask: Flask) -> None:
        """Add the extension to an application, with the commands `flask outlast worker`, `migrate` and `status`.

        Connects to nothing. Raises DefinitionError when the application has an extension of this name.
        """
        if self._name in flask.extensions:
            raise DefinitionError(
                f"This application has an extension {self._name!r} already. Call init_app once; give a second database "
                'another name: FlaskOutlast(..., name="billing").'
            )
        place = flask.extensions[self._name] = _Place(flask, self._make)
        _places.add(place)
        flask.cli.add_command(_commands(self._name, place))
        if self._on_thread:
            flask.before_request(place.start_worker)

    @property
    def app(self) -> Outlast:
        """The current application's `Outlast` in this process; views use `blocking`."""
        return self._place.app

    @property
    def blocking(self) -> BlockingClient:
        """The verbs, for views, commands and scripts, in an application context."""
        return self._place.app.blocking

    def start_worker(self) -> None:
        """Have the current application's worker thread begin now, and not with the first request. May be called again.

        For servers that tell each of their processes when it begins, such as gunicorn by `post_worker_init`. Never call it
        where the application is made: a process that forks afterwards, or that only watches over another, would execute runs
        too.
        """
        self._place.start_worker()

    def close(self) -> None:
        """End the current application's worker thread and connections in this process; its runs go on elsewhere.

        For tests. A process that exits hands its runs back by itself, and whatever is used later is made anew.
        """
        self._place.close()

    @property
    def _place(self) -> _Place:
        place: object = current_app.extensions.get(self._name)
        if not isinstance(place, _Place):
            raise DefinitionError(
                f"The application {current_app.name!r} has no extension {self._name!r}: call init_app(application) where it "
                "is made."
            )
        return place


def in_app_context(function: Callable[P, T]) -> Callable[P, T]:
    """Give each call of a step's function an application context of its own, so that sessions bound to one end with it.

    Steps see the application of their worker in any case (`current_app`, its config), but in one context that they share,
    and `db.session` of Flask-SQLAlchemy would be one session for all of them.

        @step
        @in_app_context
        def ship(order_id: str) -> None:
            db.session.get(Order, order_id).status = "shipped"
            db.session.commit()

    Versionadded: 0.1
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 -- whatever the function takes and returns
            with current_app.app_context():
                return await function(*args, **kwargs)

        return cast("Callable[P, T]", awaited)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        with current_app.app_context():
            return function(*args, **kwargs)

    return called


class _Place:
    """What one application has in this process: its `Outlast`, and the thread that works for it."""

    def __init__(self, flask: Flask, make: Callable[[Flask], Outlast]) -> None:
        self._flask = flask
        self._make = make
        self._lock = threading.Lock()
        self._app: Outlast | None = None
        self._thread: WorkerThread | None = None

    @property
    def app(self) -> Outlast:
        with self._lock:
            return self._made()

    def start_worker(self) -> None:
        """Start the thread, unless it lives. One that could not begin (its database was away) has another try."""
        thread = self._thread
        if thread is not None and thread.is_alive:
            return
        with self._lock:
            if self._thread is not None and not self._thread.is_alive:
                self._close()
            if self._thread is None:
                self._thread = WorkerThread(self._made(), within=self._flask.app_context)

    def close(self) -> None:
        with self._lock:
            self._close()

    def forked(self) -> None:
        """Begin anew, in the child of a fork: the threads and the event loop of the parent are not here, and its connections
        are not ours to use, nor to close. Whoever held the lock is not here either."""
        if self._app is not None:
            _of_parents.append(self._app)
        self._lock, self._app, self._thread = threading.Lock(), None, None

    def _close(self) -> None:
        # An app that had a worker stays closed for whoever still has it, so the next one is another.
        thread, app, self._thread, self._app = self._thread, self._app, None, None
        if thread is not None:
            thread.stop()
        if app is not None:
            app.blocking.close()

    def _made(self) -> Outlast:
        if self._app is None:
            with self._flask.app_context():
                made = self._make(self._flask)
            if not isinstance(made, Outlast):  # pyright: ignore[reportUnnecessaryIsInstance]  not every caller checks types
                raise DefinitionError(
                    f"FlaskOutlast is given a function that returns the application's Outlast(...); it returned {made!r}."
                )
            self._app = made
        return self._app


_places: Final = weakref.WeakSet[_Place]()
_of_parents: Final[list[Outlast]] = []
"""Kept, so that nothing closes their connections in a child."""


def _begin_anew() -> None:
    for place in list(_places):
        place.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _commands(name: str, place: _Place) -> AppGroup:
    group = AppGroup(name, help="Durable workflows.")

    @group.command("worker")
    def worker() -> None:
        """Execute runs in this process until SIGTERM or Ctrl-C."""
        # Nothing happens where the application has set logging up itself.
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        with _told():
            code = asyncio.run(work(place.app, click.echo))
        raise SystemExit(code)

    @group.command("migrate")
    def migrate() -> None:
        """Bring the tables up to date, once, however many run it at the same time."""
        with _told(), closing(place.app.blocking) as client:
            click.echo(migrated(client.migrate()))

    @group.command("status")
    def status() -> None:
        """Compare the tables with this code. Exits with 3 when they are missing or older."""
        with _told(), closing(place.app.blocking) as client:
            found, needed = client.schema_version()
        click.echo(f"The tables are at version {found or 'none'}; this code needs version {needed}.")
        if found < needed:
            click.echo(f"Bring them up to date with: flask {name} migrate")
            raise SystemExit(BEHIND)

    # Held by the group.
    del worker, migrate, status
    return group


@contextmanager
def _told() -> Generator[None, None, None]:
    """Say what is wrong in one line where a traceback would tell no more."""
    try:
        yield
    except OutlastError as error:
        raise click.ClickException(in_words(error)) from error
