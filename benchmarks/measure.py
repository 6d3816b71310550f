"""What a section of work costs: CPU of process trees, latencies, and the database server's own counters."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.counters import Counters, counters_of

TICKS: Final = os.sysconf("SC_CLK_TCK")


def process_tree_cpu(root: int) -> float:
    """CPU seconds of a process, of its live descendants and of the children they have waited for."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (stat := _process(folder)):
            parent, seconds = stat
            children.setdefault(parent, []).append(int(folder.name))
            spent[int(folder.name)] = seconds
    total, todo = 0.0, [root]
    while todo:
        pid = todo.pop()
        total += spent.get(pid, 0.0)
        todo += children.get(pid, [])
    return total


def _process(folder: Path) -> tuple[int, float] | None:
    try:
        text = (folder / "stat").read_text()
    except OSError:  # it ended between the listing and the read
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / TICKS


def machine_cpu() -> float:
    """CPU seconds that everything on this machine has used since it booted (interrupts and stolen time included)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / TICKS


def percentile(values: Sequence[float], percent: float) -> float:
    """The value at the nearest rank."""
    ordered = sorted(values)
    return ordered[round(percent / 100 * (len(ordered) - 1))]


def latencies(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds at the usual percentiles."""
    ms = [value * 1000 for value in seconds]
    return {
        "p50_ms": round(percentile(ms, 50), 3),
        "p95_ms": round(percentile(ms, 95), 3),
        "max_ms": round(max(ms), 3),
        "mean_ms": round(statistics.mean(ms), 3),
    }


@dataclass(slots=True)
class Meter:
    """CPU and database counters between `start` and `stop`, for all processes that do the work."""

    database: str
    server: int | None
    """The process of the database server, if there is one."""
    workers: list[int] = field(default_factory=list)
    _counters: Counters | None = None
    _before: dict[str, float] = field(default_factory=dict)

    async def start(self) -> None:
        if self.server is not None:
            self._counters = counters_of(self.database)
            await self._counters.open()
        self._before = await self._read()

    async def stop(self, runs: int) -> dict[str, float]:
        """Figures for each run, and the share of the machine that other work took meanwhile."""
        after = await self._read()
        spent = {name: after[name] - self._before[name] for name in after}
        ours = spent["client"] + spent["workers"] + spent["server"]
        capacity = spent["clock"] * (os.cpu_count() or 1)
        figures = {
            "cpu_ms": round(ours / runs * 1000, 3),
            "client_cpu_ms": round(spent["client"] / runs * 1000, 3),
            "workers_cpu_ms": round(spent["workers"] / runs * 1000, 3),
            "server_cpu_ms": round(spent["server"] / runs * 1000, 3),
            "other_load": round(max(0.0, spent["machine"] - ours) / capacity, 3) if capacity else 0.0,
        }
        if self._counters is not None:
            figures["commits"] = round(spent["commits"] / runs, 3)
            figures["statements"] = round(spent["statements"] / runs, 3)
            figures["wal_kb"] = round(spent["wal_bytes"] / runs / 1000, 3)
            await self._counters.close()
        return figures

    async def _read(self) -> dict[str, float]:
        own = os.times()
        figures = {
            "clock": time.perf_counter(),
            "client": own.user + own.system,
            "workers": sum(process_tree_cpu(pid) for pid in self.workers),
            "server": process_tree_cpu(self.server) if self.server else 0.0,
            "machine": machine_cpu(),
        }
        if self._counters is not None:
            figures.update(await self._counters.read())
        return figures
