"""What only MySQL and MariaDB can do wrong: servers' settings, tables' texts, definitions that commit by themselves."""

from __future__ import annotations

import contextlib

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine

from outlast import Context, Outlast, RunFailed, StepContext, workflow
from outlast.errors import DatabaseUnavailable, ValueNotStorable
from outlast.model.ids import WorkerId
from outlast.ports.operation import Op, Result, Statement
from outlast.ports.store import Batch, NewRun, NewSignal
from outlast.stores.databases.opening import open_database
from outlast.stores.dialects.mysql import TOPIC_LOCKS, MySQL
from outlast.stores.migrations import v0001_initial_mysql
from outlast.testing.contract.desk import finished, new_run
from support.callers import ROADS, awaiting_engine, blocking_engine, blocking_url
from support.every_statement import EVERY_STATEMENT
from support.probing import Tables, connect_mysql
from tools.mysql import PrivateMySQL


@pytest.mark.parametrize(
    "version, told",
    [
        ("5.7.44-log", "MySQL 5.7.44-log is too old"),
        ("8.0.39", "needs 8.4 or newer"),
        ("8.4.0", None),
        ("9.7.4-2", None),
        ("10.5.29-MariaDB", "needs 10.6 or newer"),
        ("5.5.5-10.5.29-MariaDB-log", "needs 10.6 or newer"),
        ("10.6.20-MariaDB-0+deb12u1", None),
        ("11.8.2-MariaDB", None),
    ],
)
def test_a_server_that_is_too_old_is_refused(version: str, told: str | None) -> None:
    op = MySQL().check_server()
    next(op)

    with contextlib.nullcontext() if told is None else pytest.raises(DatabaseUnavailable, match=told):
        _answered(op, (version, "shop", "STRICT_TRANS_TABLES", "DEFAULT"))


def test_a_server_without_innodb_is_refused() -> None:
    op = MySQL().check_server()
    next(op)

    with pytest.raises(DatabaseUnavailable, match="InnoDB storage engine"):
        _answered(op, ("8.4.0", "shop", "STRICT_TRANS_TABLES", "NO"))


@pytest.mark.parametrize(
    "log_bin, sql_log_bin, form, told",
    [
        ("ON", "ON", "STATEMENT", "Set binlog_format = ROW"),
        ("OFF", "ON", "STATEMENT", None),
        ("ON", "OFF", "STATEMENT", None),
        ("ON", "ON", "MIXED", None),
        ("ON", "ON", "ROW", None),
    ],
)
def test_a_server_whose_log_takes_no_writes_is_refused(
    log_bin: str, sql_log_bin: str, form: str, told: str | None
) -> None:
    op = MySQL().check_server()
    next(op)
    op.send(Result([("8.4.0", "shop", "STRICT_TRANS_TABLES", "DEFAULT", "utf8mb4", "utf8mb4", "utf8mb4")]))

    with contextlib.nullcontext() if told is None else pytest.raises(DatabaseUnavailable, match=told):
        _answered(op, ("binlog_format", form), ("log_bin", log_bin), ("sql_log_bin", sql_log_bin))


def _answered(op: Op[None], *rows: tuple[object, ...]) -> None:
    with contextlib.suppress(StopIteration):
        op.send(Result(rows))


def test_an_engine_whose_connections_are_not_strict_is_refused(mysqlish_url: str) -> None:
    engine = create_engine(
        mysqlish_url.replace("mysql://", "mysql+pymysql://").replace("mariadb://", "mariadb+pymysql://"),
        connect_args={"sql_mode": ""},
    )
    database = open_database(engine)

    with pytest.raises(DatabaseUnavailable, match="not strict"):
        database.check_schema_blocking()
    engine.dispose()


async def test_a_url_without_a_database_is_refused(mysqlish: PrivateMySQL) -> None:
    database = open_database(mysqlish.url())

    with pytest.raises(DatabaseUnavailable, match="names no database"):
        await database.open()
    await database.close()


async def test_a_wrong_password_is_told_at_once(mysqlish_url: str) -> None:
    user, _, rest = mysqlish_url.partition("@")
    database = open_database(f"{user}x@{rest}")

    with pytest.raises(DatabaseUnavailable, match="Access denied"):
        await database.open()
    with pytest.raises(DatabaseUnavailable, match="Access denied"):
        database.migrate_blocking()
    await database.close()
    database.close_blocking()


