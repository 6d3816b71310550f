"""What the verbs of a Django project tell the worker of their process and when, and what joins when it is passed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from outlast import SchemaBehind
from outlast.integrations.django import APART, app
from support.fix_django import Site


class _Local:
    """A worker on another loop, which notes what it is told."""

    loop = None

    def __init__(self) -> None:
        self.worker = self
        self.told: list[str] = []

    def call(self, action: Callable[[], object]) -> None:
        action()

    def wake(self) -> None:
        self.told.append("wake")

    def stop_requested(self, run_id: str) -> None:
        self.told.append(f"stop {run_id}")


@pytest.fixture
def local(django_outlast: object, monkeypatch: pytest.MonkeyPatch) -> _Local:
    made = _Local()
    app.blocking.list()
    monkeypatch.setattr(app._access, "local", made)
    return made


def test_a_cancel_is_told_when_its_block_is_committed(local: _Local) -> None:
    from support.django_orders.workflows import wait

    app.blocking.start(wait, id="w-1")
    local.told.clear()

    with transaction.atomic():
        app.blocking.cancel("w-1")
        assert local.told == []

    assert local.told == ["stop w-1", "wake"]


def test_a_verb_apart_from_its_block_is_told_at_once(local: _Local) -> None:
    from support.django_orders.workflows import wait

    app.blocking.start(wait, id="w-1")
    local.told.clear()

    with transaction.atomic():
        app.blocking.cancel("w-1", tx=APART)
        assert local.told == ["stop w-1", "wake"]


def test_an_awaited_start_is_told_at_once(local: _Local) -> None:
    from support.django_orders.workflows import fulfil

    async def view() -> None:
        await app.start(fulfil, "o-1", id="o-1")
        await app.start(fulfil, "o-2", id="o-2", tx=APART)

    async_to_sync(view)()

    assert local.told == ["wake", "wake"]


def test_an_awaited_verb_joins_the_session_that_it_is_passed_and_is_told_with_its_commit(
    local: _Local, django_site: Site
) -> None:
    from support.django_orders.workflows import fulfil

    url = django_site.url.replace("sqlite:", "sqlite+aiosqlite:").replace("postgresql:", "postgresql+asyncpg:")

    async def view() -> None:
        engine = create_async_engine(url)
        async with AsyncSession(engine) as session:
            await app.start(fulfil, "o-1", id="o-1", tx=session)
            await session.rollback()
            await app.start(fulfil, "o-2", id="o-2", tx=session)
            assert local.told == []
            await session.commit()
        await engine.dispose()

    async_to_sync(view)()

    assert local.told == ["wake"]
    assert [run.id for run in app.blocking.list().runs] == ["o-2"]


@pytest.mark.usefixtures("django_site")
def test_an_awaited_verb_says_what_brings_missing_tables() -> None:
    async def view() -> None:
        await app.get("o-1")

    with pytest.raises(SchemaBehind) as caught:
        async_to_sync(view)()

    assert str(caught.value).endswith(
        "Run `python manage.py migrate`, or `python manage.py outlast_migrate`, in your deploy step."
    )
