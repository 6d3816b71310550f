"""What the core must show, beside what its peers showed in the run that the goals were taken from.

A machine is faster or slower, and busier or quieter, than that one was. So what must be reached is the ratio to a peer
measured in the same run: `must / reference` of that peer, or its inverse where less is better.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Target:
    label: str
    workload: str
    figure: str
    must: float
    reference: dict[str, float] = field(default_factory=dict)
    """The peers' figures in the reference run; empty for a goal that holds by itself."""
    less_is_better: bool = False
    system: str = "outlast"

    def times_better(self, ours: float, theirs: float) -> float:
        if self.less_is_better:
            return theirs / ours if ours else float("inf")
        return ours / theirs if theirs else float("inf")

    def needed(self, peer: str) -> float:
        return self.times_better(self.must, self.reference[peer])

    def holds(self, ours: float) -> bool:
        return ours <= self.must if self.less_is_better else ours >= self.must


TARGETS: Final = (
    Target("W1 in process, runs/s", "w1-direct", "runs_per_s", 1300, {"dbos": 66, "absurd": 179}),
    Target("W1 by queue, 1 worker, runs/s", "w1-queue-1", "runs_per_s", 1000, {"dbos": 70, "absurd": 179}),
    Target("W1 by queue, 2 workers, runs/s", "w1-queue-2", "runs_per_s", 1700, {"dbos": 114, "absurd": 392}),
    Target("W1 CPU ms a run", "w1-direct", "cpu_ms", 1.0, {"dbos": 20.3, "absurd": 4.0}, less_is_better=True),
    Target("W1 commits a run", "w1-direct", "commits", 0.3, {"dbos": 5.0, "absurd": 5.0}, less_is_better=True),
    Target("W2 3 steps, p50 ms", "w2", "steps3_p50_ms", 4.0, {"dbos": 13.2, "absurd": 12.5}, less_is_better=True),
    Target("W2 each further step, ms", "w2", "per_step_ms", 0.8, {"dbos": 3.64, "absurd": 1.04}, less_is_better=True),
    Target("W3 signal to result, p50 ms", "w3", "p50_ms", 4.0, {"dbos": 8.4, "absurd": 9.3}, less_is_better=True),
    Target("W4 timers, p95 ms late", "w4", "late_p95_ms", 300, {"dbos": 2207, "absurd": 2197}, less_is_better=True),
    Target("W4 timers, all done after s", "w4", "all_done_s", 1.0, {"dbos": 9.0, "absurd": 2.4}, less_is_better=True),
    Target("W5 starts/s, singly", "w5-single", "runs_per_s", 5000, {"dbos": 1666, "absurd": 3077}),
    Target("W5 starts/s, in bulk", "w5-bulk", "runs_per_s", 20_000, {"procrastinate": 19_829}),
    Target("W6 growth, stale statistics", "w6", "stale_growth", 1.2, less_is_better=True),
    Target("W6 growth, fresh statistics", "w6", "fresh_growth", 1.2, less_is_better=True),
    Target(
        "SQLite W1 in process, runs/s", "w1-direct", "runs_per_s", 1000, {"dbos-sqlite": 70}, system="outlast-sqlite"
    ),
)

STAND_INS: Final = {("absurd", "w1-direct"): "w1-queue-1"}
"""absurd's worker is a process of its own, so its queue with one worker stands beside the others' single process."""
