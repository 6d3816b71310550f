"""The pytest plugin `outlast`, in projects that run their tests in different ways."""

from __future__ import annotations

from typing import Final

import pytest

import outlast_pytest

pytest_plugins = "pytester"

OTHERS: Final = ("xdist", "xdist.looponfail", "randomly", "faker", "hypothesispytest")
"""What else is installed here and has no part in it; loading it takes most of the time."""
LOOP_SCOPE: Final = ("-o", "asyncio_default_fixture_loop_scope=function")
ALONE: Final = [argument for plugin in OTHERS for argument in ("-p", f"no:{plugin}")]

WORKFLOWS: Final = """
    from outlast import Context, step, workflow

    sent = []

    @step
    async def send(user: str) -> None:
        sent.append(user)

    @workflow("reminder")
    async def reminder(ctx: Context, user: str) -> str:
        await ctx.sleep("a-month", "30d")
        await send(user)
        return f"reminded {user}"
"""
AWAITING: Final = """
    import pytest
    from reminders import reminder

    pytestmark = {marks}

    async def test_a_month_passes(outlast_app, manual_clock):
        run = await outlast_app.start(reminder, "ada")
        await outlast_app.drain()
        assert (await outlast_app.get(run.id)).status == "suspended"
        manual_clock.advance("30d")
        await outlast_app.drain()
        assert await run.result() == "reminded ada"

    async def test_each_test_has_a_database_of_its_own(outlast_app):
        assert (await outlast_app.list()).runs == ()
        async with outlast_app:
            await outlast_app.start(reminder, "ada")
"""
PLAIN: Final = """
    import asyncio
    import pytest
    from reminders import reminder

    pytestmark = pytest.mark.outlast(workflows=[reminder])

    def test_a_month_passes(outlast_app, outlast_drain, manual_clock):
        run = outlast_app.blocking.start(reminder, "ada")
        assert outlast_drain() == 1
        manual_clock.advance("30d")
        outlast_drain()
        assert run.result() == "reminded ada"

    def test_each_test_has_a_database_of_its_own(outlast_app):
        assert outlast_app.blocking.list().runs == ()

    def test_the_current_loop_is_left_alone(outlast_app, outlast_drain):
        mine = asyncio.new_event_loop()
        asyncio.set_event_loop(mine)
        outlast_app.blocking.start(reminder, "ada")
        outlast_drain()
        assert asyncio.get_event_loop() is mine
        asyncio.set_event_loop(None)
        mine.close()
"""


def passes(pytester: pytest.Pytester, *arguments: str, passed: int) -> None:
    """What is left open, a thread or a connection, fails these runs too: every warning is an error."""
    pytester.makepyfile(reminders=WORKFLOWS)
    result = pytester.runpytest_subprocess(*ALONE, "-W", "error", "--strict-markers", *arguments)
    result.assert_outcomes(passed=passed)


@pytest.mark.parametrize(
    "marks, arguments",
    [
        ("[pytest.mark.asyncio]", (*LOOP_SCOPE, "-o", "asyncio_mode=strict", "-p", "no:anyio")),
        ("[]", (*LOOP_SCOPE, "-o", "asyncio_mode=auto", "-p", "no:anyio")),
        ("[pytest.mark.asyncio(loop_scope='module')]", (*LOOP_SCOPE, "-o", "asyncio_mode=strict")),
        ("[pytest.mark.anyio]", ("-p", "no:asyncio")),
    ],
    ids=["pytest-asyncio", "pytest-asyncio, auto", "pytest-asyncio, one loop", "anyio"],
)
def test_an_awaiting_test_drains_its_app_under_every_plugin(
    pytester: pytest.Pytester, marks: str, arguments: tuple[str, ...]
) -> None:
    pytester.makeconftest(
        "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
        "\n@pytest.fixture\ndef outlast_workflows():\n    from reminders import reminder\n    return [reminder]\n"
    )
    pytester.makepyfile(AWAITING.replace("{marks}", marks))

    passes(pytester, *arguments, passed=2)


def test_a_plain_test_needs_no_other_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PLAIN)

    passes(pytester, "-p", "no:asyncio", "-p", "no:anyio", passed=3)


def test_a_plain_test_and_an_awaiting_one_stand_side_by_side(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_plain=PLAIN,
        test_awaiting=AWAITING.replace("{marks}", "[pytest.mark.asyncio, pytest.mark.outlast(workflows=[reminder])]"),
    )

    passes(pytester, *LOOP_SCOPE, passed=5)


