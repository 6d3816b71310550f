"""Measure outlast and its peers, interleaved, and say how they compare: `python -m benchmarks.run`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.peers import peers_python
from benchmarks.plan import PLAN, SYSTEMS, Planned, database_of, planned
from benchmarks.processes import ROOT, Measurement, MeasurementFailed, ask_child, measure_in_child
from benchmarks.server import FOLDER, SETTINGS, Server, empty_database, running_servers, version
from tools.postgres import find_binaries


@dataclass(slots=True)
class Bench:
    """One run of the benchmark: its servers, its folder, and what it has measured so far."""

    servers: Mapping[str, Server]
    folder: Path
    pythons: dict[str, str]
    measurements: list[dict[str, Any]] = field(default_factory=list)

    def measure(self, wanted: Planned) -> dict[str, Any]:
        """Run one measurement in its own child process, on an empty database of its own."""
        began = time.monotonic()
        found: dict[str, Any] = {"round": wanted.round, "workload": wanted.workload, "system": wanted.system}
        try:
            with self._database(wanted.system) as url:
                asked = self._asked(wanted, url)
                python = self.pythons[wanted.system]
                found |= {"runs": wanted.runs, "figures": asyncio.run(measure_in_child(asked, python=python))}
        except MeasurementFailed as failure:
            found["error"] = str(failure)
        found["took_s"] = round(time.monotonic() - began, 1)
        self.measurements.append(found)
        return found

    def _asked(self, wanted: Planned, url: str) -> Measurement:
        finished, sleeping = wanted.history
        server = self.servers.get(database_of(wanted.system))
        return Measurement(
            system=wanted.system,
            workload=wanted.workload,
            database=url,
            server=None if server is None else server.pid,
            runs=wanted.runs,
            at_once=4 if wanted.workload == "w1-direct-4" else 100,
            workers=2 if wanted.workload == "w1-queue-2" else 1,
            ahead_s=wanted.ahead_s,
            finished=finished,
            sleeping=sleeping,
        )

    @contextlib.contextmanager
    def _database(self, system: str) -> Iterator[str]:
        server = self.servers.get(database_of(system))
        if server is None:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                yield f"sqlite:///{folder}/bench.db"
        else:
            with empty_database(server) as url:
                yield url


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    peers = peers_python(options.peers) if any(not name.startswith("outlast") for name in options.systems) else ""
    pythons = {name: sys.executable if name.startswith("outlast") else peers for name in options.systems}
    os.environ["PATH"] = f"{find_binaries()}:{os.environ['PATH']}"  # absurdctl calls psql
    with (
        tempfile.TemporaryDirectory(prefix="outlast-bench-", dir=FOLDER) as folder,
        running_servers(options.systems) as servers,
    ):
        bench = Bench(servers, Path(folder), pythons)
        conditions = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": options.quick,
            "machine": machine.describe(Path(folder), {kind: version(server) for kind, server in servers.items()}),
            "settings": {kind: SETTINGS[kind] for kind in servers},
            "versions": versions(pythons),
        }
        missed = carry_out(bench, options)
    conclude(bench.measurements, conditions, missed, options.results)


def carry_out(bench: Bench, options: argparse.Namespace) -> list[str]:
    """Measure all that is planned, in order; return what the time was too short for."""
    deadline = time.monotonic() + options.minutes * 60
    everything = list(planned(options.workloads, options.systems, options.rounds, quick=options.quick))
    missed = []
    for position, wanted in enumerate(everything, 1):
        name = f"round {wanted.round} {wanted.workload} {wanted.system}"
        if time.monotonic() > deadline:
            missed.append(name)
            continue
        try:
            found = bench.measure(wanted)
        except KeyboardInterrupt:
            print("Interrupted; what follows is what was measured.", file=sys.stderr)
            deadline = 0.0
            missed.append(name)
            continue
        outcome = "FAILED" if "error" in found else headline(found["figures"])
        print(f"[{position}/{len(everything)}] {name}: {outcome} ({found['took_s']} s)", file=sys.stderr, flush=True)
    return missed


def headline(figures: dict[str, float]) -> str:
    """The one or two figures that tell a watcher how it goes."""
    shown = ("runs_per_s", "steps3_p50_ms", "job_p50_ms", "p50_ms", "late_p95_ms", "all_done_s", "stale_growth")
    parts = [f"{name} {report.number(figures[name])}" for name in shown if name in figures]
    if (other := report.other_load(figures)) > 0.1:
        parts.append(f"other work took {other:.0%} of the machine")
    return ", ".join(parts)


def versions(pythons: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, python in pythons.items():
        found |= asyncio.run(ask_child("versions", json.dumps(name), python=python))
    return found


def conclude(measurements: list[dict[str, Any]], conditions: dict[str, Any], missed: list[str], results: Path) -> None:
    """Print the tables, write the file, and end with 1 when a measurement failed."""
    summary = report.summarize(measurements)
    document = conditions | {
        "missed": missed,
        "goals": report.judge(summary),
        "summary": summary,
        "measurements": measurements,
    }
    results.mkdir(parents=True, exist_ok=True)
    file = results / f"{conditions['date'].replace(':', '')}.json"
    file.write_text(json.dumps(document, indent=1))
    print(report.tables(measurements))
    settings = {f"settings of {kind}": values for kind, values in conditions["settings"].items()}
    for title, values in {"machine": conditions["machine"], **settings, "versions": conditions["versions"]}.items():
        print(f"\n{title}: " + ", ".join(f"{name} {value}".strip() for name, value in values.items()))
    print(f"\nAll figures: {file}")
    if missed:
        print(f"Not measured, there was no time left: {', '.join(missed)}")
    failed = [found for found in measurements if "error" in found]
    for found in failed:
        name = f"round {found['round']} {found['workload']} {found['system']}"
        print(f"\nFAILED: {name}\n{found['error']}", file=sys.stderr)
    busy = sum(report.other_load(found.get("figures", {})) > 0.1 for found in measurements)
    if busy:
        print(f"Other work took more than a tenth of the machine during {busy} measurements: the figures are too low.")
    sys.exit(1 if failed else 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of small measurements, about 5 minutes")
    parser.add_argument("--systems", type=names(SYSTEMS), default=list(SYSTEMS), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument(
        "--workloads", type=names(tuple(PLAN)), default=list(PLAN), help=f"of {', '.join(PLAN)}; w5: all of W5"
    )
    parser.add_argument("--rounds", type=int, help="how often everything is measured (default 3; with --quick 1)")
    parser.add_argument(
        "--minutes", type=float, help="start no measurement after so long (default 25; with --quick 10)"
    )
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results", help="where the JSON is written"
    )
    parser.add_argument("--peers", type=Path, default=ROOT / ".bench-venv", help="the peers' environment")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.minutes = options.minutes or (10 if options.quick else 25)
    return options


def names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Read `a,b` in the order in which they are known; a part that is no name stands for all names that begin so."""

    def chosen(text: str) -> list[str]:
        wanted = [part.strip() for part in text.split(",")]
        for part in wanted:
            if not any(name.startswith(part) for name in known):
                raise argparse.ArgumentTypeError(f"{part!r} is none of {', '.join(known)}")
        return [
            name
            for name in known
            if any(part == name or (part not in known and name.startswith(part)) for part in wanted)
        ]

    return chosen


if __name__ == "__main__":
    main()
