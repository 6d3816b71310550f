"""The suite that every store passes: named cases, each over fresh and empty tables, in both colours.

For the author of a store. A case runs on its own; under pytest:

    @pytest.mark.parametrize("case", store_contract, ids=str)
    @pytest.mark.parametrize("colour", ["awaiting", "blocking"])
    def test_the_contract_holds(case, colour, fresh_url):
        case.check(lambda clock: open_my_database(fresh_url, clock=clock), colour)

The function given to `check` MUST return a new handle on the same data each time within one case, and on fresh, empty data
for each case. A database that lives in one handle alone returns the same handle.
"""

from __future__ import annotations

from typing import Final

from outlast.testing.contract import (
    claiming,
    concurrency,
    flushing,
    leases,
    parking,
    reading,
    signals,
    starting,
    stops,
    texts,
    transactions,
)
from outlast.testing.contract.desk import Case, ContractBroken

__all__ = ["Case", "ContractBroken", "store_contract"]

store_contract: Final[tuple[Case, ...]] = (
    *starting.CASES,
    *reading.CASES,
    *leases.CASES,
    *claiming.CASES,
    *flushing.CASES,
    *parking.CASES,
    *signals.CASES,
    *stops.CASES,
    *texts.CASES,
    *transactions.CASES,
    *concurrency.CASES,
)