def test_ids_that_differ_in_case_accents_or_trailing_blanks_are_different(mysqlish: PrivateMySQL) -> None:
    """Whatever the database's own collation says."""
    url = mysqlish.create_database()
    mysqlish.execute(f"alter database {url.rpartition('/')[2]} collate utf8mb4_unicode_ci")
    database = open_database(url)
    database.migrate_blocking()
    names = ["Order-1", "order-1", "e", "é", "ss", "ß", "a", "a ", "I", "\u0131", "\U0001f600"]

    started = database.run_blocking(lambda: database.store.start([new_run(name) for name in names]))

    assert [(run.id, run.created) for run in started] == [(name, True) for name in names]
    assert sorted(row[0] for row in Tables(url)("select id from {runs} where id in %s", tuple(names))) == sorted(names)
    assert Tables(url)("select id from {runs} where id = 'a'") == [("a",)]
    database.close_blocking()
    mysqlish.drop_database(url)


_MATCHING = {
    "runs_are_listed_by_status_workflow_version_and_time",
    "a_lease_that_is_over_is_reaped_and_its_runs_count_a_lapse",
    "a_claim_brings_the_signals_that_the_run_waits_for_by_id",
    "whether_a_flush_was_written_can_be_asked",
    "several_runs_park_in_one_flush_each_with_its_own",
    "a_terminate_replaces_a_cancel_but_not_the_other_way",
}
"""Cases whose statements compare texts, with parameters and across tables."""


def test_statements_work_whatever_collation_and_isolation_are_the_usual_ones(mysqlish: PrivateMySQL) -> None:
    """Of the database when the tables were made, of the database now, and of the application's own connections."""
    url = mysqlish.create_database()
    name = url.rpartition("/")[2]
    mysqlish.execute(f"alter database {name} collate utf8mb4_unicode_ci")
    made = open_database(url)
    made.migrate_blocking()
    made.close_blocking()
    mysqlish.execute(f"alter database {name} character set latin1")
    engine = create_engine(
        blocking_url(url),
        isolation_level="SERIALIZABLE",
        connect_args={"init_command": "set names utf8mb4 collate utf8mb4_general_ci"},
    )
    tables = Tables(url)

    for case in (case for case in EVERY_STATEMENT if case.name in _MATCHING):
        for table in ("runs", "journal", "waits", "signals", "workers"):
            tables(f"delete from {{{table}}}")
        case.check(lambda clock: open_database(engine, clock=clock), "blocking")

    engine.dispose()
    mysqlish.drop_database(url)


@pytest.mark.parametrize("done", range(8))
async def test_a_migration_that_was_cut_short_goes_on(mysqlish_url: str, done: int) -> None:
    with connect_mysql(mysqlish_url) as connection, connection.cursor() as cursor:
        made = [v0001_initial_mysql.bookkeeping("outlast"), *v0001_initial_mysql.statements("outlast")]
        for statement in made[: done + 1]:
            cursor.execute(getattr(statement, "statement", ""))
    database = open_database(mysqlish_url)

    assert await database.migrate() == (1,)

    tables = Tables(mysqlish_url)
    assert tables("select count(*), min(id), max(id) from outlast_locks") == [(TOPIC_LOCKS, 0, TOPIC_LOCKS - 1)]
    assert (await database.run(lambda: database.store.start([new_run("r")])))[0].created
    await database.close()


def test_ids_go_on_beyond_32_bits(mysqlish_url: str) -> None:
    database = open_database(mysqlish_url)
    database.migrate_blocking()
    Tables(mysqlish_url)("alter table {signals} auto_increment = 2147483646")

    sent = database.run_blocking(
        lambda: database.store.send([NewSignal("t", "t", str(number), "null") for number in range(4)])
    )

    assert [one.id for one in sent] == [2147483646 + number for number in range(4)]
    database.close_blocking()


def test_the_lock_of_a_migration_goes_with_its_connection(mysqlish_url: str) -> None:
    database = open_database(mysqlish_url)

    database.migrate_blocking()

    assert Tables(mysqlish_url)("select is_free_lock('outlast:outlast:migrations')") == [(1,)]
    database.close_blocking()


SIZES = ((900_000, False), (2_000_000, True))
REFUSED = r"The input of 2,000,002 bytes.*max_allowed_packet = 1,048,576 bytes.*raise max_allowed_packet"


def _of_size(size: int) -> NewRun:
    return new_run(f"r{size}", input='"' + "x" * size + '"')


