"""Cases of the store contract that send every statement there is: each makes statements that no other makes."""

from __future__ import annotations

from typing import Final

from outlast.testing.store_contract import Case, store_contract

_NAMES: Final = (
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

EVERY_STATEMENT: Final[tuple[Case, ...]] = tuple(case for case in store_contract if case.name in _NAMES)
assert len(EVERY_STATEMENT) == len(_NAMES)