def test_the_app_takes_options_such_as_transactions_that_are_awaited(pytester: pytest.Pytester) -> None:
    """A workflow with an awaited transactional step could not be tested with the fixture at all."""
    pytester.makepyfile(
        """
        import pytest
        from outlast import Context, Outlast, transactional_step, workflow
        from sqlalchemy import NullPool, text
        from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

        @transactional_step
        async def count(session: AsyncSession) -> int:
            return (await session.execute(text("select count(*) from outlast_runs"))).scalar_one()

        @workflow("counting")
        async def counting(ctx: Context) -> int:
            return await count()

        pytestmark = [pytest.mark.asyncio, pytest.mark.outlast(workflows=[counting])]

        @pytest.fixture
        def outlast_options(tmp_path):
            engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/test.db", poolclass=NullPool)
            return {"database": engine, "transactions": async_sessionmaker(engine)}

        async def test_one(outlast_app):
            run = await outlast_app.start(counting)
            await outlast_app.drain()
            assert await run.result() == 1
        """
    )

    passes(pytester, *LOOP_SCOPE, passed=1)


def test_the_app_has_no_worker_and_is_closed_after_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest
        from outlast import AppClosed
        from reminders import reminder

        apps = []

        @pytest.mark.outlast(workflows=[reminder])
        def test_of_an_app(outlast_app):
            async def main():
                async with outlast_app:
                    run = await outlast_app.start(reminder, "ada")
                    return (await outlast_app.get(run.id)).status
            apps.append(outlast_app)
            assert outlast_app.blocking.list().runs == ()
            assert asyncio.run(main()) == "pending"

        @pytest.mark.outlast(workflows=[reminder])
        def test_of_another_app(outlast_app):
            apps.append(outlast_app)
            assert outlast_app.blocking.list().runs == ()

        def test_after_both():
            for app in apps:
                with pytest.raises(AppClosed):
                    app.blocking.list()
        """
    )

    passes(pytester, "-p", "no:asyncio", "-p", "no:anyio", passed=3)


def test_the_nearest_marker_counts(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from outlast import Context, UnknownWorkflow, workflow
        from reminders import reminder

        @workflow("other")
        async def other(ctx: Context) -> None: ...

        pytestmark = pytest.mark.outlast(workflows=[reminder])

        @pytest.mark.outlast(workflows=[other])
        def test_its_own(outlast_app):
            outlast_app.blocking.start(other)
            with pytest.raises(UnknownWorkflow):
                outlast_app.blocking.start(reminder, "ada")
        """
    )

    passes(pytester, "-p", "no:asyncio", "-p", "no:anyio", passed=1)


def test_a_marker_that_is_used_in_another_way_says_how_it_is_meant(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.outlast("reminder")
        def test_one(outlast_app): ...

        @pytest.mark.outlast("reminder", workflows=[])
        def test_two(outlast_app): ...

        @pytest.mark.outlast(workflow=[])
        def test_three(outlast_app): ...
        """
    )

    result = pytester.runpytest_subprocess(*ALONE, "-p", "no:asyncio", "-p", "no:anyio")

    result.assert_outcomes(errors=3)
    said = "E * takes one argument by its name: pytest.mark.outlast(workflows=[[]...])."
    result.stdout.fnmatch_lines([said] * 3)


def test_draining_inside_of_a_loop_says_what_to_do(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest
        from outlast import WrongColour

        def test_one(outlast_drain):
            async def main():
                with pytest.raises(WrongColour, match="^outlast_drain.. was called .*await app.drain"):
                    outlast_drain()
            asyncio.run(main())
        """
    )

    passes(pytester, "-p", "no:asyncio", "-p", "no:anyio", passed=1)


async def test_closing_beside_a_loop_that_runs_tells_what_went_wrong() -> None:
    """It was printed by the thread, and what the test saw was an IndexError."""

    async def close() -> str:
        return "closed"

    async def fail() -> None:
        raise LookupError("of the database")

    assert outlast_pytest._run(close) == "closed"
    with pytest.raises(LookupError, match="of the database"):
        outlast_pytest._run(fail)


def test_a_project_that_uses_none_of_it_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_of_something_else(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("outlast")
            assert [name for name in sys.modules if name.split(".")[0] in ("outlast", "sqlalchemy", "msgspec")] == []
        """
    )

    result = pytester.runpytest_subprocess(*ALONE, "-p", "no:asyncio", "-p", "no:anyio")

    result.assert_outcomes(passed=1)
