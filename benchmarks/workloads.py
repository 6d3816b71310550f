"""The workloads W1 to W6, the same for every system. Costs are given for one run.

A run of k steps calls k trivial asynchronous steps one after the other; each returns a small object of two numbers.
After every throughput measurement the rows are counted: a figure for work that was not done is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Final

from benchmarks.measure import Meter, latencies
from benchmarks.probing import Probe, probe_of
from benchmarks.processes import Figures, Measurement, Worker, ask_child, measure_in_child
from benchmarks.system import System, fan, load, opened

WARM_UP: Final = 50
BATCH: Final = 100
"""Runs in one call of a bulk start."""


async def created(asked: Measurement) -> System:
    """A system whose tables were just made, by another process: what that one does leaves no trace in ours."""
    await ask_child("create", json.dumps([asked.system, asked.database]))
    return load(asked.system, asked.database)


@contextlib.asynccontextmanager
async def executing(asked: Measurement, system: System) -> AsyncIterator[list[Worker]]:
    """Have the system's runs executed: in this process where it can, else by worker processes."""
    in_process = system.executes_in_process and not asked.by_queue
    workers = [] if in_process else [Worker(asked.system, asked.database) for _ in range(asked.workers)]
    try:
        async with opened(system, "all" if in_process else "client"):
            yield workers
    finally:
        for worker in workers:
            worker.stop()


def _meter(asked: Measurement, workers: list[Worker]) -> Meter:
    return Meter(asked.database, asked.server, [worker.pid for worker in workers])


async def throughput_in_process(asked: Measurement) -> Figures:
    """W1 direct: from the first start to the last result, so many at once, in one process."""

    async def work(system: System, _: Probe) -> None:
        await fan(asked.runs, asked.at_once, lambda number: _complete(system, number, 3))

    return await _throughput(asked, work)


async def throughput_by_queue(asked: Measurement) -> Figures:
    """W1 by queue: one process starts with 50 calls at once, others execute; until the last row is completed."""

    async def work(system: System, probe: Probe) -> None:
        await fan(asked.runs, 50, lambda number: system.start(number, 3))
        await probe.until(system.counts.finished, WARM_UP + asked.runs)

    return await _throughput(asked, work)


async def _throughput(asked: Measurement, work: Callable[[System, Probe], Awaitable[None]]) -> Figures:
    system = await created(asked)
    async with executing(asked, system) as workers, probe_of(asked.database) as probe:
        await fan(WARM_UP, 10, lambda number: system.start(number, 3))
        await probe.until(system.counts.finished, WARM_UP)
        meter = _meter(asked, workers)
        await meter.start()
        began = time.perf_counter()
        await work(system, probe)
        seconds = time.perf_counter() - began
        figures = await meter.stop(asked.runs)
        await _verify(system, probe, WARM_UP + asked.runs, 3)
        return {"runs_per_s": round(asked.runs / seconds, 1), "seconds": round(seconds, 3), **figures}


async def _complete(system: System, number: int, steps: int) -> None:
    await system.result(await system.start(number, steps))


async def _verify(system: System, probe: Probe, runs: int, steps: int) -> None:
    await probe.until(system.counts.finished, runs, within=10)
    if system.counts.steps and (found := await probe.count(system.counts.steps)) < runs * steps:
        raise AssertionError(f"{found} steps recorded of {runs * steps}")


