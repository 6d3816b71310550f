"""From measurements to tables: medians over the rounds, and ratios to the peers of the same run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final

from benchmarks.plan import PLAN, SYSTEMS
from benchmarks.targets import STAND_INS, TARGETS, Target

Spread = dict[str, float]
Summary = dict[str, dict[str, dict[str, Spread]]]
"""workload -> system -> figure -> min, median and max."""

COLUMNS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "w1": (
        ("runs/s", "runs_per_s"),
        ("CPU ms a run", "cpu_ms"),
        ("server's part", "server_cpu_ms"),
        ("commits a run", "commits"),
        ("statements a run", "statements"),
        ("WAL kB a run", "wal_kb"),
    ),
    "w2": (
        ("1 step p50 ms", "steps1_p50_ms"),
        ("3 steps p50 ms", "steps3_p50_ms"),
        ("3 steps p95 ms", "steps3_p95_ms"),
        ("10 steps p50 ms", "steps10_p50_ms"),
        ("each further step ms", "per_step_ms"),
        ("commits (3 steps)", "steps3_commits"),
        ("statements (3 steps)", "steps3_statements"),
    ),
    "w2-job": (("job p50 ms", "job_p50_ms"), ("job p95 ms", "job_p95_ms")),
    "w3": (("p50 ms", "p50_ms"), ("p95 ms", "p95_ms")),
    "w4": (("p50 ms late", "late_p50_ms"), ("p95 ms late", "late_p95_ms"), ("all done after s", "all_done_s")),
    "w5": (
        ("starts/s", "runs_per_s"),
        ("CPU ms a start", "cpu_ms"),
        ("commits", "commits"),
        ("statements", "statements"),
    ),
    "w6": (
        ("empty p50 ms", "empty_p50_ms"),
        ("stale p50 ms", "stale_p50_ms"),
        ("fresh p50 ms", "fresh_p50_ms"),
        ("growth stale", "stale_growth"),
        ("growth fresh", "fresh_growth"),
    ),
}
TITLES: Final = {
    "w1-direct": "W1 in process, 100 at once (3 steps a run)",
    "w1-direct-4": "W1 in process, 4 at once",
    "w1-queue-1": "W1 by queue, 1 worker process",
    "w1-queue-2": "W1 by queue, 2 worker processes",
    "w2": "W2 one run at a time",
    "w2-job": "W2 of a plain job queue (no steps)",
    "w3": "W3 signal to result",
    "w4": "W4 timers due at one moment",
    "w5-single": "W5 durable starts, singly",
    "w5-bulk": "W5 durable starts, 100 in a call",
    "w6": "W6 three steps, with history",
}


def summarize(measurements: Iterable[dict[str, Any]]) -> Summary:
    """Minimum, median and maximum over the rounds of every figure."""
    gathered: dict[str, dict[str, dict[str, list[float]]]] = {}
    for found in measurements:
        figures = gathered.setdefault(found["workload"], {}).setdefault(found["system"], {})
        for name, value in found.get("figures", {}).items():
            figures.setdefault(name, []).append(value)
    return {
        workload: {
            system: {name: _spread(values) for name, values in figures.items()} for system, figures in systems.items()
        }
        for workload, systems in gathered.items()
    }


def _spread(values: Sequence[float]) -> Spread:
    return {"min": min(values), "median": statistics.median(values), "max": max(values), "rounds": len(values)}


def median(summary: Summary, system: str, workload: str, figure: str) -> float | None:
    spread = summary.get(workload, {}).get(system, {}).get(figure)
    if spread is None and (stand_in := STAND_INS.get((system, workload))):
        return median(summary, system, stand_in, figure)
    return spread["median"] if spread else None


def judge(summary: Summary) -> list[dict[str, Any]]:
    """One row for each goal and peer: both figures, how many times better, how many times is needed."""
    rows = []
    for target in TARGETS:
        ours = median(summary, target.system, target.workload, target.figure)
        if ours is None:
            continue
        if not target.reference:
            rows.append(_row(target, ours, None, None, None) | {"reached": target.holds(ours)})
        for peer in target.reference:
            theirs = median(summary, peer, target.workload, target.figure)
            if theirs is not None:
                times, needed = target.times_better(ours, theirs), target.needed(peer)
                rows.append(_row(target, ours, peer, theirs, times) | {"needed": needed, "reached": times >= needed})
    return rows


def _row(target: Target, ours: float, peer: str | None, theirs: float | None, times: float | None) -> dict[str, Any]:
    return {"goal": target.label, "ours": ours, "must": target.must, "peer": peer, "theirs": theirs, "times": times}


def tables(measurements: list[dict[str, Any]]) -> str:
    """All tables as Markdown, the goals last."""
    summary = summarize(measurements)
    parts = [_workload_table(workload, summary[workload]) for workload in PLAN if workload in summary]
    if rows := judge(summary):
        parts.append(_goal_table(rows))
    return "\n\n".join(part for part in parts if part)


def _workload_table(workload: str, systems: dict[str, dict[str, Spread]]) -> str:
    columns = COLUMNS.get(workload) or COLUMNS[workload[:2]]
    rows = [
        [system, *(_cell(systems[system].get(figure)) for _, figure in columns), _rounds(systems[system])]
        for system in SYSTEMS
        if systems.get(system)
    ]
    return _markdown(TITLES[workload], ["system", *(title for title, _ in columns), "rounds"], rows) if rows else ""


def _rounds(figures: dict[str, Spread]) -> str:
    return f"{next(iter(figures.values()))['rounds']:.0f}"


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    if spread["rounds"] == 1:
        return number(spread["median"])
    return f"{number(spread['min'])} / **{number(spread['median'])}** / {number(spread['max'])}"


def _goal_table(rows: list[dict[str, Any]]) -> str:
    header = ["what the core must show", "outlast", "peer", "its figure", "times better", "needed", "reached"]
    cells = []
    for row in rows:
        alone = row["peer"] is None
        times = "-" if alone else f"{row['times']:.1f}x"
        needed = f"at most {number(row['must'])}" if alone else f"{row['needed']:.1f}x"
        verdict = "yes" if row["reached"] else "NO"
        theirs = "-" if alone else number(row["theirs"])
        cells.append([row["goal"], number(row["ours"]), row["peer"] or "-", theirs, times, needed, verdict])
    return _markdown("What the core must show, against the peers of this run", header, cells)


def other_load(figures: dict[str, float]) -> float:
    """The share of the machine that other work took, in the most disturbed part of a measurement."""
    return max((value for name, value in figures.items() if name.endswith("other_load")), default=0.0)


def number(value: float) -> str:
    """Three significant digits, and no more decimals than they need."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _markdown(title: str, header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[index]) for row in [header, *rows]) for index in range(len(header))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    lines.insert(1, " | ".join("-" * width for width in widths))
    return f"### {title}\n\n" + "\n".join(f"| {line} |" for line in lines)
