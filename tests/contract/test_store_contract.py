"""Our stores pass the suite that every store passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from outlast.ports.clock import Clock
from outlast.stores.databases.database import SqlDatabase
from outlast.stores.databases.opening import open_database
from outlast.testing.contract.desk import Colour
from outlast.testing.store_contract import Case, store_contract

# Each of them makes statements that no other makes, so together they send every statement there is.
OVER_ENGINES = (
    "an_id_that_is_taken_is_left_as_it_is",
    "runs_are_listed_by_status_workflow_version_and_time",
    "outcomes_are_told_of_the_runs_that_are_there",
    "a_parked_run_tells_what_it_waits_for_in_order",
    "a_renewal_tells_of_stop_requests_for_runs_of_this_worker",
    "a_worker_that_retires_hands_its_runs_back_without_a_lapse",
    "a_worker_hands_back_what_it_does_not_know_it_owns",
    "a_lease_that_is_over_is_reaped_and_its_runs_count_a_lapse",
    "a_worker_whose_lease_is_over_can_write_nothing",
    "a_claim_tells_when_the_next_parked_run_is_due",
    "a_claim_brings_each_run_its_own_journal",
    "a_claim_brings_the_signals_that_the_run_waits_for_by_id",
    "records_come_back_as_they_were_given",
    "a_run_starts_already_leased",
    "a_big_flush_is_written_whole",
    "whether_a_flush_was_written_can_be_asked",
    "several_runs_park_in_one_flush_each_with_its_own",
    "signals_of_one_call_get_ids_in_their_order",
    "a_terminate_replaces_a_cancel_but_not_the_other_way",
    "payloads_come_back_as_they_were_given",
    "the_end_of_a_lease_and_its_workers_flush_leave_one_of_the_two",
)


@pytest.mark.parametrize("colour", ["awaiting", "blocking"])
@pytest.mark.parametrize("case", store_contract, ids=str)
def test_every_store_keeps_the_contract_in_both_colours(case: Case, colour: Colour, database_url: str) -> None:
    opened: list[SqlDatabase] = []

    def open_store(clock: Clock | None) -> SqlDatabase:
        # A database in memory lives in one handle.
        if database_url == "sqlite://" and opened:
            return opened[0]
        opened.append(open_database(database_url, clock=clock))
        return opened[-1]

    case.check(open_store, colour)


@pytest.fixture(params=["an Engine", "an AsyncEngine"])
def engine(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Engine | AsyncEngine]:
    if request.param == "an Engine":
        blocking = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
        yield blocking
        blocking.dispose()
    else:
        # Without a pool: the engine is used in one loop after the other.
        url = postgres_url.replace("postgresql://", "postgresql+asyncpg://")
        yield create_async_engine(url, poolclass=NullPool)


@pytest.mark.parametrize("colour", ["awaiting", "blocking"])
@pytest.mark.parametrize("name", OVER_ENGINES)
def test_an_engine_of_the_application_carries_every_statement(
    name: str, colour: Colour, engine: Engine | AsyncEngine
) -> None:
    (case,) = [case for case in store_contract if case.name == name]

    case.check(lambda clock: open_database(engine, clock=clock), colour)