@pytest.mark.parametrize("road", ["of ours", "Engine", "AsyncEngine"])
async def test_an_input_that_the_server_takes_not_at_once_is_refused_on_every_road(frugal_url: str, road: str) -> None:
    """The server would cut the connection, which looks as if it were away: nobody would hear of it for long."""
    target = {"of ours": str, "Engine": blocking_engine, "AsyncEngine": awaiting_engine}[road](frugal_url)
    database = open_database(target)
    await database.migrate()

    for size, is_refused in SIZES:
        with pytest.raises(ValueNotStorable, match=REFUSED) if is_refused else contextlib.nullcontext():
            await database.run(lambda size=size: database.store.start([_of_size(size)]))
        with pytest.raises(ValueNotStorable, match=REFUSED) if is_refused else contextlib.nullcontext():
            database.run_blocking(lambda size=size: database.store.start([_of_size(size)]))
    database.close_blocking()
    await database.close()
    if isinstance(target, AsyncEngine):
        await target.dispose()


@pytest.mark.parametrize("road", ["PyMySQL", "asyncmy", "Session"])
async def test_an_input_that_the_server_takes_not_at_once_is_refused_in_a_callers_transaction(
    frugal_url: str, road: str
) -> None:
    database = open_database(frugal_url)
    await database.migrate()

    async with ROADS[road](frugal_url) as caller, caller.transaction() as tx:
        await caller.insert(tx, "o-1")
        for size, is_refused in SIZES:
            with pytest.raises(ValueNotStorable, match=REFUSED) if is_refused else contextlib.nullcontext():
                await database.join(tx, lambda size=size: database.store.start([_of_size(size)]))

    assert Tables(frugal_url)("select id from orders") == [("o-1",)]
    assert Tables(frugal_url)("select id from {runs}") == [("r900000",)]
    await database.close()


async def test_a_result_that_the_server_takes_not_at_once_fails_its_step_for_good(frugal_url: str) -> None:
    """As one does that cannot be written as text: another attempt would give the same."""
    attempts: list[str] = []

    @workflow("big")
    async def big(ctx: Context, way: str) -> str:
        def make(s: StepContext) -> str:
            attempts.append(way)
            return "x" * 2_000_000

        if way == "step":
            await ctx.step("make", make)
        if way == "transaction":
            await ctx.transaction("make", lambda tx, s: make(s))
        return "x" * 2_000_000

    async with Outlast(frugal_url, workflows=[big]) as app:
        for way in ("step", "transaction", "output"):
            with pytest.raises(RunFailed, match=r"cannot be stored: .* max_allowed_packet = 1,048,576 .* Store less"):
                await app.start_and_wait(big, way, id=way, wait="20s")
    assert attempts == ["step", "transaction"]


def test_a_server_that_takes_too_little_at_once_is_refused() -> None:
    op = MySQL().most_at_once()
    next(op)

    with pytest.raises(DatabaseUnavailable, match="at most max_allowed_packet = 65,536 bytes"):
        op.send(Result([(65_536,)]))


async def test_what_many_runs_write_together_is_sent_in_parts_that_the_server_takes(frugal_url: str) -> None:
    database = open_database(frugal_url)
    await database.migrate()
    lease = await database.run(lambda: database.store.register(WorkerId("w"), lease_us=10**9, host=""))
    output = '"' + "\U0001f600" * 90_000 + '"'
    names = [f"r{number}" for number in range(12)]
    ends = tuple(finished(name, output=output) for name in names)

    await database.run(lambda: database.store.flush(lease, Batch(starts=tuple(new_run(name) for name in names))))
    await database.run(lambda: database.store.flush(lease, Batch(writes=ends)))

    assert Tables(frugal_url)("select count(*) from {runs} where output = %s", output) == [(12,)]
    await database.close()


async def test_a_first_statement_that_fails_leaves_no_transaction_and_the_connection_in_order(
    mysqlish_url: str,
) -> None:
    """It travels with what begins the transaction, so its answer is the second of two."""
    database = open_database(mysqlish_url)
    await database.migrate()

    def failing() -> Op[None]:
        yield Statement(text("select * from nowhere"), span="write")

    def asking() -> Op[int]:
        found = yield Statement(text("select connection_id()"), span="alone")
        number: int = found.rows[0][0]
        return number

    before = await database.run(asking)
    with pytest.raises(Exception, match="nowhere"):
        await database.run(failing)

    assert await database.run(asking) == before
    assert (await database.run(lambda: database.store.start([new_run("r")])))[0].created
    await database.close()
