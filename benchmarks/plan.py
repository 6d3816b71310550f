"""How much of each workload each system is given, so that every measurement is long enough and the whole is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SYSTEMS: Final = (
    "outlast",
    "dbos",
    "absurd",
    "procrastinate",
    "outlast-mysql",
    "outlast-mariadb",
    "outlast-sqlite",
    "dbos-sqlite",
)
"""What follows a library's name is the kind of database that it is measured on; without it, that is PostgreSQL."""


def database_of(system: str) -> str:
    """Return the kind of database that a system is measured on."""
    return system.partition("-")[2] or "postgresql"


@dataclass(frozen=True, slots=True)
class Size:
    """Runs of one measurement, `--quick` and full; `rounds` caps how often the costly ones are repeated."""

    quick: int
    full: int
    ahead_s: tuple[float, float] = (0.0, 0.0)
    rounds: int = 9


PLAN: Final[dict[str, dict[str, Size]]] = {
    "w1-direct": {
        "outlast": Size(3_000, 10_000),
        "dbos": Size(150, 500),
        "outlast-mysql": Size(1_500, 5_000),
        "outlast-mariadb": Size(1_500, 5_000),
        "outlast-sqlite": Size(1_500, 5_000),
        "dbos-sqlite": Size(100, 400),
    },
    "w1-direct-4": {
        "outlast": Size(1_000, 3_000),
        "dbos": Size(150, 500),
        "outlast-mysql": Size(500, 1_500),
        "outlast-mariadb": Size(500, 1_500),
    },
    "w1-queue-1": {
        "outlast": Size(2_000, 8_000),
        "dbos": Size(150, 500),
        "absurd": Size(400, 1_500),
        "procrastinate": Size(500, 2_000),
        "outlast-mysql": Size(1_000, 4_000),
        "outlast-mariadb": Size(1_000, 4_000),
    },
    "w1-queue-2": {
        "outlast": Size(2_000, 8_000),
        "dbos": Size(150, 500),
        "absurd": Size(400, 1_500),
        "procrastinate": Size(500, 2_000),
        "outlast-mysql": Size(1_000, 4_000),
        "outlast-mariadb": Size(1_000, 4_000),
    },
    "w2": {
        "outlast": Size(100, 200),
        "dbos": Size(30, 100),
        "absurd": Size(50, 150),
        "outlast-mysql": Size(100, 200),
        "outlast-mariadb": Size(100, 200),
        "outlast-sqlite": Size(100, 200),
        "dbos-sqlite": Size(20, 60),
    },
    "w2-job": {"procrastinate": Size(60, 200)},
    "w3": {
        "outlast": Size(50, 100),
        "dbos": Size(20, 60),
        "absurd": Size(30, 100),
        "outlast-mysql": Size(50, 100),
        "outlast-mariadb": Size(50, 100),
        "outlast-sqlite": Size(50, 100),
        "dbos-sqlite": Size(3, 10, rounds=1),
    },
    "w4": {
        "outlast": Size(500, 2_000, (5, 8)),
        "dbos": Size(500, 2_000, (20, 50)),
        "absurd": Size(500, 2_000, (8, 15)),
        "outlast-mysql": Size(500, 2_000, (5, 8)),
        "outlast-mariadb": Size(500, 2_000, (5, 8)),
        "outlast-sqlite": Size(500, 2_000, (5, 8)),
    },
    "w5-single": {
        "outlast": Size(3_000, 10_000),
        "dbos": Size(500, 2_000),
        "absurd": Size(1_000, 4_000),
        "procrastinate": Size(1_000, 4_000),
        "outlast-mysql": Size(2_000, 5_000),
        "outlast-mariadb": Size(2_000, 5_000),
        "outlast-sqlite": Size(2_000, 5_000),
    },
    "w5-bulk": {
        "outlast": Size(10_000, 40_000),
        "procrastinate": Size(4_000, 20_000),
        "outlast-mysql": Size(10_000, 40_000),
        "outlast-mariadb": Size(10_000, 40_000),
        "outlast-sqlite": Size(10_000, 40_000),
    },
    "w6": {
        "outlast": Size(60, 180),
        "dbos": Size(30, 90, rounds=1),
        "absurd": Size(30, 90, rounds=1),
        "outlast-mysql": Size(60, 180, rounds=1),
        "outlast-mariadb": Size(60, 180, rounds=1),
        "outlast-sqlite": Size(60, 180, rounds=1),
    },
}

HISTORY: Final = {True: (20_000, 2_000), False: (200_000, 20_000)}
"""W6: finished and sleeping runs put in, quick and full."""


@dataclass(frozen=True, slots=True)
class Planned:
    round: int
    workload: str
    system: str
    runs: int
    ahead_s: float
    history: tuple[int, int]


def planned(workloads: list[str], systems: list[str], rounds: int, *, quick: bool) -> Iterator[Planned]:
    """Every measurement in its order: round by round, workload by workload, the systems one after the other in each."""
    for number in range(1, rounds + 1):
        for workload in workloads:
            for system in systems:
                size = PLAN[workload].get(system)
                if size is not None and number <= size.rounds:
                    runs, ahead = (size.quick, size.ahead_s[0]) if quick else (size.full, size.ahead_s[1])
                    yield Planned(number, workload, system, runs, ahead, HISTORY[quick])