async def latency(asked: Measurement) -> Figures:
    """W2: one run at a time, with 1, 3 and 10 steps; what each further step adds."""
    system = await created(asked)
    async with executing(asked, system) as workers:
        figures: Figures = {}
        for steps, runs in ((1, asked.runs // 2), (3, asked.runs), (10, asked.runs // 2)):
            meter = _meter(asked, workers)
            found = await _one_at_a_time(system, steps, runs, meter)
            figures |= {f"steps{steps}_{name}": value for name, value in found.items()}
        figures["per_step_ms"] = round((figures["steps10_p50_ms"] - figures["steps1_p50_ms"]) / 9, 3)
        return figures


async def _one_at_a_time(system: System, steps: int, runs: int, meter: Meter) -> Figures:
    for number in range(10):
        await _complete(system, number, steps)
    await meter.start()
    taken: list[float] = []
    for number in range(runs):
        began = time.perf_counter()
        await _complete(system, number, steps)
        taken.append(time.perf_counter() - began)
    return latencies(taken) | await meter.stop(runs)


async def job_latency(asked: Measurement) -> Figures:
    """W2 of a plain job queue: a job has no steps, so there is one figure."""
    system = await created(asked)
    async with executing(asked, system) as workers:
        meter = _meter(asked, workers)
        return {f"job_{name}": value for name, value in (await _one_at_a_time(system, 0, asked.runs, meter)).items()}


async def signal_latency(asked: Measurement) -> Figures:
    """W3: from sending a signal to a waiting run until its result is there."""
    system = await created(asked)
    async with executing(asked, system) as workers:
        for number in range(5):
            await _signalled(system, number)
        meter = _meter(asked, workers)
        await meter.start()
        taken = [await _signalled(system, number) for number in range(5, 5 + asked.runs)]
        return latencies(taken) | await meter.stop(asked.runs)


async def _signalled(system: System, number: int) -> float:
    key = await system.start_waiting(number)
    began = time.perf_counter()
    await system.signal(number, key)
    await system.result(key)
    return time.perf_counter() - began


async def timers(asked: Measurement) -> Figures:
    """W4: runs that sleep until one moment: how late each goes on, and when all are completed."""
    system = await created(asked)
    async with executing(asked, system), probe_of(asked.database) as probe:
        until = time.time() + asked.ahead_s
        await fan(asked.runs, 50, lambda _: system.start_sleeping(until))
        await probe.until(system.counts.asleep, asked.runs, within=max(0.0, until - time.time()))
        asleep = time.time()
        await asyncio.sleep(max(0.0, until - time.time()))
        await probe.until(system.counts.finished, asked.runs, period=0.01)
        completed = time.time()
        lateness = await system.lateness(probe)
        if len(lateness) != asked.runs:
            raise AssertionError(f"{len(lateness)} runs noted when they woke, of {asked.runs}")
        late = latencies(lateness)
        return {f"late_{name}": value for name, value in late.items()} | {
            "all_done_s": round(completed - until, 3),
            "asleep_before_s": round(until - asleep, 2),
        }


async def starts(asked: Measurement) -> Figures:
    """W5 singly: durable starts only, 50 calls at once, nothing executes."""

    async def work(system: System) -> None:
        await fan(asked.runs, 50, lambda number: system.start(number, 3))

    return await _starts(asked, work)


async def starts_in_bulk(asked: Measurement) -> Figures:
    """W5 in bulk: the same in batches, 5 calls at once."""

    async def work(system: System) -> None:
        def batch(number: int) -> Awaitable[None]:
            return system.start_many(range(number * BATCH, (number + 1) * BATCH), 3)

        await fan(asked.runs // BATCH, 5, batch)

    return await _starts(asked, work)


async def _starts(asked: Measurement, work: Callable[[System], Awaitable[None]]) -> Figures:
    system = await created(asked)
    async with opened(system, "client"):
        await system.start(0, 3)
        meter = _meter(asked, [])
        await meter.start()
        began = time.perf_counter()
        await work(system)
        seconds = time.perf_counter() - began
        figures = await meter.stop(asked.runs)
    async with probe_of(asked.database) as probe:
        started = await probe.count(system.counts.started)
        if started < asked.runs + 1:
            raise AssertionError(f"{started} runs started of {asked.runs + 1}")
    return {"runs_per_s": round(asked.runs / seconds, 1), **figures}


async def history(asked: Measurement) -> Figures:
    """W6: the latency of three steps before and after much history, with stale statistics and with fresh ones.

    Each of the three is measured in a process of its own, so that every plan is made anew.
    """
    system = await created(asked)
    async with executing(asked, system), probe_of(asked.database) as probe:
        finished, sleeping = await system.start(0, 3), await system.start_sleeping(time.time() + 86_400)
        await system.result(finished)
        await probe.until(system.counts.asleep, 1, within=20)
    probing = replace(asked, workload="w6-latency")
    async with probe_of(asked.database) as probe:
        await probe.freeze_statistics()
        before = await measure_in_child(probing)
        await system.load_history(probe, finished, sleeping, (asked.finished, asked.sleeping))
        stale = await measure_in_child(probing)
        await probe.analyze()
        fresh = await measure_in_child(probing)
    empty = before["p50_ms"]
    return {
        "empty_p50_ms": empty,
        "stale_p50_ms": stale["p50_ms"],
        "fresh_p50_ms": fresh["p50_ms"],
        "stale_growth": round(stale["p50_ms"] / empty, 2),
        "fresh_growth": round(fresh["p50_ms"] / empty, 2),
    }


async def latency_with_history(asked: Measurement) -> Figures:
    """One of W6's three measurements, on the database as it is: the best of three blocks, since noise only adds."""
    system = load(asked.system, asked.database)
    async with executing(asked, system) as workers:
        blocks = [await _one_at_a_time(system, 3, asked.runs // 3, _meter(asked, workers)) for _ in range(3)]
        return min(blocks, key=lambda figures: figures["p50_ms"])


WORKLOADS: Final[dict[str, Callable[[Measurement], Awaitable[Figures]]]] = {
    "w1-direct": throughput_in_process,
    "w1-direct-4": throughput_in_process,
    "w1-queue-1": throughput_by_queue,
    "w1-queue-2": throughput_by_queue,
    "w2": latency,
    "w2-job": job_latency,
    "w3": signal_latency,
    "w4": timers,
    "w5-single": starts,
    "w5-bulk": starts_in_bulk,
    "w6": history,
    "w6-latency": latency_with_history,
}
